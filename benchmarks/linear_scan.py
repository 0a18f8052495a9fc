"""The units of the cover benchmarks: compiled linear scans for one box, or one ball, that contains another."""

from __future__ import annotations

import math

from thatch.jit import kernel
from thatch.space.arrays import Floats, Ints


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


@kernel
def scan_balls(
    centres: Floats, radii: Floats, start: int, centre: Floats, radius: float, found: Ints, most: int
) -> int:
    """The balls from `start` on that contain a ball, up to so many, and their number. Radii are compared first, and a
    distance is given up as soon as it is too large."""
    count = 0
    for ball in range(start, len(radii)):
        reach = radii[ball] - radius
        if reach >= 0:
            limit, total = reach * reach, 0.0
            for axis in range(len(centre)):
                offset = centres[ball, axis] - centre[axis]
                total += offset * offset
                if total > limit:
                    break
            if total <= limit:
                found[count] = ball
                count += 1
                if count == most:
                    break
    return count


@kernel
def scan_balls_many(centres: Floats, radii: Floats, asked: Floats, margin: float, answers: Ints) -> None:
    """For each ball asked for, rows of a centre and a radius, the first that contains it and surely does, -1 for none,
    or -2 if the first that contains it is inside the rounding margin."""
    d = centres.shape[1]
    for question in range(len(asked)):
        answers[question], radius = -1, asked[question, d]
        for ball in range(len(radii)):
            reach = radii[ball] - radius
            if reach >= 0:
                limit, total = reach * reach, 0.0
                for axis in range(d):
                    offset = centres[ball, axis] - asked[question, axis]
                    total += offset * offset
                    if total > limit:
                        break
                if total <= limit:
                    is_sure = (radius + math.sqrt(total)) * (1 + margin) <= radii[ball] * (1 - margin)
                    answers[question] = ball if is_sure else -2
                    break


@kernel
def scan_covered(centres: Floats, radii: Floats, centre: Floats, radius: float, found: Ints) -> int:
    """All balls that a ball contains, and their number."""
    count = 0
    for ball in range(len(radii)):
        reach = radius - radii[ball]
        if reach >= 0:
            limit, total = reach * reach, 0.0
            for axis in range(len(centre)):
                offset = centres[ball, axis] - centre[axis]
                total += offset * offset
                if total > limit:
                    break
            if total <= limit:
                found[count] = ball
                count += 1
    return count
