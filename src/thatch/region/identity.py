"""A key that equal regions have, whatever labels their spaces have given out."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.space.attribute import Attribute
from thatch.space.axis import LabelledAxis


def region_key(region: Region) -> bytes:
    """The same for two regions of equal spaces if they have the same terms, else different.

    >>> from thatch import Space
    >>> one, other = (Space.parse("symbol string, price double") for _ in range(2))
    >>> _ = other.where("symbol > 'B'")
    >>> keys = {region_key(space.where("symbol = 'C' AND price < 5")) for space in (one, other)}
    >>> len(keys), region_key(one.where("symbol = 'D' AND price < 5")) in keys
    (1, False)
    """
    attributes = region.space.attributes
    terms = [
        ([(index, _ends(sides, attributes[index])) for index, sides in term.sides], [repr(ball) for ball in term.balls])
        for term in region.terms
    ]
    return hashlib.blake2b(msgspec.msgpack.encode(terms), digest_size=16).digest()


def _ends(sides: Intervals, attribute: Attribute) -> Any:
    """The ends of intervals; of labels the cuts before and after, since labels depend on what a space has met."""
    ends = sides.to_numpy()
    if not isinstance(attribute.axis, LabelledAxis):
        return ends.tobytes()
    axis = attribute.axis
    cuts: list[str | None] = []
    for low, high in ends.reshape(-1, 2).tolist():
        cuts.append(None if low == attribute.null else axis.labels.cut_at(low))
        cuts.append(None if high == attribute.null else axis.labels.next_cut(high))
        cuts.append("" if high == attribute.null else None)
    return cuts
