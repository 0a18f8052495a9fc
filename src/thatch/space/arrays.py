"""Arrays of numbers: their type names, and Numba kernels on one column of coordinates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thatch.jit import inlined, kernel

Ints = NDArray[np.int64]


Floats = NDArray[np.float64]


Bools = NDArray[np.bool_]


@kernel
def ordered_bits(bits: Ints) -> Ints:
    """The coordinates of doubles, given as their bits (axis.DoubleAxis): one pass and no temporaries."""
    coordinates = np.empty(len(bits), np.int64)
    for row in range(len(bits)):
        magnitude = bits[row] & 0x7FFF_FFFF_FFFF_FFFF
        magnitude = magnitude if magnitude <= 0x7FF0_0000_0000_0000 else 0x7FF0_0000_0000_0001  # NaN, of either sign
        is_negative = (bits[row] < 0) & (magnitude <= 0x7FF0_0000_0000_0000)
        coordinates[row] = -magnitude if is_negative else magnitude
    return coordinates


@inlined
def lower_bound(values: Ints, start: int, stop: int, value: int) -> int:
    """The first place in values[start:stop], which ascend, that is not below a value."""
    while start < stop:
        middle = (start + stop) >> 1
        if values[middle] < value:
            start = middle + 1
        else:
            stop = middle
    return start


@inlined
def upper_bound(values: Ints, start: int, stop: int, value: int) -> int:
    """The first place in values[start:stop], which ascend, that is above a value."""
    while start < stop:
        middle = (start + stop) >> 1
        if values[middle] <= value:
            start = middle + 1
        else:
            stop = middle
    return start
