"""Is the recommended strategy good everywhere? Comparisons in settings that are drawn at random, and their page.

settings.py    the laws of the drawing, and the strategies that are compared
"""
