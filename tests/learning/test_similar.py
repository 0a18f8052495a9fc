"""Whether one subscription is inside another, and phi and similar pairs, compared with brute force."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa

from helpers.learning import clauses_to_learn, events_to_learn, space_to_learn
from thatch.cover.box_rows import boxed_regions
from thatch.cover.verdict import is_covered
from thatch.learning.similar import Wanted, nested, phi

ODD = {
    "ball": "within(5, x, 20, y, 20)",
    "wide ball": "within(9, x, 20, y, 20) AND y < 90",
    "several": "y IN (3, 5, 9, 11) AND x < 50",
    "fewer": "y IN (3, 9) AND x < 40",
    "split": "y IN (3, 9) AND x < 20 OR y IN (3, 9) AND x BETWEEN 20 AND 40",
    "words": "s IN ('ash', 'oak', 'yew')",
    "word": "s = 'oak' AND x > 3",
}


def test_one_inside_another() -> None:
    space = space_to_learn()
    clauses = clauses_to_learn(Random(4)) | ODD
    regions = [each for clause in clauses.values() if not (each := space.where(clause)).is_empty]
    boxed = boxed_regions(pa.array(range(len(regions))), regions, space)
    assert boxed.odd and (np.diff(boxed.starts) > 1).any()
    one, other = (each.ravel() for each in np.indices((len(regions), len(regions))))
    inside, around = nested(boxed, one, boxed, other, space)
    wanted = [is_covered(regions[a], [regions[b]]) for a, b in zip(one, other, strict=True)]
    assert inside.tolist() == wanted and around.reshape(len(regions), -1).T.ravel().tolist() == wanted
    assert sum(wanted) > len(regions) + 20


def test_phi_in_pieces() -> None:
    """However few pairs are compared at once, phi is the same."""
    space, dice = space_to_learn(), Random(4)
    events = events_to_learn(dice, 300)
    regions = [space.where(clause) for clause in (clauses_to_learn(dice) | ODD).values()]
    held = np.array([region.contains_batch(events) for region in regions])
    boxed = boxed_regions(pa.array(range(len(regions))), regions, space)
    wanted = Wanted.of(*np.nonzero(held.T))
    whole = phi(wanted, boxed, space)
    assert whole.subscription.tolist() == np.flatnonzero(held.any(axis=1)).tolist()
    few = phi(wanted, boxed, space, at_once=7)
    for one, other in zip(whole, few, strict=True):
        assert one.tolist() == other.tolist()
    assert set(whole.root.tolist()) == {True, False}
