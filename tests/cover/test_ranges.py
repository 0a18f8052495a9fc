"""Tables of ranges with owners against sets of numbers: who holds what, and what nobody holds."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from helpers.strategies import soaked
from thatch.cover.ranges import TAIL, RangeTable
from thatch.space.arrays import Ints

SEED = 20240229


def as_ranges(pairs: list[tuple[int, int]]) -> Ints:
    return np.array(pairs, np.int64).reshape(-1, 2)


def random_ranges(random: Random, size: int) -> list[tuple[int, int]]:
    ends = sorted(random.sample(range(size), 2 * random.randint(0, 4)))
    return list(zip(ends[::2], ends[1::2], strict=True))


def numbers(ranges: Ints) -> list[int]:
    return [number for first, last in ranges.tolist() for number in range(first, last + 1)]


@pytest.mark.long
@pytest.mark.parametrize("size", [40, 400, 4_000])
def test_coming_and_going(size: int) -> None:
    """Through several levels, with holes; after every few steps all questions are asked."""
    for run in range(soaked(1, 3)):
        random = Random(f"{SEED}/{size}/{run}")
        table, owned = RangeTable(), dict[int, list[tuple[int, int]]]()
        for step in range(500):
            if owned and random.random() < (0.3 if step % 250 < 180 else 0.8):
                gone = random.choice(list(owned))
                assert table.remove(gone).tolist() == [list(pair) for pair in owned.pop(gone)]
            else:
                owned[step] = random_ranges(random, size)
                table.add(step, as_ranges(owned[step]))
            if step % 9:
                continue
            table.check_invariants()
            assert len(table) == sum(map(len, owned.values()))
            held: dict[int, set[int]] = {}
            for owner, ranges in owned.items():
                for number in numbers(as_ranges(ranges)):
                    held.setdefault(number, set()).add(owner)
            assert numbers(table.merged()) == sorted(held)
            for _ in range(4):
                first = random.randrange(size)
                last = min(size - 1, first + random.randrange(30))
                missing = [number for number in range(first, last + 1) if number not in held]
                assert table.holders(first) == sorted(held.get(first, ()))
                assert table.owners(as_ranges([(first, last)])) == sorted(
                    {o for n in range(first, last + 1) for o in held.get(n, ())}
                )
                owners, gap = table.cover(as_ranges([(first, last)]))
                assert gap == (missing[0] if missing else -1)
                assert missing or {n for o in owners for n in numbers(as_ranges(owned[o]))} >= set(
                    range(first, last + 1)
                )
                assert numbers(table.uncovered(as_ranges([(first, last)]))) == missing


def test_a_cover_has_the_fewest_ranges() -> None:
    """Greedy leaps, against the shortest way over all ranges."""
    random = Random(SEED)
    for _ in range(200):
        table, ranges = RangeTable(), list[tuple[int, int]]()
        for owner in range(12):
            first = random.randrange(30)
            ranges.append((first, min(29, first + random.randrange(12))))
            table.add(owner, as_ranges(ranges[-1:]))
        owners, gap = table.cover(as_ranges([(5, 24)]))
        least: dict[int, int] = {5: 0}  # how many ranges it takes to have all numbers before one
        for number in range(5, 25):
            for first, last in ranges:
                if number in least and first <= number <= last:
                    end = min(last + 1, 25)
                    for reached in range(number + 1, end + 1):
                        least[reached] = min(least.get(reached, 99), least[number] + 1)
        assert (gap == -1) == (25 in least)
        if gap == -1:
            assert len(owners) == least[25]


def test_merging_over_gaps() -> None:
    table = RangeTable()
    table.add(1, as_ranges([(0, 3), (5, 6), (20, 20)]))
    table.add(2, as_ranges([(4, 4), (9, 12)]))
    assert table.merged().tolist() == [[0, 6], [9, 12], [20, 20]]
    assert table.merged(gap=2).tolist() == [[0, 12], [20, 20]]
    assert table.merged(gap=7).tolist() == [[0, 20]]
    assert RangeTable().merged().tolist() == []


def test_removing_a_merged_range_harms_nobody() -> None:
    """MICS stores merged ranges without owners, and removes a subscription by cutting its ranges out: cells that others
    need go too (ERRATA). That way, compared with ours."""
    random, harmed = Random(SEED), 0
    for _ in range(60):
        owned = {owner: random_ranges(random, 60) for owner in range(8)}
        table = RangeTable()
        for owner, ranges in owned.items():
            table.add(owner, as_ranges(ranges))
        naive = set(numbers(table.merged()))
        gone = random.randrange(8)
        naive -= set(numbers(as_ranges(owned[gone])))
        table.remove(gone)
        needed = {n for owner, ranges in owned.items() if owner != gone for n in numbers(as_ranges(ranges))}
        assert set(numbers(table.merged())) == needed
        harmed += not needed <= naive
    assert harmed > 30


def test_falling_sizes_make_few_levels() -> None:
    """Each owner has fewer ranges than the one before, and more than a tail holds."""
    table = RangeTable()
    for owner, count in enumerate(range(400, TAIL, -1)):
        first = np.arange(count) * 10 + owner * 5_000
        table.add(owner, np.stack((first, first + 3), axis=1))
    table.check_invariants()
    assert table.holders(5_003) == [1] and table.holders(5_004) == []


def test_many_ranges_and_far_numbers() -> None:
    table, count = RangeTable(), 20 * TAIL
    for owner in range(count):
        table.add(owner, as_ranges([(owner * 3, owner * 3 + 1), (2**61 + owner, 2**62 - 1)]))
    assert table.holders(2**62 - 1) == list(range(count))
    assert table.cover(as_ranges([(2**61, 2**62 - 1)])) == ([0], -1)
    assert table.cover(as_ranges([(0, 4)])) == ([], 2)
    for owner in range(0, count, 2):
        table.remove(owner)
    table.check_invariants()
    assert table.cover(as_ranges([(2**61, 2**62 - 1)])) == ([], 2**61)
    assert table.holders(3) == [1] and table.holders(0) == []
