"""Verdicts: the answer of a cover engine, with its evidence, and a verifier that trusts no engine.

    Covered(certificate)    these members' union contains the region (`Likely`: so it seems, at a claimed error)
    Uncovered(witness)      this point of the region is in no member
    Unproven(reason)        neither could be shown

`bool(verdict)` is True for Covered only. A false "covered" loses events, a false "uncovered" only costs traffic: for
forwarding Unproven means forward, for access control it means refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from thatch.errors import CallerError, TooManyBoxes
from thatch.region.intervals import Intervals
from thatch.region.recoding import recode_point
from thatch.region.region import BOXES_CAP, Region
from thatch.region.term import Term, hulls
from thatch.space.axis import Coordinates
from thatch.space.labels import LabelCodes
from thatch.space.space import Space

Id = Hashable
Point = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Covered:
    """Every event of the region is in the union of the members named."""

    certificate: tuple[Any, ...]

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Likely(Covered):
    """Covered as far as guessing tells: no guessed point was outside the members named, which may cover less.

    `delta` is the error that the method claims for the trials that were run; nobody guarantees it.
    """

    delta: float
    trials_asked: float  # for the error that was asked for; may be infinite
    trials_run: int


class Uncovered:
    """Some event of the region is in no member. An engine may know so before it has found the point: `witness` then
    completes the search, as long as no member has left in between."""

    __slots__ = ("_complete", "_label_codes", "_space", "_witness")

    def __init__(
        self,
        witness: Sequence[int] | None = None,
        complete: Callable[[], Sequence[int]] | None = None,
        space: Space | None = None,
    ) -> None:
        """With its space, the witness follows when an axis is recoded."""
        assert (witness is None) != (complete is None)
        self._space = space
        self._label_codes: LabelCodes = () if space is None else space.label_codes
        self._witness = None if witness is None else tuple(witness)
        self._complete = complete

    @property
    def witness(self) -> Point:
        """A point of the region outside the union of the members."""
        if self._witness is None:
            assert self._complete is not None
            self._witness = tuple(int(coordinate) for coordinate in self._complete())
            self._complete = None
        if self._space is not None and not self._space.is_current(self._label_codes):
            self._witness, self._label_codes = recode_point(self._witness, self._space, self._label_codes)
        return self._witness

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"Uncovered({self._witness if self._complete is None else '...'})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uncovered) and self.witness == other.witness

    def __hash__(self) -> int:
        return hash(self.witness)


@dataclass(frozen=True, slots=True)
class Unproven:
    """Neither a certificate nor a witness was found: past a budget, inside a rounding margin, or beyond the method."""

    reason: str

    def __bool__(self) -> bool:
        return False


Verdict = Covered | Uncovered | Unproven


def verify(verdict: Verdict, region: Region, regions: Mapping[Any, Region]) -> bool:
    """Whether the evidence of a verdict holds, whichever engine gave it: a certificate is checked by subtraction, a
    witness by containment. Unproven claims nothing. What it shares with engines is the bounding of balls by boxes,
    below."""
    if isinstance(verdict, Covered):
        members = [regions[name] for name in verdict.certificate if name in regions]
        return len(members) == len(verdict.certificate) and is_covered(region, members)
    if isinstance(verdict, Uncovered):
        point = verdict.witness
        if not is_point(point, region.space):
            return False
        return region.contains_point(point) and not any(each.contains_point(point) for each in regions.values())
    return True


def is_covered(region: Region, members: Iterable[Region]) -> bool:
    """Decide by plain subtraction that the union of members contains a region. Slow, simple, no index, no budget but
    the cap on boxes. With balls, False may mean that only the rounding margin or the cubes around them miss it."""
    others = [term for member in members for term in member.terms_in(region.space)]
    return terms_covered(region.terms, others, region.space)


def terms_covered(terms: Sequence[Term], others: Sequence[Term], space: Space) -> bool:
    """The same of a union of terms."""
    return all(_term_covered(term, others, space) for term in terms)


def is_point(point: Sequence[int], space: Space) -> bool:
    """Whether these are coordinates of the space, one for each attribute."""
    attributes = space.attributes
    return len(point) == len(attributes) and all(a.low <= c <= a.last for a, c in zip(attributes, point, strict=True))


def _term_covered(term: Term, others: Sequence[Term], space: Space) -> bool:
    from thatch.region.boxes import intersect, subtract, volumes

    if any(term.is_inside(other) for other in others):
        return True
    low, high = outer(term, space)
    if not len(low):  # balls that do not meet
        return True
    inner = [box for other in others for box in inner_boxes(other, term, space)]
    if not inner:
        return False
    inner_low, inner_high = hulls(inner, space)
    if len(low) == 1:
        # A proof by counting: shares that sum to less than the box leave a point. Both sums are right to within
        # 3d + n roundings of one part in 2^53 (see `volumes`), and are taken apart by twice that.
        clipped = intersect(low, high, inner_low, inner_high)
        slack = 1 + (3 * len(space) + len(clipped[0])) * 2.0**-51
        if volumes(*clipped).sum() * slack < volumes(low, high)[0] < np.inf:
            return False
    done, left, _ = subtract(low, high, inner_low, inner_high, BOXES_CAP)
    if not done:
        raise TooManyBoxes(BOXES_CAP + 1, BOXES_CAP)
    return len(left) == 0


def outer(term: Term, space: Space) -> tuple[Coordinates, Coordinates]:
    """Boxes low[n, d], high[n, d] whose union contains a term; equal to it if it has no balls."""
    if term.box_count() > BOXES_CAP:
        raise TooManyBoxes(term.box_count(), BOXES_CAP)
    low, high = hulls(term.boxes(), space)
    for ball in term.balls:
        for index, bounds in ball.bounds(space).items():
            np.maximum(low[:, index], bounds.low, out=low[:, index])
            np.minimum(high[:, index], bounds.high, out=high[:, index])
    kept = (low <= high).all(axis=1)
    return low[kept], high[kept]


def inner_boxes(term: Term, left: Term | None, space: Space) -> list[Term]:
    """Plain boxes whose union lies in a term, as seen from a term on the left: a ball that surely holds one of the
    left's own balls does not bound it, any other counts as its inscribed cube."""
    sides = dict(term.sides)
    for ball in term.balls:
        if left is not None and any(ball.holds(mine) for mine in left.balls):
            continue
        core = ball.core(space)
        if core is None:
            return []
        for index, intervals in core.items():
            sides[index] = sides[index] & intervals if index in sides else intervals
            if not sides[index].ends:
                return []
    bare = Term(tuple(sorted(sides.items())))
    if bare.box_count() > BOXES_CAP:
        raise TooManyBoxes(bare.box_count(), BOXES_CAP)
    return bare.boxes()


