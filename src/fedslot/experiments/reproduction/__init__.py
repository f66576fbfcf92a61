"""The paper's figures from our own runs, beside the published curves, and a page that says what agrees."""
