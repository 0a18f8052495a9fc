"""The unit of the cover benchmark: a compiled linear scan for one box that contains another."""

from __future__ import annotations

from thatch.boxes import Ints
from thatch.jit import kernel


@kernel
def scan(low: Ints, high: Ints, count: int, inner_low: Ints, inner_high: Ints) -> int:
    """The first of the boxes that contains a box, or -1."""
    for box in range(count):
        covers = True
        for axis in range(len(inner_low)):
            if low[box, axis] > inner_low[axis] or high[box, axis] < inner_high[axis]:
                covers = False
                break
        if covers:
            return box
    return -1


@kernel
def scan_and_add(low: Ints, high: Ints, kept_low: Ints, kept_high: Ints, covered_by: Ints) -> int:
    """For each box in turn the first kept one that contains it; a box that none contains is kept. How many are."""
    count = 0
    for box in range(len(low)):
        covered_by[box] = scan(kept_low, kept_high, count, low[box], high[box])
        if covered_by[box] < 0:
            for axis in range(low.shape[1]):
                kept_low[count, axis], kept_high[count, axis] = low[box, axis], high[box, axis]
            count += 1
    return count
