"""Is the recommended strategy good everywhere? Comparisons in settings that are drawn at random, and their page.

settings.py    the laws of the drawing, and the strategies that are compared
folder.py      the folder of a study: its runs, and what was measured
page.py        the page as Markdown, from its template `page.md`
"""
