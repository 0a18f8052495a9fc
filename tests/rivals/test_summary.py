"""Summaries of a link: never an event missed, and what attributes on their own cannot tell apart."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from helpers.cover_oracles import MIXED_SPACES, Cells, clause_pool, ints, random_boxes, recode, region_of
from thatch import Space
from thatch.errors import CallerError, UnknownSubscription
from thatch.rivals.summary import LinkSummary

SEED = 20240229


@pytest.mark.parametrize("text", MIXED_SPACES)
def test_nothing_that_is_wanted_is_missed(text: str) -> None:
    """Coming and going; and exactly what each attribute on its own allows."""
    random = Random(f"{SEED}/{text}")
    space, pool = clause_pool(text, 30, SEED)
    cells = Cells(space, pool)
    points = list(cells.points())
    summary, held = LinkSummary(space), dict[int, int]()
    for step in range(60):
        if held and random.random() < 0.45:
            gone = random.choice(list(held))
            summary.discard(gone)
            del held[gone]
        else:
            held[step] = random.randrange(len(pool))
            summary.add(step, pool[held[step]])
        masks = [cells.mask(pool[each]) for each in held.values()]
        wanted = np.any(masks, axis=0) if masks else np.zeros(cells.shape, np.bool_)
        may = summary.may_want(points).reshape(cells.shape)
        assert not (wanted & ~may).any()
        expected = np.ones(cells.shape, np.bool_) if masks else wanted
        for axis in range(len(space)):
            others = tuple(other for other in range(len(space)) if other != axis)
            line = wanted.any(axis=others) if others else wanted
            expected = expected & line.reshape([-1 if axis == other else 1 for other in range(len(space))])
        assert (may == expected).all()
        assert len(summary) == len(held)


def test_bytes_against_false_positives() -> None:
    """Less than the boxes take, and most of what nobody wants is let through."""
    space = ints(1000, 1000)
    boxes = random_boxes(Random(SEED), space, 60, 0.05)
    summary = LinkSummary(space)
    for number, box in enumerate(boxes):
        summary.add(number, region_of(space, *box))
    points = np.random.default_rng(SEED).integers(0, 1000, (20_000, 2))
    low, high = np.array([box[0] for box in boxes]), np.array([box[1] for box in boxes])
    wanted = np.any(np.all((points[:, None] >= low) & (points[:, None] <= high), axis=2), axis=1)
    may = summary.may_want(points)
    assert (may | ~wanted).all() and may.sum() > 3 * wanted.sum()
    assert summary.nbytes < 60 * 4 * 8


def test_balls_strings_and_null() -> None:
    space = Space.parse("x double -100..100, name string")
    summary = LinkSummary(space)
    summary.add("ball", space.where("within(2, x, 5)"))
    summary.add("name", space.where("x IS NULL AND name < 'c'"))
    low, high = summary.intervals("x")[1]
    assert summary.intervals("x")[0] == (None, None) and low < 3.0 + 1e-9 and high > 7.0 - 1e-9
    before = summary.nbytes
    recode(space)
    summary.add("more", space.where("name = 'd' AND x = 50"))
    assert summary.nbytes > before
    inside = space.encode({"x": 6.0, "name": "zz"}), space.encode({"x": 50.0, "name": "d"})
    assert summary.may_want(np.array(inside)).all()
    assert not summary.may_want(np.array([space.encode({"x": 20.0, "name": "a"})])).any()


def test_nobody_and_errors() -> None:
    space = ints(10)
    summary = LinkSummary(space)
    assert summary.may_want([[3]]).tolist() == [False] and summary.nbytes == 0
    summary.add("a", space.where("a0 < 0"))
    assert summary.may_want([[3]]).tolist() == [False]
    with pytest.raises(CallerError, match="in the summary already"):
        summary.add("a", space.where("a0 < 5"))
    with pytest.raises(UnknownSubscription):
        summary.discard("b")
    with pytest.raises(CallerError, match="no attribute 'z'"):
        summary.intervals("z")
