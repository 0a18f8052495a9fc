"""Coordinates that follow when an axis is recoded: old labels are read as cuts and labelled again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thatch.region.intervals import Intervals
from thatch.region.term import Term
from thatch.space.axis import LabelledAxis
from thatch.space.labels import LAST, LabelCodes, Labels
from thatch.space.space import Space


def recode_point(point: Sequence[int], space: Space, old: LabelCodes) -> tuple[tuple[int, ...], LabelCodes]:
    """A point that was found under older label codes, under the present ones, and these."""
    labels = dict(zip(space.labelled_indices, old, strict=True))

    def recoded() -> tuple[int, ...]:
        moved = []
        for index, coordinate in enumerate(point):
            axis = space.attributes[index].axis
            if isinstance(axis, LabelledAxis) and coordinate >= axis.first:
                coordinate = axis.labels.of(labels[index].cut_at(coordinate))
            moved.append(coordinate)
        return tuple(moved)

    return space.stable(recoded)


def recode_terms(terms: Sequence[Term], space: Space, old: LabelCodes) -> tuple[tuple[Term, ...], LabelCodes]:
    """Terms under the present label codes of a space, and these codes. The terms are of this space under older codes,
    or of an equal space."""
    labels_of = dict(zip(space.labelled_indices, old, strict=True))
    return space.stable(lambda: tuple(_recode_term(term, space, labels_of) for term in terms))


def _recode_term(term: Term, space: Space, labels_of: Mapping[int, Labels]) -> Term:
    sides = []
    for index, intervals in term.sides:
        axis = space.attributes[index].axis
        labels = labels_of.get(index)
        if labels is not None and isinstance(axis, LabelledAxis):
            ends = []
            for low, high in intervals:
                above = labels.next_cut(high) if high >= axis.first else ""
                ends.append(low if low < axis.first else axis.cut(labels.cut_at(low)))
                ends.append(LAST if above is None else axis.cut(above) - 1)
            intervals = Intervals(ends)
        sides.append((index, intervals))
    return Term(tuple(sides), term.balls)
