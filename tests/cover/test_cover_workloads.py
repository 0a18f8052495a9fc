"""The benchmarks' own workloads and real rule sets: decided, verified, and cheap to leave."""

from __future__ import annotations

import random
from functools import cache

import pytest
from benchmarks.classbench import VENDORED, redundant
from benchmarks.cover import linear_scan, space_of, unsubscribed, workloads

from thatch import covers
from thatch.cover import Covered, ExactEngine, Uncovered, Unproven, region_of_box, verify

built = cache(workloads)


@pytest.mark.soak(*list(workloads(scale=0.001))[1::2])
@pytest.mark.parametrize("name", workloads(scale=0.001))
def test_every_workload_is_decided(name: str) -> None:
    space, (low, high) = built(1.0)[name]
    ids = list(range(len(low)))
    engine = ExactEngine(space)
    verdicts = engine.add_many(ids, (low, high))
    assert not any(isinstance(verdict, Unproven) for verdict in verdicts)
    covered = [number for number in ids if isinstance(verdicts[number], Covered)]
    assert len(covered) >= linear_scan((low, high))
    regions = {number: region_of_box(low[number].tolist(), high[number].tolist(), space) for number in ids}
    for number in random.Random(2).sample(covered, 40):
        assert verify(verdicts[number], regions[number], regions)
    uncovered = [number for number in ids if not isinstance(verdicts[number], Covered)]
    for number in random.Random(3).sample(uncovered, 10):
        earlier = {each: regions[each] for each in uncovered if each < number}
        assert verify(verdicts[number], regions[number], earlier)
    if len(space) == 5:
        assert engine.nbytes < 4_000_000


@pytest.mark.parametrize("name", ["acl1_1k", "fw1_1k"])
def test_redundant_rules_of_real_filters(name: str) -> None:
    found = redundant(VENDORED / name)
    expected = {"acl1_1k": (941, 22, 22), "fw1_1k": (856, 9, 13)}[name]
    assert (found["rules"], found["by one"], found["by union"]) == expected
    assert found["certificates verified"] == found["by union"] and found["unproven"] == 0


@pytest.mark.long
@pytest.mark.soak("4")
@pytest.mark.parametrize("attributes", [3, 4])
def test_leaving_rechecks_fifty_times_fewer_and_promotes_the_same(attributes: int) -> None:
    assert unsubscribed(attributes, count=10_000, leaving=1_000)["times fewer"] >= 50


def test_covers_as_in_the_readme() -> None:
    space = space_of(1, 100)
    assert covers(["x0 < 20", "x0 >= 20"], "x0 < 50", space) == Covered((0, 1))
    verdict = covers({"low": "x0 < 20"}, "x0 < 50", space)
    assert isinstance(verdict, Uncovered)
    (x,) = verdict.witness
    assert x in range(20, 50)
