"""Compression: how the change of a model is written as bytes, in the simulator and on the wire. NumPy alone.

codec.py  the interface of compression schemes
"""

from fedslot.compression.codec import Codec, Floats, Key, Shapes

__all__ = ["Codec", "Floats", "Key", "Shapes"]
