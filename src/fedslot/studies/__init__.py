"""Studies that were made with fedslot, and the pages about them: uses of the library, of its public names only.

frame.py        what studies share: folder, runs, curves, figures and page
curves.py       curves of finished runs, many in one small file
reproduction/   the paper's figures from our own runs
equal_slots/    which strategies win at equal slots, on three data sets
attacks/         what lying UEs do to each strategy
random_settings/ whether the recommended strategy is good in settings drawn at random

A study extends `StudyFolder` by its settings and the tasks that they ask for, and has a template `page.md` and what it
shows. Its command in `fedslot.cli` is the only one that imports it.
"""
