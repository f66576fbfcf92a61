"""`python -m fedslot` is `fedslot`."""

from fedslot.cli import main

if __name__ == "__main__":
    main()
