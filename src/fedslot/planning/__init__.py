"""Sizing a cell without training: what `fedslot plan` asks of `access`, with a scenario, a radio or a run as its input.

inputs.py         the inputs of a plan from a scenario
sizing.py         the request for a plan, and its result: splits, seconds and joules, goals
value_ratio.py    the value of pushed updates relative to pulled ones, from the trace of a run
"""