def grown(witness: Sequence[int], region: Region, regions: Iterable[Region]) -> Region:
    """The witness grown, attribute by attribute, to a box of the region that meets no member and cannot be widened.

    Members and the region's own terms with balls are bounded safely: members outward, the region inward.
    """
    space = region.space
    if not is_point(witness, space) or not region.contains_point(witness):
        raise CallerError(f"{tuple(witness)} is no point of the region")
    terms = [term for member in regions for term in member.terms_in(space)]
    obstacles = [outer(term, space) for term in terms]
    low, high = space.low, space.high
    if region.has_balls:  # then stay in the cube inside one term, or at the point
        cells = [box for term in region.terms for box in inner_boxes(term, None, space) if box.contains(witness, space)]
        low, high = hulls(cells[:1], space) if cells else (np.array([witness]), np.array([witness]))
    else:
        obstacles.append((Region.everything(space) - region).boxes())
    box_low, box_high = list(map(int, witness)), list(map(int, witness))
    for axis in range(len(space)):
        least, most = int(low[0, axis]), int(high[0, axis])
        for wall_low, wall_high in obstacles:
            others = [a for a in range(len(space)) if a != axis]
            meets = np.ones(len(wall_low), np.bool_)
            for other in others:
                meets &= (wall_low[:, other] <= box_high[other]) & (wall_high[:, other] >= box_low[other])
            below = wall_high[meets & (wall_high[:, axis] < box_low[axis]), axis]
            above = wall_low[meets & (wall_low[:, axis] > box_high[axis]), axis]
            least = max(least, int(below.max()) + 1) if len(below) else least
            most = min(most, int(above.min()) - 1) if len(above) else most
            if (meets & (wall_low[:, axis] <= box_high[axis]) & (wall_high[:, axis] >= box_low[axis])).any():
                least = most = box_low[axis]  # inside the outward bound of a ball that it misses: stay a point
        box_low[axis], box_high[axis] = least, most
    sides = {i: Intervals.between(*pair) for i, pair in enumerate(zip(box_low, box_high, strict=True))}
    whole = {i for i, a in enumerate(space.attributes) if (box_low[i], box_high[i]) == (a.low, a.last)}
    return Region(space, [Term(tuple((i, side) for i, side in sides.items() if i not in whole))])
