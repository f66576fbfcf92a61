"""What can lying UEs do? Each attack against each strategy, in cells of three data sets, and the page about it.

settings.py    the attacks, the strategies and the cells
folder.py      the folder of a study: its runs, and what was measured
page.py        the page as Markdown, from its template `page.md`
"""
