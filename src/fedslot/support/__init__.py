"""What every other package may use, and what uses none of them.

errors.py     errors of one line: `InputError`, `RefusedError`; the nearest name
extras.py     optional packages: what they are for, what to type where one is missing
checks.py     whole numbers and numbers of arguments
plain.py      plain Python values out of NumPy's, YAML's and others
yaml_text.py  YAML in and out
files.py      files of the user's own that may change
rng.py        named random streams without state
limits.py     how far an update may lie from the model that was broadcast
machine.py    the memory of this machine
threads.py    threads that share the work of a round
display.py    the late door to the views
"""

from fedslot.support.errors import one_of
from fedslot.support.yaml_text import write_yaml

__all__ = ["one_of", "write_yaml"]
