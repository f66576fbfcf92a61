"""Figures, tables, the report and the progress display.

style.py        the style of all figures
curves.py       curves of test accuracy
comparison.py   figures of a comparison
report.py       the HTML report of a comparison; report.html is its template
tables.py       tables of comparisons and sweeps in the terminal
sweep.py        figures of a sweep
plan.py         the figure of a plan
plan_tables.py  the answers of a plan in the terminal
notebook.py     what a notebook shows of results, by their type
html.py         tables and facts in a notebook
text_plot.py    a small plot in the terminal
progress.py     live progress of runs
live/           the live view in a browser, and its panels in a report
"""
