"""Regions and the labels of attributes as bytes, and back: what snapshots, images and Spark's workers exchange."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from thatch.errors import SnapshotError
from thatch.region.ball import Ball
from thatch.region.intervals import Intervals
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.labels import LabelCodes
from thatch.space.space import Space


class Regions(msgspec.Struct, forbid_unknown_fields=True):
    """Regions one after another, their terms one after another, and so on down: each `_at` tells where one begins."""

    terms_at: bytes  # int64 [regions + 1]
    sides_at: bytes  # int64 [terms + 1]
    side_axis: bytes  # int64 [sides]
    ends_at: bytes  # int64 [sides + 1]
    ends: bytes  # int64
    balls_at: bytes  # int64 [terms + 1]
    ball_axes_at: bytes  # int64 [balls + 1]
    ball_axes: bytes  # int64
    centres: bytes  # float64, as long as ball_axes
    radii: bytes  # float64 [balls]


PackedLabels = list[tuple[list[str], bytes]]  # of each labelled attribute: cuts, and their labels as int64


def pack_labels(codes: LabelCodes) -> PackedLabels:
    """What labels mean, as plain values."""
    pairs = [labels.to_pairs() for labels in codes]
    return [(cuts, pack_ints(numbers)) for cuts, numbers in pairs]


def restore_labels(space: Space, packed: PackedLabels) -> None:
    """Give the labelled attributes of a space that nobody has used yet the labels that `pack_labels` wrote. Labels that
    do not fit are a ValueError."""
    for axis, (cuts, numbers) in zip(space.labelled_axes, packed, strict=True):
        axis.restore(cuts, unpack_ints(numbers).tolist())


def pack_regions(regions: Sequence[Sequence[Term]]) -> Regions:
    terms_at, sides_at, ends_at, balls_at, ball_axes_at = [0], [0], [0], [0], [0]
    side_axis: list[int] = []
    ends: list[Any] = [np.zeros(0, np.int64)]
    balls: list[Ball] = []
    for terms in regions:
        for term in terms:
            for axis, side in term.sides:
                side_axis.append(axis)
                ends.append(side.to_numpy())
                ends_at.append(ends_at[-1] + len(side.ends))
            sides_at.append(len(side_axis))
            balls += term.balls
            balls_at.append(len(balls))
        terms_at.append(len(sides_at) - 1)
    for ball in balls:
        ball_axes_at.append(ball_axes_at[-1] + len(ball.attributes))
    return Regions(
        pack_ints(terms_at), pack_ints(sides_at), pack_ints(side_axis), pack_ints(ends_at),
        pack_ints(np.concatenate(ends)),
        pack_ints(balls_at), pack_ints(ball_axes_at), pack_ints([axis for ball in balls for axis in ball.attributes]),
        np.array([each for ball in balls for each in ball.centre], "<f8").tobytes(),
        np.array([ball.radius for ball in balls], "<f8").tobytes(),
    )  # fmt: skip


def unpack_regions(packed: Regions, space: Space) -> list[Region]:
    try:
        return _unpacked(packed, space)
    except (IndexError, ValueError) as error:
        raise SnapshotError(f"the regions of a snapshot do not fit together: {error}") from None


def _unpacked(packed: Regions, space: Space) -> list[Region]:
    axis_of, ends = unpack_ints(packed.side_axis), unpack_ints(packed.ends)
    ball_axis, centres = unpack_ints(packed.ball_axes), np.frombuffer(packed.centres, "<f8")
    radii = np.frombuffer(packed.radii, "<f8")
    side_runs, ball_runs = unpack_runs(packed.ends_at, len(ends)), unpack_runs(packed.ball_axes_at, len(ball_axis))
    term_sides, term_balls = unpack_runs(packed.sides_at, len(axis_of)), unpack_runs(packed.balls_at, len(radii))
    _check_sides(axis_of, np.array(side_runs, np.int64), ends, np.array(term_sides, np.int64), space)
    _check_balls(ball_axis, centres, radii, space)
    all_ends, of_array = array("q", ends.tobytes()), Intervals.of_array
    sides = [(axis, of_array(all_ends[a:b])) for axis, (a, b) in zip(axis_of.tolist(), side_runs, strict=True)]
    axes, middles = ball_axis.tolist(), centres.tolist()
    balls = [
        Ball(tuple(axes[a:b]), tuple(middles[a:b]), radius)
        for radius, (a, b) in zip(radii.tolist(), ball_runs, strict=True)
    ]
    terms = [Term(tuple(sides[a:b]), tuple(balls[c:d])) for (a, b), (c, d) in zip(term_sides, term_balls, strict=True)]
    label_codes = space.label_codes
    regions = unpack_runs(packed.terms_at, len(terms))
    return [Region.restored(space, tuple(terms[a:b]), label_codes) for a, b in regions]


def unpack_runs(starts: bytes, size: int) -> list[tuple[int, int]]:
    """From and to of each run, which together are all there is."""
    at = unpack_ints(starts)
    if not len(at) or at[0] != 0 or at[-1] != size or (np.diff(at) < 0).any():
        raise ValueError("runs must follow one another from the first to the last")
    return list(pairwise(at.tolist()))


def _check_sides(axis: Any, runs: Any, ends: Any, terms: Any, space: Space) -> None:
    """Attributes exist and ascend within a term; ends are pairs that ascend within the axis."""
    runs, terms = runs.reshape(-1, 2), terms.reshape(-1, 2)
    if len(axis) and not (axis.min() >= 0 and axis.max() < len(space)):
        raise ValueError("a side of no attribute")
    rising = np.diff(axis, prepend=-1) > 0
    rising[terms[terms[:, 0] < terms[:, 1], 0]] = True  # where a term begins
    if not rising.all():
        raise ValueError("the sides of a term do not ascend")
    sizes = runs[:, 1] - runs[:, 0]
    if (sizes < 2).any() or (sizes % 2).any():
        raise ValueError("a side without a pair of ends")
    within = (ends >= np.repeat(space.low[0][axis], sizes)) & (ends <= np.repeat(space.high[0][axis], sizes))
    first = np.zeros(len(ends), np.bool_)
    first[runs[:, 0]] = True
    before = np.concatenate((ends[:1], ends[:-1]))
    is_high = (np.arange(len(ends)) - np.repeat(runs[:, 0], sizes)) % 2 == 1
    order = first | (ends > before) | (is_high & (ends == before))
    if not (within.all() and order.all()):
        raise ValueError("the ends of a side do not ascend within its axis")


def _check_balls(axis: Any, centres: Any, radii: Any, space: Space) -> None:
    numbers = [attribute.axis.is_number for attribute in space.attributes]
    if len(axis) != len(centres) or not all(0 <= each < len(numbers) and numbers[each] for each in axis.tolist()):
        raise ValueError("a ball of no attribute that is a number")
    if not (radii >= 0).all():
        raise ValueError("a ball without a radius")


def pack_ints(numbers: Sequence[int] | NDArray[np.int64]) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def unpack_ints(data: bytes) -> NDArray[np.int64]:
    return np.frombuffer(data, "<i8").astype(np.int64)
