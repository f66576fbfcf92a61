"""Attacks: what lying UEs send in place of honest updates, or train on in place of their samples.

base.py         the interface of attacks, and what liars know
own_update.py   lies made of the liar's own update, or of nothing: sign flips, scaling, noise, a direction, free riders
collusion.py    lies made of the honest updates of the round: a little is enough, inner-product manipulation
poisoning.py    samples that are not what they were: label flips, a backdoor
"""

from fedslot.attacks.base import Attack, Knowledge, Poisoning, Samples

__all__ = ["Attack", "Knowledge", "Poisoning", "Samples"]
