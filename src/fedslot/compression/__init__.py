"""Compression: how the change of a model is written as bytes, in the simulator and on the wire. NumPy alone.

codec.py           the interface of compression schemes
quantise.py        uniform quantisation with b bits for each parameter, by one of two files:
fixed_length.py    2^b levels for each parameter
variable_length.py multiples of the finest step that entropy coding affords
rounding.py        dithered, at random, or to the nearest level
packing.py         whole numbers of a few bits as bytes
entropy_coding.py  whole numbers as bytes by a range coder
noise.py           estimates of noise on what is decoded
"""

from fedslot.compression.codec import Codec, Floats, Key, Shapes, parameters

__all__ = ["Codec", "Floats", "Key", "Shapes", "parameters"]
