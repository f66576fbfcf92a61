"""What each received update is worth: Shapley values of abstract games, exact or estimated."""

from fedslot.valuation.cyclic import cyclic
from fedslot.valuation.exact import exact
from fedslot.valuation.game import Game, Geometry, Utility, Valuation
from fedslot.valuation.gtg import gtg
from fedslot.valuation.kriging import kriging

__all__ = ["Game", "Geometry", "Utility", "Valuation", "cyclic", "exact", "gtg", "kriging"]
