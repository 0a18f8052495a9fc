"""How alike subscriptions are, by the events that they want: phi of each, and pairs.

From congestion (III-B), on a sample of events. When S is withdrawn, the subscriptions that only S held back are
forwarded in its place: NRS(S), its new roots. INC(S) are those that meet S, and neither cover it nor are covered by it.
P(.) are the events that somebody of them wants.

    P*(S) = P(NRS(S)) ∪ (P(S) ∩ P(INC(S)))          phi(S) = |P*(S)| / |P(S)|

A root is covered by no other one. Whoever meets a root is either covered by it, and then a new root, or inside one, or
inside another root that meets S; or it is in INC. So phi of a root is the share of its events that somebody else wants,
too. Who is no root has no new roots, and its phi counts INC alone. Two that are equal are both taken for roots, each
the successor of the other.

Whether one covers another is decided exactly, by their regions. Only those are asked that want an event of the sample
in common: who covers S wants all events of S, so those that want the event of S that fewest want.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from thatch.cover.box_rows import Boxed
from thatch.cover.verdict import is_covered
from thatch.errors import TooManyBoxes
from thatch.learning.runs import runs, within_runs
from thatch.region.region import Region
from thatch.space.arrays import Floats, Ints
from thatch.space.space import Space

ALIKE = 200  # subscriptions, those that want most, of which all pairs are compared
AT_ONCE = 1 << 18  # pairs that are compared at once


def nested(ones: Boxed, rows: Ints, others: Boxed, other_rows: Ints, space: Space) -> tuple[Any, Any]:
    """Of pairs of subscriptions by their rows: whether the one is inside the other, and whether it is around it."""
    sizes, other_sizes = np.diff(ones.starts)[rows], np.diff(others.starts)[other_rows]
    plain = (sizes == 1) & (other_sizes == 1)
    plain &= ~np.isin(rows, list(ones.odd)) & ~np.isin(other_rows, list(others.odd))
    inside, around = np.zeros(len(plain), np.bool_), np.zeros(len(plain), np.bool_)
    one, other = ones.starts[rows[plain]], others.starts[other_rows[plain]]
    inside[plain] = ((ones.low[one] >= others.low[other]) & (ones.high[one] <= others.high[other])).all(axis=1)
    around[plain] = ((ones.low[one] <= others.low[other]) & (ones.high[one] >= others.high[other])).all(axis=1)
    places = np.flatnonzero(~plain)
    may_be_inside = _may_be_inside(ones, rows[places], others, other_rows[places])
    may_be_around = _may_be_inside(others, other_rows[places], ones, rows[places])
    asked = may_be_inside | may_be_around
    mine = {row: ones.region(row, space) for row in set(rows[places[asked]].tolist())}
    theirs = {row: others.region(row, space) for row in set(other_rows[places[asked]].tolist())}
    for place, in_it, around_it in zip(places.tolist(), may_be_inside.tolist(), may_be_around.tolist(), strict=True):
        row, other_row = int(rows[place]), int(other_rows[place])
        inside[place] = in_it and _is_inside(mine[row], theirs[other_row])
        around[place] = around_it and _is_inside(theirs[other_row], mine[row])
    return inside, around


def _may_be_inside(ones: Boxed, rows: Ints, others: Boxed, other_rows: Ints) -> Any:
    """False where two points of the one are in no box of the other: then it is not inside. Boxes around an odd one say
    nothing about its points."""
    found = np.ones(len(rows), np.bool_)
    points = ones.low[ones.starts[rows]], ones.high[ones.starts[rows + 1] - 1]
    begins, sizes = others.starts[other_rows], np.diff(others.starts)[other_rows]
    for start, stop in runs(sizes, AT_ONCE):
        own = sizes[start:stop]
        boxes = np.repeat(begins[start:stop], own) + within_runs(own)
        for point in points:
            each = np.repeat(point[start:stop], own, axis=0)
            held = ((others.low[boxes] <= each) & (each <= others.high[boxes])).all(axis=1)
            found[start:stop] &= np.logical_or.reduceat(held, np.cumsum(own) - own)
    return found | np.isin(rows, list(ones.odd))


def _is_inside(one: Region, other: Region) -> bool:
    try:
        return is_covered(one, [other])
    except TooManyBoxes:
        return False


class Wanted(NamedTuple):
    """Pairs of an event and a subscription that wants it, by their numbers, ascending by subscription."""

    subscription: Ints
    event: Ints

    @classmethod
    def of(cls, events: Ints, subscriptions: Ints) -> Wanted:
        order = np.lexsort((events, subscriptions))
        return cls(subscriptions[order], events[order])


class Phi(NamedTuple):
    """Of subscriptions that want an event of the sample."""

    subscription: Ints
    events: Ints
    root: Any
    phi: Floats


def phi(wanted: Wanted, boxed: Boxed, space: Space, at_once: int = AT_ONCE) -> Phi:
    """phi of subscriptions, which are rows of `boxed`. So many pairs are compared at once."""
    known, begins, events = np.unique(wanted.subscription, return_index=True, return_counts=True)
    if not len(known):
        return Phi(known, events, np.zeros(0, np.bool_), np.zeros(0))
    owner = np.repeat(np.arange(len(known)), events)  # of each pair, the place of its subscription
    crowd = np.bincount(wanted.event)[wanted.event]
    above, within = np.zeros(len(known), np.int64), np.zeros(len(known), np.int64)
    below = np.zeros(len(owner), np.int64)  # how many that the subscription strictly covers want the event
    size = int(wanted.event.max()) + 1
    keys = owner * size + wanted.event
    for inner, outer, is_equal in _covering(wanted, begins, owner, crowd, boxed, space, at_once):
        np.add.at(within, inner, 1)
        strict = ~is_equal
        np.add.at(above, inner[strict], 1)
        for one, other in zip(inner[strict].tolist(), outer[strict].tolist(), strict=True):
            own = wanted.event[begins[one] : begins[one] + events[one]]
            below[np.searchsorted(keys, other * size + own)] += 1
    is_root = above == 0
    shared = np.where(is_root[owner], crowd > 1, crowd - 1 - within[owner] - below > 0)
    return Phi(known, events, is_root, np.add.reduceat(shared, begins, dtype=np.int64) / events)


def _covering(
    wanted: Wanted, begins: Ints, owner: Ints, crowd: Ints, boxed: Boxed, space: Space, at_once: int
) -> Iterator[tuple[Ints, Ints, Any]]:
    """Pairs of a subscription and one that covers it, by place, and whether they are equal."""
    order = np.lexsort((owner, wanted.event))
    by_event, first = owner[order], np.searchsorted(wanted.event[order], np.arange(int(wanted.event.max()) + 2))
    rarest = np.array([start + np.argmin(own) for start, own in zip(begins, np.split(crowd, begins[1:]), strict=True)])
    sizes = crowd[rarest]
    starts = first[wanted.event[rarest]]
    rows = wanted.subscription[begins]
    for start, stop in runs(sizes, at_once):
        own = sizes[start:stop]
        inner = np.repeat(np.arange(start, stop), own)
        outer = by_event[np.repeat(starts[start:stop], own) + within_runs(own)]
        apart = inner != outer
        inner, outer = inner[apart], outer[apart]
        inside, around = nested(boxed, rows[inner], boxed, rows[outer], space)
        yield inner[inside], outer[inside], around[inside]


class SimilarPair(NamedTuple):
    one: Any
    other: Any
    both: int
    either: int
    similarity: float


def similar_pairs(wanted: Wanted, ids: Sequence[Any]) -> list[SimilarPair]:
    """Of the subscriptions that want most events of the sample, ties by id: pairs that want an event in common, the
    most similar ones first. `ids` are those of all subscriptions."""
    known, counts = np.unique(wanted.subscription, return_counts=True)
    most = sorted(zip(known.tolist(), counts.tolist(), strict=True), key=lambda row: (-row[1], ids[row[0]]))[:ALIKE]
    chosen = sorted((row for row, _ in most), key=lambda row: ids[row])
    place = np.full(len(ids), -1)
    place[chosen] = np.arange(len(chosen))
    kept = place[wanted.subscription] >= 0
    held = np.zeros((len(chosen), int(wanted.event.max(initial=-1)) + 1), np.float32)  # exact up to 2^24 events
    held[place[wanted.subscription[kept]], wanted.event[kept]] = 1
    both = np.rint(held @ held.T).astype(np.int64)
    sizes = np.diag(both)
    found = []
    for at, to in zip(*np.nonzero(np.triu(both, 1)), strict=True):
        common, either = int(both[at, to]), int(sizes[at] + sizes[to] - both[at, to])
        found.append(SimilarPair(ids[chosen[at]], ids[chosen[to]], common, either, common / either))
    return sorted(found, key=lambda row: (-row.similarity, row.one, row.other))
