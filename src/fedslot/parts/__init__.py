"""Parts of a scenario that are chosen by name: strategies, channels, models, ...

kind.py      what all kinds of parts have in common: names, typed options, building
kinds.py     the kinds, and the built-in parts of each
registry.py  the user's own parts: import, pack and fingerprint them
"""
