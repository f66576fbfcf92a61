"""Reproduction of the paper: its figures from our own runs, and a page that compares them with the published numbers.

experiments.py  the runs that the figures need
published.py    the published numbers
figures.py      the figures
page.py         the page of tables and verdicts, from its template `page.md`, and its figures
"""
