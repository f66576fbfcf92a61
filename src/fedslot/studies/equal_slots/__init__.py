"""Which strategies win at equal slots: the comparisons of `docs/explanation/equal-slots.md`, and its pages.

settings.py    the comparisons: data sets, labels, noise, strategies
folder.py      the folder of a study: its runs, and the curves of finished ones
measures.py    what is measured, paired with the reference strategy
page.py        the pages as Markdown, from their templates `result.md` and `data.md`, and the figures
"""
