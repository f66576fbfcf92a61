"""A Flower app on push-pull access."""
