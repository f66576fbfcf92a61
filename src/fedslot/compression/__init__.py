"""Compression: how the change of a model is written as bytes, in the simulator and on the wire. NumPy alone.

codec.py     the interface of compression schemes
packing.py   numbers of a few bits as bytes
quantise.py  uniform quantisation: dithered, stochastic or to the nearest level
"""

from fedslot.compression.codec import Codec, Floats, Key, Shapes

__all__ = ["Codec", "Floats", "Key", "Shapes"]
