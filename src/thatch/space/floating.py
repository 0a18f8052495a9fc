"""Doubles and floats as attribute types."""

from __future__ import annotations

import math
import struct
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from thatch.space.axis import INT64_MAX, Axis, Coordinates, integer_of, numpy_of, parsed

if TYPE_CHECKING:
    import pyarrow as pa


class FloatingAxis(Axis):
    """The order-preserving map of IEEE-754 bits: 0.0 and -0.0 at 0, +infinity at INFINITE, NaN one above."""

    INFINITE: int
    FAR: int  # infinite ends count as this where they are measured, so that no width overflows

    @classmethod
    def of_float(cls, value: float) -> int:
        """The coordinate of a value; of a double that no value equals, that of the nearest."""
        raise NotImplementedError

    def first_from(self, value: float) -> int:
        """The least coordinate whose value is at least a double."""
        raise NotImplementedError

    def last_upto(self, value: float) -> int:
        """The greatest coordinate whose value is at most a double."""
        raise NotImplementedError

    def width(self, low: int, high: int) -> float:
        if low == high or low >= self.INFINITE:
            return 0.0
        return float(self.decode(min(high, self.INFINITE)) - self.decode(low))

    def sql_literal(self, coordinate: int) -> str:
        value = self.decode(coordinate)
        if math.isfinite(value):
            return f"{value!r}D"
        # Spark has no literal for these; compared with a column of doubles or floats a string is cast to a double.
        return "'NaN'" if value != value else ("'Infinity'" if value > 0 else "'-Infinity'")

    def text(self, coordinate: int) -> str:
        return repr(self.decode(coordinate))

    def double(self, coordinate: int) -> float:
        return float(self.decode(coordinate))

    @property
    def is_number(self) -> bool:
        return True


class DoubleAxis(FloatingAxis):
    """Floats of 64 bits."""

    INFINITE = 0x7FF0_0000_0000_0000
    FAR = 0x7FD0_0000_0000_0000  # 2 ** 1022
    sql, first, last = "double", -INFINITE, INFINITE + 1

    def encode(self, value: Any) -> int:
        if isinstance(value, float | np.floating):
            return self.of_float(float(value))
        number = integer_of(value, "a float")
        try:
            if float(number) == number:
                return self.of_float(float(number))
        except OverflowError:
            pass
        raise ValueError("is an int that no double equals")

    @classmethod
    def of_float(cls, value: float) -> int:
        """
        >>> DoubleAxis.of_float(0.0), DoubleAxis.of_float(-0.0), DoubleAxis.of_float(-5e-324)
        (0, 0, -1)
        """
        if value != value:
            return cls.INFINITE + 1
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        coordinate: int = bits if bits >= 0 else -(bits & INT64_MAX)
        return coordinate

    def first_from(self, value: float) -> int:
        return self.of_float(value)

    def last_upto(self, value: float) -> int:
        return self.of_float(value)

    def decode(self, coordinate: int) -> float:
        if coordinate > self.INFINITE:
            return math.nan
        (value,) = struct.unpack("<d", struct.pack("<q", abs(int(coordinate))))
        return -value if coordinate < 0 else value

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        import pyarrow as pa

        if pa.types.is_integer(array.type):
            array = array.cast(pa.float64(), safe=True)  # raises beyond 2^53, where an int may equal no double
        if not pa.types.is_floating(array.type):
            return None
        bits = numpy_of(array.cast(pa.float64())).view(np.int64)
        if "numba" not in sys.modules:  # to load the compiler takes longer than to do without
            magnitude = np.minimum(bits & INT64_MAX, self.INFINITE + 1)
            return np.where((bits < 0) & (magnitude <= self.INFINITE), -magnitude, magnitude)
        from thatch.space.arrays import ordered_bits

        return ordered_bits(bits)

    def parse(self, text: str) -> int:
        return self.of_float(parsed(float, text, "a double"))

    def to_double(self, coordinates: Coordinates) -> NDArray[np.float64]:
        magnitude = np.abs(coordinates).view(np.float64)
        return np.where(coordinates < 0, -magnitude, magnitude)


class FloatAxis(FloatingAxis):
    """Floats of 32 bits. Spark compares them as doubles, which holds each of them exactly: so a literal falls on a
    float or between two, and `x = 0.1` holds nowhere."""

    INFINITE = 0x7F80_0000
    FAR = INFINITE - 1
    sql, first, last = "float", -INFINITE, INFINITE + 1

    def encode(self, value: Any) -> int:
        if not isinstance(value, float | np.floating):
            value = integer_of(value, "a float")
        try:
            number = float(value)
        except OverflowError:
            number = math.nan
        coordinate = self.of_float(number)
        if number == number == value and self.decode(coordinate) == value:
            return coordinate
        if value != value:
            return coordinate
        raise ValueError("is a number that no float of 32 bits equals; round it, or declare the attribute double")

    @classmethod
    def of_float(cls, value: float) -> int:
        """
        >>> FloatAxis.of_float(-0.0), FloatAxis.of_float(1e-45), FloatAxis.of_float(1e300) == FloatAxis.INFINITE
        (0, 1, True)
        """
        if value != value:
            return cls.INFINITE + 1
        try:
            (bits,) = struct.unpack("<i", struct.pack("<f", value))
        except OverflowError:
            return cls.INFINITE if value > 0 else -cls.INFINITE
        coordinate: int = bits if bits >= 0 else -(bits & 0x7FFF_FFFF)
        return coordinate

    def first_from(self, value: float) -> int:
        near = self.of_float(value)
        return near + 1 if self.decode(near) < value else near

    def last_upto(self, value: float) -> int:
        near = self.of_float(value)
        return near - 1 if self.decode(near) > value else near

    def decode(self, coordinate: int) -> float:
        if coordinate > self.INFINITE:
            return math.nan
        (value,) = struct.unpack("<f", struct.pack("<i", abs(int(coordinate))))
        return -value if coordinate < 0 else value

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        import pyarrow as pa

        if not (pa.types.is_float32(array.type) or pa.types.is_float16(array.type)):
            return None  # most doubles and ints are no floats: value by value
        bits = numpy_of(array.cast(pa.float32())).view(np.int32).astype(np.int64)
        magnitude = np.minimum(bits & 0x7FFF_FFFF, self.INFINITE + 1)
        return np.where((bits < 0) & (magnitude <= self.INFINITE), -magnitude, magnitude)

    def parse(self, text: str) -> int:
        return self.encode(parsed(float, text, "a float"))

    def to_double(self, coordinates: Coordinates) -> NDArray[np.float64]:
        bits = np.abs(coordinates)
        bits = np.where(bits > self.INFINITE, 0x7FC0_0000, bits)  # a NaN that may be cast; also where NULL is
        magnitude = bits.astype(np.int32).view(np.float32).astype(np.float64)
        return np.where(coordinates < 0, -magnitude, magnitude)
