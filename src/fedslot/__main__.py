"""`python -m fedslot` is `fedslot`."""

import sys

from fedslot.cli import main

if __name__ == "__main__":
    sys.exit(main())
