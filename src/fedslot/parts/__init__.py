"""Parts of a scenario that are named: found by name, or the user's own.

registry.py  find a part by its name, or import, pack and fingerprint the user's own
"""
