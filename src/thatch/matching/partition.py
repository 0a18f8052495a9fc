"""How boxes are divided into blocks of 64: recursively, by a surface-area heuristic, as ray tracers build their trees.

A split is judged by the sum, over both sides, of the volume of the box around the side times its number of blocks:
about the number of blocks that a random point has to look into. 32 sampled boxes stand for all. Candidates for a cut
are, at each attribute, the boxes' middles and their widths (small from large; bounded from unbounded, which gathers
boxes that constrain the same attributes), at 7 thresholds each. The fourth root of a width makes the bins: widths
are skewed. Volumes are taken relative to the box around the sample, so an outlier spoils one split and not all.

Down to 4,096 boxes the cut is at the threshold itself; below, at the nearest multiple of 64, so that blocks are full.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

import numpy as np

from thatch.jit import kernel
from thatch.space.arrays import Ints

BLOCK = 64
SAMPLE = 32
BINS = 8
CUT_FREELY = 64 * BLOCK
WIDTHS_MIN = 256  # boxes; fewer are cut by their middles only, which halves the work and changed no measured tree
NARROW = 0.5  # a side below this share of the whole tells where a box is
THIN = 1e-4  # how wide a flat side counts, so that volumes stay above zero


@kernel
def key(low: float, high: float, by_width: bool) -> float:
    return np.float64(high) - np.float64(low) if by_width else np.float64(low) + np.float64(high)


@kernel
def is_narrow(low: float, high: float) -> bool:
    return bool(np.float64(high) - np.float64(low) < NARROW)


@kernel
def best_cut(
    rows: Any, start: int, stop: int, sample: Any, bins: Any, counts: Any, costs: Any
) -> tuple[int, bool, float, float, float, float]:
    """The attribute (-1 if all boxes are alike), whether by width, the threshold; of the sample, the share below it and
    the least and the greatest key."""
    d = rows.shape[1] // 2
    n = min(stop - start, SAMPLE)
    step = (stop - start) / n
    for each in range(n):
        row = start + int(each * step)
        for column in range(2 * d):
            sample[each, column] = rows[row, column]
    scale = bins[BINS]  # one over the sides of the box around the sample
    for axis in range(d):
        first, last = np.inf, -np.inf
        for each in range(n):
            first, last = min(first, sample[each, 2 * axis]), max(last, sample[each, 2 * axis + 1])
        scale[axis] = 1.0 / (last - first) if last > first else 0.0
    blocks = (stop - start) / (BLOCK * n)
    best_cost, best_axis, best_by_width, best_at = np.inf, -1, False, 0.0
    best_share, best_low, best_high = 0.0, 0.0, 0.0
    for candidate in range(2 * d if stop - start > WIDTHS_MIN else d):
        axis, by_width = candidate % d, candidate >= d
        low, high = np.inf, -np.inf
        for each in range(n):
            value = key(sample[each, 2 * axis], sample[each, 2 * axis + 1], by_width)
            low, high = min(low, value), max(high, value)
        if not high > low:
            continue
        if by_width:
            low, high = sqrt(sqrt(max(low, 0.0))), sqrt(sqrt(high))
            if not high > low:
                continue
        factor = BINS / (high - low)
        for place in range(BINS):
            counts[place] = 0
            for each in range(d):
                bins[place, 2 * each], bins[place, 2 * each + 1] = np.inf, -np.inf
        for each in range(n):
            value = key(sample[each, 2 * axis], sample[each, 2 * axis + 1], by_width)
            if by_width:
                value = sqrt(sqrt(max(value, 0.0)))
            place = min(int((value - low) * factor), BINS - 1)
            counts[place] += 1
            for side in range(d):
                bins[place, 2 * side] = min(bins[place, 2 * side], sample[each, 2 * side])
                bins[place, 2 * side + 1] = max(bins[place, 2 * side + 1], sample[each, 2 * side + 1])
        # From the right: what lies at or behind each bin. Then from the left, adding up.
        around, total = bins[BINS + 1], 0
        for turn in range(2 * (BINS - 1)):
            backward = turn < BINS - 1
            place = BINS - 1 - turn if backward else turn - (BINS - 1)
            if turn % (BINS - 1) == 0:
                total = 0
                for side in range(d):
                    around[2 * side], around[2 * side + 1] = np.inf, -np.inf
            total += counts[place]
            volume = 1.0
            for side in range(d):
                around[2 * side] = min(around[2 * side], bins[place, 2 * side])
                around[2 * side + 1] = max(around[2 * side + 1], bins[place, 2 * side + 1])
                volume *= (around[2 * side + 1] - around[2 * side]) * scale[side] + THIN
            cost = volume * ceil(total * blocks) if total > 0 else np.inf
            if backward:
                costs[place] = cost
            elif cost + costs[place + 1] < best_cost:
                best_cost, best_axis, best_by_width = cost + costs[place + 1], axis, by_width
                best_at, best_low, best_high = low + (place + 1) / factor, low, high
                best_share = total / n
    if best_by_width:
        best_at, best_low, best_high = best_at**4, best_low**4, best_high**4
    return best_axis, best_by_width, best_at, best_share, best_low, best_high


@kernel
def split(
    rows: Any,
    words: Any,
    order: Any,
    spare: Any,
    kinds: Any,
    histogram: Ints,
    start: int,
    stop: int,
    axis: int,
    by_width: bool,
    at: float,
    share: float,
    least: float,
    most: float,
) -> int:
    """Rows with keys below a threshold to the front, or, in small parts, those with the least keys, about that share of
    them and a multiple of 64; where the others begin.

    Passes without branches that depend on the data, which would be mispredicted half the time. `words` are the rows as
    pairs of floats, 8 bytes each: they are moved as such. `spare` and `kinds` are as long.
    """
    size, pivot, quota = stop - start, 1, 0
    freely = size > CUT_FREELY
    if freely:
        below = 0
        for row in range(start, stop):
            is_below = key(rows[row, 2 * axis], rows[row, 2 * axis + 1], by_width) < at
            kinds[row] = 0 if is_below else 2
            below += is_below
        # Of either side there is at least a 64th: the depth stays logarithmic whatever the boxes.
        freely = min(below, size - below) >= size >> 6
        share = 0.5
    if not freely:
        # By 256 bins of keys: the bins before one go to the front, of that one as many as are still wanted.
        blocks = (size + BLOCK - 1) // BLOCK
        quota = min(max((int(share * size) + BLOCK // 2) // BLOCK, 1), blocks - 1) * BLOCK
        for place in range(256):
            histogram[place] = 0
        scale = 255.0 / (most - least)
        for row in range(start, stop):
            value = key(rows[row, 2 * axis], rows[row, 2 * axis + 1], by_width)
            kinds[row] = np.uint8(int(min(max((value - least) * scale, 0.0), 255.0)))
            histogram[kinds[row]] += 1
        pivot = 0
        while quota >= histogram[pivot]:
            quota -= histogram[pivot]
            pivot += 1
    front, back, d = start, 0, words.shape[1]
    for row in range(start, stop):
        kind, slot = kinds[row], order[row]
        goes = (kind < pivot) | ((kind == pivot) & (quota > 0))
        quota -= kind == pivot
        spare[back, d], order[front] = slot, slot
        for column in range(d):
            word = words[row, column]
            spare[back, column], words[front, column] = word, word
        front += goes
        back += not goes
    for place in range(back):
        order[front + place] = spare[place, d]
        for column in range(d):
            words[front + place, column] = spare[place, column]
    return front


def by_pairs(rows: Any, order: Any) -> Ints:
    """Rearranged so that boxes that are narrow in the same two attributes stand together: where each group begins.

    Where boxes bound few of many attributes, no cut serves them all. Each pair of attributes that many boxes have in
    common gets a group, the most common pair first, each box in the first that it fits; what fits none is the last.
    Measured with 3 of 10 attributes bounded: a quarter fewer tests than one tree at 10,000 boxes, a quarter of its
    tests at a million; groups by all the attributes of a box, or by its own narrowest two, lost to this at any size.
    """
    n, d = len(rows), rows.shape[1] // 2
    starts = np.zeros(d * d + 2, np.int64)
    left, tally = np.ones(min(n, 4096), np.bool_), np.empty((d, d), np.int64)
    count = gather_pairs(rows, order, left, tally, np.empty((d * d, 2), np.int64), starts)
    return np.unique(starts[:count])  # without empty ones


@kernel
def gather_pairs(rows: Any, order: Any, left: Any, tally: Ints, pairs: Ints, starts: Ints) -> int:
    """Fill in where groups begin, and where the last one ends; how many that is. `left`: of a sample, what has no group
    yet."""
    n, d, sampled, chosen = len(rows), rows.shape[1] // 2, len(left), 0
    step = n / sampled
    while chosen < n // (2 * BLOCK):
        for one in range(d):
            for two in range(d):
                tally[one, two] = 0
        for each in range(sampled):
            if left[each]:
                row = int(each * step)
                for one in range(d):
                    if is_narrow(rows[row, 2 * one], rows[row, 2 * one + 1]):
                        for two in range(one + 1, d):
                            tally[one, two] += is_narrow(rows[row, 2 * two], rows[row, 2 * two + 1])
        first, second = 0, 0
        for one in range(d):
            for two in range(one + 1, d):
                if tally[one, two] > tally[first, second]:
                    first, second = one, two
        if tally[first, second] * step < 2 * BLOCK:
            break
        pairs[chosen, 0], pairs[chosen, 1] = first, second
        chosen += 1
        for each in range(sampled):
            row = int(each * step)
            if is_narrow(rows[row, 2 * first], rows[row, 2 * first + 1]):
                left[each] &= not is_narrow(rows[row, 2 * second], rows[row, 2 * second + 1])
    at = 0
    for group in range(chosen):
        one, two = pairs[group, 0], pairs[group, 1]
        for row in range(at, n):
            if is_narrow(rows[row, 2 * one], rows[row, 2 * one + 1]) and is_narrow(
                rows[row, 2 * two], rows[row, 2 * two + 1]
            ):
                order[at], order[row] = order[row], order[at]
                for column in range(2 * d):
                    rows[at, column], rows[row, column] = rows[row, column], rows[at, column]
                at += 1
        starts[group + 1] = at
    starts[chosen + 1] = n
    return chosen + 2


def partition(rows: Any, order: Any, groups: Ints) -> Ints:
    """Rows (low and high of each attribute by turns) and their order are rearranged; a binary tree of parts comes back.

    One line a part: where it begins, where it ends, its left and its right half (-1 for a block). A part precedes its
    halves, and blocks come in the order of the rows. Groups (where each begins, and the end) are kept apart.
    """
    n, d = len(rows), rows.shape[1] // 2
    # A free cut leaves 64 rows or more on either side, so there are fewer than n/64; each of them and each group has a
    # block that is not full: n/32 blocks and one for each group, at most. And it leaves 63/64 on a side, at most:
    # 2^31 rows are cut a thousand deep.
    parts = np.empty((n // 16 + 2 * len(groups), 4), np.int64)
    stack = np.empty((4096, 3), np.int64)
    sample, bins = np.empty((SAMPLE, 2 * d), np.float32), np.empty((BINS + 2, 2 * d), np.float32)
    counts, costs, histogram = np.empty(BINS, np.int64), np.empty(BINS), np.empty(256, np.int64)
    words, spare, kinds = rows.view(np.int64), np.empty((n, d + 1), np.int64), np.empty(n, np.uint8)
    count = divide(rows, words, order, groups, parts, stack, sample, bins, counts, costs, histogram, spare, kinds)
    return parts[:count]


@kernel
def divide(
    rows: Any,
    words: Any,
    order: Any,
    groups: Ints,
    parts: Ints,
    stack: Ints,
    sample: Any,
    bins: Any,
    counts: Ints,
    costs: Any,
    histogram: Ints,
    spare: Any,
    kinds: Any,
) -> int:
    """Fill in the parts; how many they are. The stack has parts, and the groups of each, from and to."""
    n = len(rows)
    parts[0, 0], parts[0, 1] = 0, n
    count, top = 1, 1
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, len(groups) - 1
    while top > 0:
        top -= 1
        part, first, last = stack[top, 0], stack[top, 1], stack[top, 2]
        start, stop = parts[part, 0], parts[part, 1]
        size = stop - start
        parts[part, 2] = parts[part, 3] = -1
        between = (first + last + 1) >> 1
        if last - first > 1:
            middle = groups[between]
        elif size <= BLOCK:
            continue
        else:
            axis, by_width, at, share, least, most = best_cut(rows, start, stop, sample, bins, counts, costs)
            if axis < 0:  # all alike: anywhere
                middle = start + ((size >> 1) + BLOCK - 1) // BLOCK * BLOCK
            else:
                middle = split(
                    rows, words, order, spare, kinds, histogram, start, stop, axis, by_width, at, share, least, most
                )
        parts[part, 2], parts[part, 3] = count, count + 1
        parts[count, 0], parts[count, 1] = start, middle
        parts[count + 1, 0], parts[count + 1, 1] = middle, stop
        stack[top, 0], stack[top, 1], stack[top, 2] = count + 1, between if last - first > 1 else first, last
        stack[top + 1, 0], stack[top + 1, 1] = count, first
        stack[top + 1, 2] = between if last - first > 1 else last
        top += 2
        count += 2
    return count
