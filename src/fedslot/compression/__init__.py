"""Compression: how the change of a model is written as bytes, in the simulator and on the wire. NumPy alone.

codec.py           the interface of compression schemes
sending.py         a scheme in use: bytes of a change, and error feedback
eden.py            EDEN and DRIVE: quantisation after a random rotation
sparse.py          top-k and rand-k, whose values another scheme may send
indices.py         which k parameters are sent, as bytes
sign.py            signs with a scale for each tensor
quantise.py        uniform quantisation with b bits for each parameter, by one of two files:
fixed_length.py    2^b levels for each parameter
variable_length.py multiples of the finest step that entropy coding affords
rounding.py        dithered, at random, or to the nearest level
packing.py         whole numbers of a few bits as bytes
entropy_coding.py  whole numbers as bytes by a range coder
noise.py           estimates of noise on what is decoded
"""

from fedslot.compression.codec import Codec, Floats, Key, Shapes, parameters
from fedslot.compression.sending import Compression, compression_of

__all__ = ["Codec", "Compression", "Floats", "Key", "Shapes", "compression_of", "parameters"]
