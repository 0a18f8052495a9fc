"""Kernels on balls: a k-d tree over centres and radii, and a scan by falling radius. balls.py says why.

A row is a centre and a radius, which is NaN for a ball that was removed. `search` and `scan` find candidates: whatever
could hold in exact arithmetic, roundings included. `around_many` tells those that surely hold from the rest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from thatch.jit import inlined, inner, kernel
from thatch.space.arrays import Floats, Ints

RADIUS_MAX = 2.0**500  # squares of larger ones overflow
RADIUS_MIN = 2.0**-400  # and those of smaller ones underflow: they are distinguished elsewhere
LEAF = 32  # 16 answered no faster in nine workloads of ten, and takes longer to build
# A smaller radius helps whatever attribute decides, a nearer centre only if its own does: radii are split as if they
# were so many times as far apart. Against 4, at n = 1,000,000 and d = 4 to 20, 2 took up to 2.4 times as long, 8 from
# 0.9 to 1.3; centres alone, at n = 100,000, took up to 6 times as long as 2.
RADIUS_WEIGHT = 4.0
# What makes the tests below keep whatever holds in exact arithmetic: roundings are some parts in 2^53 for each
# attribute, and squares below 2^-1000 may underflow.
WIDER = 1 + 2.0**-40
ABOVE = 1e-300
NEAR = 1e-150  # more than any length whose square underflows
NONE, UNSURE = -1, -2
_ONE: Any = np.int64(1)  # as a NumPy number: of a plain 1 Numba would make a kernel of its own


@inner
def select(keys: Floats, order: Ints, first: int, last: int, middle: int) -> None:
    """Reorder first..last so that no key before the middle is greater than one behind it (Hoare's quickselect)."""
    while first < last:
        one, two, three = keys[first], keys[(first + last) >> 1], keys[last]
        pivot = max(min(one, two), min(max(one, two), three))
        left, right = first, last
        while left <= right:
            while keys[left] < pivot:
                left += 1
            while keys[right] > pivot:
                right -= 1
            if left <= right:
                keys[left], keys[right] = keys[right], keys[left]
                order[left], order[right] = order[right], order[left]
                left += 1
                right -= 1
        if middle <= right:
            last = right
        elif middle >= left:
            first = left
        else:
            return


@kernel
def build(rows: Floats, order: Ints, keys: Floats, bounds: Floats, links: Ints) -> int:
    """Arrange balls into nodes, the number of which is returned, and `order` by leaf. A node's two halves are split at
    the median of what spreads most: an attribute of the centres, or the radii."""
    d = rows.shape[1] - 1
    links[0, 0], links[0, 1] = 0, len(rows)
    used, node = 1, 0
    while node < used:
        start, stop = links[node, 0], links[node, 1]
        for axis in range(d + 1):
            bounds[node, axis], bounds[node, d + 1 + axis] = np.inf, -np.inf
        for position in range(start, stop):
            row = order[position]
            for axis in range(d + 1):
                value = rows[row, axis]
                bounds[node, axis] = min(bounds[node, axis], value)
                bounds[node, d + 1 + axis] = max(bounds[node, d + 1 + axis], value)
        links[node, 2] = -1
        if stop - start > LEAF:
            widest, spread = d, (bounds[node, 2 * d + 1] - bounds[node, d]) * RADIUS_WEIGHT
            for axis in range(d):
                if bounds[node, d + 1 + axis] - bounds[node, axis] > spread:
                    widest, spread = axis, bounds[node, d + 1 + axis] - bounds[node, axis]
            for position in range(start, stop):
                keys[position] = rows[order[position], widest]
            middle = (start + stop) >> 1
            select(keys, order, start, stop - 1, middle)
            links[node, 2] = used
            links[used, 0], links[used, 1] = start, middle
            links[used + 1, 0], links[used + 1, 1] = middle, stop
            used += 2
        node += 1
    return used


@kernel
def search(bounds: Floats, links: Ints, rows: Floats, asked: Floats, sign: int, found: Ints, most: int) -> int:
    """Candidates of a tree, up to so many, and their number: those that may hold the ball asked for (sign 1), or those
    that it may hold (sign -1). Of two halves the one that reaches further beyond it comes first."""
    d = len(asked) - 1
    stack = np.empty(64, np.int64)  # each level leaves one node behind, and halves
    reaching = 2 * d + 1 if sign > 0 else d
    stack[0], height, count = 0, 1, 0
    while height > 0:
        height -= 1
        node = stack[height]
        child = links[node, 2]
        if child < 0:
            for row in range(links[node, 0], links[node, 1]):
                reach = sign * (rows[row, d] - asked[d])
                if reach >= 0:  # NaN, for a ball that was removed, is not
                    limit, total = reach * reach * WIDER + ABOVE, 0.0
                    for axis in range(d):
                        offset = rows[row, axis] - asked[axis]
                        total += offset * offset
                        if total > limit:
                            break
                    if total <= limit:
                        found[count] = row
                        count += 1
                        if count == most:
                            return count
            continue
        best = -1.0
        for half in range(child, child + 2):
            reach = sign * (bounds[half, reaching] - asked[d])
            if reach >= 0:
                limit, total = reach * reach * WIDER + ABOVE, 0.0
                for axis in range(d):
                    offset = max(bounds[half, axis] - asked[axis], asked[axis] - bounds[half, d + 1 + axis])
                    if offset > 0:
                        total += offset * offset
                        if total > limit:
                            break
                if total <= limit:
                    stack[height] = half
                    if best > limit - total:
                        stack[height - 1], stack[height] = half, half - 1
                    best = limit - total
                    height += 1
    return count


@kernel
def scan(
    rows: Floats, count: int, rising: Floats, shadows: Floats, norm: float, vectors: Floats, asked: Floats, sign: int,
    found: Ints, most: int,
) -> int:  # fmt: skip
    """The same of the first rows, by falling radius where `rising` is given, past their projections where they are."""
    d, candidates = len(asked) - 1, 0
    shadow, square = np.zeros(shadows.shape[1]), 0.0
    for axis in range(d):
        square += asked[axis] * asked[axis]
        for vector in range(len(shadow)):
            shadow[vector] += vectors[vector, axis] * asked[axis]
    # A projection errs by d + 1 roundings of a centre's length, which counts as 0 where its square underflows.
    slack = (d + 4) * 2.0**-52 * (norm + math.sqrt(square)) + NEAR
    for row in range(count):
        if sign > 0 and row < len(rising) and rising[row] > -asked[d]:
            break
        reach = sign * (rows[row, d] - asked[d])
        if not reach >= 0:
            continue
        near = True
        for vector in range(len(shadow)):
            if abs(shadows[row, vector] - shadow[vector]) > reach * WIDER + slack:
                near = False
                break
        if near:
            limit, total = reach * reach * WIDER + ABOVE, 0.0
            for axis in range(d):
                offset = rows[row, axis] - asked[axis]
                total += offset * offset
                if total > limit:
                    break
            if total <= limit:
                found[candidates] = row
                candidates += 1
                if candidates == most:
                    return candidates
    return candidates


@inlined
def surely_holds(rows: Floats, row: int, asked: Floats, question: int, margin: float) -> bool:
    """Whether a ball surely holds the one asked for: `Ball.holds`, except inside four times its margin."""
    d = rows.shape[1] - 1
    radius, inner_radius, total = rows[row, d], asked[question, d], 0.0
    for axis in range(d):
        offset = rows[row, axis] - asked[question, axis]
        total += offset * offset
    reach = (max(inner_radius, RADIUS_MIN) + math.sqrt(total)) * (1 + margin)
    return RADIUS_MIN <= radius and reach <= radius * (1 - margin)  # NaN is not


@kernel
def around_many(
    rows: Floats, count: int, bounds: Floats, links: Ints, widest: Ints, rising: Floats, shadows: Floats, norm: float,
    vectors: Floats, asked: Floats, margin: float, found: Ints, answers: Ints,
) -> None:  # fmt: skip
    """For each ball asked for, a row that surely holds it; NONE; or UNSURE if the first candidate is inside the margin.
    The widest balls come first: where a few hold nearly everything, as with skewed radii, one or two tests are all."""
    d = rows.shape[1] - 1
    for question in range(len(asked)):
        answer = NONE
        for position in range(len(widest)):
            row = widest[position]
            if rows[row, d] < asked[question, d]:
                break
            if surely_holds(rows, row, asked, question, margin):
                answer = row
                break
        if answer == NONE:
            if len(links) > 0:
                candidates = search(bounds, links, rows, asked[question], _ONE, found, _ONE)
            else:
                candidates = scan(
                    rows, count, rising, shadows, norm, vectors, asked[question], _ONE, found, _ONE
                )  # fmt: skip
            if candidates > 0:
                answer = found[0] if surely_holds(rows, found[0], asked, question, margin) else UNSURE
        answers[question] = answer
