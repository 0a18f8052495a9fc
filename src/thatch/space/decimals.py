"""Decimals as attribute types: up to 18 digits as scaled integers, up to 38 by labels.

The *unscaled* value of 1.50 at scale 2 is 150. Up to 18 digits it fits into int64 and is the coordinate. Beyond, the
axis is cut at the literals that clauses mention, as that of strings is. The next value after 1.50 is 1.51, so `<= 1.50`
and `< 1.51` are one cut, and no gap is empty: it holds at least the value at which it begins.

Python's decimals are exact, but their arithmetic rounds to the 28 digits of the context: it is not used here.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thatch.space.axis import Axis, Coordinates, LabelledAxis, integer_of, parsed
from thatch.space.labels import FIRST, LAST, Labels

if TYPE_CHECKING:
    import pyarrow as pa

SHORT_DIGITS_MAX, DIGITS_MAX = 18, 38
_EXACT = Context(prec=2 * DIGITS_MAX)
_OFFSET, _KEY_DIGITS = 10**DIGITS_MAX, DIGITS_MAX + 1  # of keys: unscaled values as digits, from zero on


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """
    >>> decimal_of(12345678901234567890123456789012345678, 10)
    Decimal('1234567890123456789012345678.9012345678')
    """
    return Decimal(unscaled).scaleb(-scale, _EXACT)


def decimal_axis(precision: int, scale: int) -> DecimalAxis:
    """The axis of `decimal(precision,scale)`."""
    return (ShortDecimalAxis if precision <= SHORT_DIGITS_MAX else LongDecimalAxis)(precision, scale)


class DecimalAxis(Axis):
    """Decimals of so many digits, `scale` of them behind the point."""

    def __init__(self, precision: int, scale: int) -> None:
        if not 1 <= precision <= DIGITS_MAX or not 0 <= scale <= precision:
            raise ValueError(
                f"decimal({precision},{scale}) needs 1 to {DIGITS_MAX} digits and a scale from 0 to that number"
            )
        super().__init__()
        self.precision, self.scale = precision, scale
        self.sql = f"decimal({precision},{scale})"
        self.unscaled_max = 10**precision - 1

    def unscaled(self, value: Any) -> int:
        """The unscaled value of a Decimal or an int; ValueError if it is not of the type."""
        number = value if isinstance(value, Decimal) else Decimal(integer_of(value, "a Decimal or an int"))
        if not number.is_finite():
            raise ValueError(f"is not a {self.sql}: it has no finite value")
        sign, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        shift = exponent + self.scale
        if not any(digits):
            return 0
        if len(digits) + shift > self.precision:
            raise ValueError(f"has more than the {self.precision} digits of {self.sql}")
        if shift < -len(digits):
            raise ValueError(f"has more than the {self.scale} decimal places of {self.sql}")
        unscaled = int("".join(map(str, digits)))
        if shift < 0:
            unscaled, rest = divmod(unscaled, 10**-shift)
            if rest:
                raise ValueError(f"has more than the {self.scale} decimal places of {self.sql}")
        else:
            unscaled *= 10**shift
        return -unscaled if sign else unscaled

    def unscaled_of_text(self, text: str) -> int:
        return self.unscaled(parsed(Decimal, text, "a decimal"))

    def read(self, text: str) -> Decimal:
        return decimal_of(self.unscaled_of_text(text), self.scale)

    def sql_literal(self, coordinate: int) -> str:
        return self.text(coordinate)

    def text(self, coordinate: int) -> str:
        return f"{self.decode(coordinate):f}"

    def _words(self, array: pa.Array) -> NDArray[np.int64] | None:
        """The unscaled values of an array as pairs of 64 bits, little end first; anything at null slots."""
        import pyarrow as pa

        if not (pa.types.is_decimal128(array.type) or pa.types.is_integer(array.type)):
            return None
        if pa.types.is_integer(array.type):
            array = array.cast(pa.decimal128(20, 0))
        if array.type.scale != self.scale:
            array = array.cast(pa.decimal128(DIGITS_MAX, self.scale))  # raises where digits would be lost
        exact = array.fill_null(Decimal(0)) if array.null_count else array
        words = np.frombuffer(exact.buffers()[1] or b"", np.int64)
        return words[2 * exact.offset : 2 * (exact.offset + len(exact))]


class ShortDecimalAxis(DecimalAxis):
    """Decimals of up to 18 digits. The coordinate is the unscaled value."""

    def __init__(self, precision: int, scale: int) -> None:
        super().__init__(precision, scale)
        self.first, self.last = -self.unscaled_max, self.unscaled_max

    def encode(self, value: Any) -> int:
        return self.unscaled(value)

    def decode(self, coordinate: int) -> Decimal:
        return decimal_of(int(coordinate), self.scale)

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        words = self._words(array)
        if words is None:
            return None
        low, high = words[0::2], words[1::2]
        return low.copy() if bool((high == low >> 63).all()) else None

    def width(self, low: int, high: int) -> float:
        return (high - low + 1) / 10**self.scale

    def parse(self, text: str) -> int:
        return self.unscaled_of_text(text)

    def double(self, coordinate: int) -> float:
        return coordinate / 10**self.scale

    def to_double(self, coordinates: Coordinates) -> NDArray[np.float64]:
        # Correctly rounded, as Spark's BigDecimal.doubleValue: one division rounds once while both operands are
        # exact doubles; beyond 2^53 Python's integer division, which rounds once too, takes over.
        doubles = coordinates / float(10**self.scale)
        for row in np.flatnonzero(np.abs(coordinates) > 2**53):
            doubles[row] = self.double(int(coordinates[row]))
        return doubles

    @property
    def is_number(self) -> bool:
        return True


class _Gaps(NamedTuple):
    """The gaps of some labels as arrays, for whole columns."""

    labels: Labels
    size: int  # of the labels at that time: cuts are only ever added
    edges: NDArray[np.bytes_]  # where gaps begin, and where the last one ends
    coordinates: Coordinates  # before the first edge, of each gap, and behind the last edge
    numbers: NDArray[np.object_]  # the edges as unscaled values


class LongDecimalAxis(DecimalAxis, LabelledAxis):
    """Decimals of up to 38 digits, labelled. The axis goes from `least` to `greatest`, as unscaled values.

    A coordinate stands for a gap, not for a value, and a gap has no place among doubles: such a decimal is compared
    exactly with doubles in clauses, but it is no side of a ball.
    """

    def __init__(self, precision: int, scale: int, least: int | None = None, greatest: int | None = None) -> None:
        super().__init__(precision, scale)
        self.least = -self.unscaled_max if least is None else least
        self.greatest = self.unscaled_max if greatest is None else greatest
        self.is_narrowed = (self.least, self.greatest) != (-self.unscaled_max, self.unscaled_max)
        self._gaps: _Gaps | None = None

    def narrowed(self, least: int | None, greatest: int | None) -> LongDecimalAxis:
        """The same type from one unscaled value to another; None leaves that side open."""
        axis = LongDecimalAxis(self.precision, self.scale, least, greatest)
        if axis.least > axis.greatest:
            raise ValueError(f"the domain of {self.sql} is empty or beyond the type")
        return axis

    def encode(self, value: Any) -> int:
        """A value beyond the domain has the coordinate before the first or after the last one."""
        unscaled = self.unscaled(value)
        if unscaled < self.least:
            return FIRST - 1
        edge = self.edge_at(unscaled)
        return LAST + 1 if edge is None else self.labels.of(edge)

    def decode(self, coordinate: int) -> Decimal:
        """A value of the gap that is pleasant to read: the one nearest to zero."""
        low, high = self.numbers(coordinate, coordinate)
        return decimal_of(max(low, 0) if high >= 0 else high, self.scale)

    def encode_array(self, array: pa.Array) -> Coordinates | None:
        words = self._words(array)
        if words is None:
            return None
        gaps, keys = self._present_gaps(), np.empty((len(words) // 2, 2), ">u8")
        keys[:, 0], keys[:, 1] = words[1::2].view(np.uint64) ^ np.uint64(1 << 63), words[0::2].view(np.uint64)
        return gaps.coordinates[np.searchsorted(gaps.edges, keys.reshape(-1).view("S16"), "right")]

    def edge_at(self, unscaled: int) -> str | None:
        """Where the values from an unscaled one on begin; it may be beyond the domain, and beyond the type."""
        if unscaled > self.greatest:
            return None
        return f"{unscaled + _OFFSET:0{_KEY_DIGITS}d}" if unscaled > self.least else ""

    def edge(self, value: Any) -> str | None:
        return self.edge_at(self.unscaled(value))

    def edge_after(self, value: Any) -> str | None:
        return self.edge_at(self.unscaled(value) + 1)

    def after(self, key: str) -> str | None:
        return self.edge_at(self._number(key) + 1)

    def numbers(self, low: int, high: int) -> tuple[int, int]:
        """The least and the greatest value of a closed interval, unscaled."""
        above = self.labels.next_cut(high)
        return self._number(self.labels.cut_at(low)), self.greatest if above is None else self._number(above) - 1

    def ends(self, low: int, high: int) -> tuple[Decimal, Decimal]:
        least, greatest = self.numbers(low, high)
        return decimal_of(least, self.scale), decimal_of(greatest, self.scale)

    def ends_text(self, low: int, high: int) -> tuple[str, str]:
        least, greatest = self.ends(low, high)
        return f"{least:f}", f"{greatest:f}"

    def ends_sql(self, low: int, high: int) -> tuple[str, str]:
        return self.ends_text(low, high)

    def sizes(self, low: Coordinates, high: Coordinates) -> NDArray[np.float64]:
        gaps = self._present_gaps()
        first = np.searchsorted(gaps.coordinates[1:], low, "right") - 1
        last = np.searchsorted(gaps.coordinates[1:], high, "right")
        return (gaps.numbers[last] - gaps.numbers[first]).astype(np.float64)

    def size(self, low: int, high: int) -> float:
        """The number of values."""
        least, greatest = self.numbers(low, high)
        return float(greatest - least + 1)

    def width(self, low: int, high: int) -> float:
        least, greatest = self.numbers(low, high)
        return (greatest - least + 1) / 10**self.scale

    def restore(self, cuts: list[str], labels: list[int]) -> None:
        for cut in cuts[1:]:
            if not (cut.isascii() and cut.isdecimal()) or self.edge_at(self._number(cut)) != cut:
                raise ValueError(f"these are no labels of {self.sql}: a cut is no key of a value")
        super().restore(cuts, labels)

    def _number(self, key: str) -> int:
        return int(key) - _OFFSET if key else self.least

    def _present_gaps(self) -> _Gaps:
        labels, gaps = self.labels, self._gaps
        if gaps is None or gaps.labels is not labels or gaps.size != len(labels):
            cuts, coordinates = labels.to_pairs()
            numbers = [*map(self._number, cuts), self.greatest + 1]
            gaps = self._gaps = _Gaps(
                labels,
                len(cuts),
                np.array([(number + 2**127).to_bytes(16, "big") for number in numbers], "S16"),
                np.array([FIRST - 1, *coordinates, LAST + 1], np.int64),
                np.array(numbers, object),
            )
        return gaps
