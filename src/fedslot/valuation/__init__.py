"""Values of received updates: Shapley values and other semivalues of cooperative games, exact or estimated.

game.py        coalitions, their averaging weights, utilities (each evaluated at most once) and geometry
semivalues.py  weights of Shapley and Banzhaf values
exact.py       all coalitions; leave-one-out values
kriging.py     the default: few utilities, all others predicted; Shapley or Banzhaf values
averages.py    averages of kriging's predictions over coalitions of all sizes
cyclic.py      permutations in cyclic blocks, without assumptions on utilities
gtg.py         GTG-Shapley as in the paper
"""

from fedslot.parts import kinds
from fedslot.parts.kind import Kind
from fedslot.valuation.cyclic import Cyclic
from fedslot.valuation.exact import Exact, LeaveOneOut, exact
from fedslot.valuation.game import Game, Geometry, Utility, Valuation, ValuationMethod
from fedslot.valuation.gtg import GTG
from fedslot.valuation.kriging import Banzhaf, Kriging
from fedslot.valuation.semivalues import banzhaf, shapley

__all__ = [
    "GTG",
    "METHODS",
    "Banzhaf",
    "Cyclic",
    "Exact",
    "Game",
    "Geometry",
    "Kriging",
    "LeaveOneOut",
    "Utility",
    "Valuation",
    "ValuationMethod",
    "banzhaf",
    "exact",
    "shapley",
]

METHODS: Kind[ValuationMethod] = kinds.VALUATIONS
