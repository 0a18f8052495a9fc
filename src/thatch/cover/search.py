"""The search of the exact engine: is this box covered by the boxes of an index? Kernels, and the completion of a
witness. exact.py says what it does and why.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from thatch.cover.boxed import COVERED, UNCOVERED, UNDECIDED
from thatch.cover.index import CUTS, Rows, insert_box, meeting
from thatch.jit import borrowing, inlined, inner, lowest
from thatch.space.arrays import Ints

PLAIN_MAX = 6  # up to this many attributes a loop over all beats a loop over a mask
EARLY = 4  # words: a batch first looks for one that covers among the first 64 times as many. 16 gained nothing
_ONE = np.uint64(1)
_MARGIN = 2.0**-51


class SearchScratch(NamedTuple):
    """What the search writes to: allocated once, so that a check allocates nothing."""

    words: Any  # uint64: bits of candidates
    once: Any  # uint64: bits of those that the box protrudes beyond
    ranks: Ints  # [6, d]: rows to be asked
    sides: Ints  # [2, d]: the member that holds most of the box from below, and from above, or -1
    lists: Any  # int32: candidate slots of the boxes on the stack, one list after another
    stack_low: Ints  # [depth, d]: boxes still to be covered
    stack_high: Ints
    stack_list: Ints  # [depth, 2]: where the candidates of each begin and end
    low: Ints  # [d]: the box at hand; after UNCOVERED, one that holds a witness
    high: Ints
    units: Any  # float64 [d]: one over the widths of the box at hand
    masks: Any  # uint64 [slots]: the attributes at which the first box protrudes beyond a candidate
    names: Ints  # owners of the boxes used, with repetitions
    state: Ints  # [3]: number of names; nodes; box tests


@inlined
def width(low: int, high: int, wide: bool) -> float:
    """The number of coordinates in low..high, which may be 2^64 on a wide axis. Unsigned there, because the compiler
    takes a signed difference for one that does not overflow; signed elsewhere, because that converts faster."""
    if wide:
        return np.float64(np.uint64(high) - np.uint64(low)) + 1.0
    return np.float64(high - low) + 1.0


@inlined
def push(
    low: Ints, high: Ints, stack_low: Ints, stack_high: Ints, stack_list: Ints, top: int, start: int, stop: int
) -> None:
    """Put a box on the stack, with the place of its candidates."""
    for axis in range(len(low)):
        stack_low[top, axis], stack_high[top, axis] = low[axis], high[axis]
    stack_list[top, 0], stack_list[top, 1] = start, stop


@inner
def side_by_side(rows: Rows, low: Ints, high: Ints, scratch: SearchScratch) -> bool:
    """Whether two members hold a box that none holds alone: one up to some value of an attribute, the other from there
    on. Their names are added.

    Either protrudes at one of the 2d faces of the box only. The rows that tell who contains the box (`ranks` 2 and 3)
    tell 64 members at a time who surely fails at two faces; the few others are looked at.
    """
    words, once, sides, names, state = scratch.words, scratch.once, scratch.sides, scratch.names, scratch.state
    own_low, own_high, ranks = rows.low, rows.high, scratch.ranks
    d, count = len(low), (rows.used[0] + 63) >> 6
    most = rows.used[1] - (rows.used[1] >> 6)
    for word in range(count):
        words[word] = once[word] = 0  # who fails at two faces, who at one
    for axis in range(d):
        sides[0, axis] = sides[1, axis] = -1
        for face in range(2):
            rank = ranks[2 + face, axis]
            if (rows.below_count if face == 0 else rows.above_count)[axis, rank] < most:
                row = rows.below[axis, rank] if face == 0 else rows.above[axis, rank]
                for word in range(count):
                    words[word] |= once[word] & ~row[word]
                    once[word] |= ~row[word]
    live = rows.below[0, CUTS]
    for word in range(count):
        bits = live[word] & ~words[word]
        while bits != 0:
            slot = (word << 6) + lowest(bits)
            bits &= bits - _ONE
            faces, cut, face = 0, 0, 0
            for axis in range(d):
                if own_low[slot, axis] > low[axis]:
                    faces, cut, face = faces + 1, axis, 1
                if own_high[slot, axis] < high[axis]:
                    faces, cut, face = faces + 1, axis, 0
                if faces > 1:
                    break
            if faces != 1:
                continue
            best = sides[face, cut]
            if best >= 0 and (
                own_high[slot, cut] <= own_high[best, cut] if face == 0 else own_low[slot, cut] >= own_low[best, cut]
            ):
                continue
            sides[face, cut] = slot
            below, above = sides[0, cut], sides[1, cut]
            if below >= 0 and above >= 0 and own_high[below, cut] >= own_low[above, cut] - 1:
                names[state[0]], names[state[0] + 1] = rows.owner[below], rows.owner[above]
                state[0] += 2
                return True
    return False


@inlined
def cover_box(
    rows: Rows, lows: Ints, highs: Ints, box: int, scratch: SearchScratch, nodes_max: int, tests_max: int
) -> int:
    """Is one box of an array covered? COVERED, UNCOVERED or UNDECIDED; names are added to, never reset."""
    d = lows.shape[1]
    low, high = lows[box], highs[box]
    now_low, now_high, state = scratch.low, scratch.high, scratch.state
    # Out of the tuples once: each access in a loop would be compiled, with counts up and down, and then optimised away.
    own_low, own_high, owner = rows.low, rows.high, rows.owner
    below_count, above_count = rows.below_count, rows.above_count
    words, lists, masks, names = scratch.words, scratch.lists, scratch.masks, scratch.names
    stack_low, stack_high, stack_list = scratch.stack_low, scratch.stack_high, scratch.stack_list
    if rows.used[1] == 0:
        for axis in range(d):
            now_low[axis], now_high[axis] = low[axis], high[axis]
        return UNCOVERED
    # The rows to ask: for those that meet the box, for those that cover it, and for those that hold a corner. The
    # corner takes at each attribute the end that fewer boxes hold: a box that does not begin after a value and does
    # not end before it holds it, and none does both, so the two counts sum to all plus those that hold it.
    ranks, cuts, edges, edge_ranks = scratch.ranks, rows.cuts, rows.edges, rows.edge_ranks
    for axis in range(d):
        least, most = low[axis], high[axis]
        if least == edges[0, axis] and most == edges[1, axis]:
            low_below, low_upto = edge_ranks[0, axis], edge_ranks[1, axis]
            high_below, high_upto = edge_ranks[2, axis], edge_ranks[3, axis]
        else:
            low_below = low_upto = high_below = high_upto = 0
            for cut in range(CUTS):  # `cuts_below` and `cuts_upto` of both ends in one go
                low_below += cuts[axis, cut] < least
                low_upto += cuts[axis, cut] <= least
                high_below += cuts[axis, cut] < most
                high_upto += cuts[axis, cut] <= most
        ranks[0, axis], ranks[1, axis] = high_below, low_upto
        ranks[2, axis], ranks[3, axis] = low_below, high_upto
        at_low = below_count[axis, low_below] + above_count[axis, low_upto]
        at_high = below_count[axis, high_below] + above_count[axis, high_upto]
        if at_low <= at_high:
            now_low[axis], ranks[4, axis], ranks[5, axis] = low[axis], low_below, low_upto
        else:
            now_low[axis], ranks[4, axis], ranks[5, axis] = high[axis], high_below, high_upto
    # 1. One that covers it.
    for word in range(meeting(rows, ranks[2], ranks[3], words)):
        bits = words[word]
        while bits != 0:
            slot = (word << 6) + lowest(bits)
            bits &= bits - _ONE
            covers = True
            for axis in range(d):
                if own_low[slot, axis] > low[axis] or own_high[slot, axis] < high[axis]:
                    covers = False
                    break
            if covers:
                names[state[0]] = owner[slot]
                state[0] += 1
                return COVERED
    # 2. One that holds the corner, else it is a witness.
    held = False
    for word in range(meeting(rows, ranks[4], ranks[5], words)):
        bits = words[word]
        while bits != 0 and not held:
            slot = (word << 6) + lowest(bits)
            bits &= bits - _ONE
            held = True
            for axis in range(d):
                if own_low[slot, axis] > now_low[axis] or own_high[slot, axis] < now_low[axis]:
                    held = False
                    break
        if held:
            break
    if not held:
        for axis in range(d):
            now_high[axis] = now_low[axis]
        return UNCOVERED
    # 3. Two, which is what most take that one does not cover.
    if side_by_side(rows, low, high, scratch):
        return COVERED
    # With many attributes, of which boxes bound few, a mask tells at which ones the box protrudes beyond a member: at
    # the others the member holds all of every piece, and is not looked at again.
    # 4 and 5. Depth first over pieces. The list of a piece is filtered from its parent's when its turn comes; it is
    # written behind the parent's, which the piece's siblings still need.
    found, masked, units, wide = 0, PLAIN_MAX < d <= 64, scratch.units, False
    for axis in range(d):
        wide |= edges[0, axis] < -(2**61) or edges[1, axis] > 2**61
    for word in range(meeting(rows, ranks[0], ranks[1], words)):
        bits = words[word]
        while bits != 0:
            slot = (word << 6) + lowest(bits)
            bits &= bits - _ONE
            masks[slot] = rows.bounded[slot]
            lists[found] = slot
            found += 1
    for axis in range(d):
        now_low[axis], now_high[axis] = low[axis], high[axis]
    push(now_low, now_high, stack_low, stack_high, stack_list, 0, 0, found)
    top = 1
    room, depth = len(lists), len(stack_list) - 2 * d
    while top > 0:
        top -= 1
        for axis in range(d):
            now_low[axis], now_high[axis] = stack_low[top, axis], stack_high[top, axis]
        start, stop = stack_list[top, 0], stack_list[top, 1]
        state[1] += 1
        state[2] += stop - start
        if state[1] > nodes_max or state[2] > tests_max or 2 * stop - start > room or top > depth:
            return UNDECIDED
        unit = 1.0
        for axis in range(d):
            units[axis] = 1.0 / width(now_low[axis], now_high[axis], wide)
            unit *= units[axis]
        end, share_sum, best, best_score, whole = stop, 0.0, -1, -1.0, -1
        for position in range(start, stop):
            slot = lists[position]
            faces = 0
            if masked:
                share, mask, kept = 1.0, masks[slot], np.uint64(0)
                while mask != 0:
                    axis = lowest(mask)
                    mask &= mask - _ONE
                    before = faces
                    faces += (own_low[slot, axis] > now_low[axis]) + (own_high[slot, axis] < now_high[axis])
                    least = max(own_low[slot, axis], now_low[axis])
                    most = min(own_high[slot, axis], now_high[axis])
                    if least > most:
                        share = -1.0
                        break
                    if faces > before:
                        share *= width(least, most, wide) * units[axis]
                        kept |= _ONE << np.uint64(axis)
                if start == 0:
                    masks[slot] = kept
            else:
                share = unit if d <= PLAIN_MAX else 1.0  # with more, the unit may vanish
                for axis in range(d):
                    # Sums of comparisons, minima and maxima: branches here would be mispredicted half the time.
                    faces += (own_low[slot, axis] > now_low[axis]) + (own_high[slot, axis] < now_high[axis])
                    least = max(own_low[slot, axis], now_low[axis])
                    most = min(own_high[slot, axis], now_high[axis])
                    if least > most:
                        share = -1.0
                        break
                    share *= width(least, most, wide) if d <= PLAIN_MAX else width(least, most, wide) * units[axis]
            if share < 0.0:
                continue
            if faces == 0:
                whole = slot
                break
            share_sum += share
            score = share / faces  # many faces, many pieces
            if faces == 1:
                score += 1.0  # leaves one piece: no branching
            if score > best_score:
                best, best_score = slot, score
            lists[end] = slot
            end += 1
        if whole >= 0:
            names[state[0]] = owner[whole]
            state[0] += 1
            continue
        # A share is a product of at most 2d + 1 widths and inverses of at most three roundings each, the sum has one
        # more for each member: less than 6d + n + 4 roundings of one part in 2^53 in all, so the true sum is below 1.
        if share_sum < 1.0 - (6 * d + (end - stop) + 4) * _MARGIN:
            return UNCOVERED
        names[state[0]] = owner[best]
        state[0] += 1
        for turn in range(d):  # the first attribute last, so that its pieces, the widest, are asked first
            axis = d - 1 - turn
            if own_low[best, axis] > now_low[axis]:
                push(now_low, now_high, stack_low, stack_high, stack_list, top, stop, end)
                stack_high[top, axis] = own_low[best, axis] - 1
                top += 1
                now_low[axis] = own_low[best, axis]
            if own_high[best, axis] < now_high[axis]:
                push(now_low, now_high, stack_low, stack_high, stack_list, top, stop, end)
                stack_low[top, axis] = own_high[best, axis] + 1
                top += 1
                now_high[axis] = own_high[best, axis]
    return COVERED


@borrowing
def cover_union(
    rows: Rows, low: Ints, high: Ints, first: int, last: int, scratch: SearchScratch, nodes_max: int, tests_max: int
) -> int:
    """Are the boxes from first up to last covered? UNDECIDED only if none is surely not. Names each owner once."""
    scratch.state[0] = scratch.state[1] = scratch.state[2] = 0
    code = COVERED
    for box in range(first, last):
        nodes_max += 1  # the budget is for all of them, but each may take its first step
        if scratch.state[0] > len(scratch.names) - nodes_max - 2:
            return UNDECIDED
        each = cover_box(rows, low, high, box, scratch, nodes_max, tests_max)
        if each == UNCOVERED:
            return UNCOVERED
        code = max(code, each)
        kept = 0
        for position in range(scratch.state[0]):
            name, known = scratch.names[position], False
            for earlier in range(kept):
                if scratch.names[earlier] == name:
                    known = True
                    break
            if not known:
                scratch.names[kept] = name
                kept += 1
        scratch.state[0] = kept
    return code


@inlined
def early_around(
    lows: Ints, highs: Ints, box: int, cuts: Ints, edges: Ints, edge_ranks: Ints, below: Any, above: Any, words: int,
    own_low: Ints, own_high: Ints, ranks: Ints,
) -> int:  # fmt: skip
    """One of the first members that contains a box, or -1: most of what is covered is covered by one of these. The
    arrays come out of their tuples, because taking them out for each box takes longer than the search."""
    found, d = -1, lows.shape[1]
    for axis in range(d):
        least, most = lows[box, axis], highs[box, axis]
        low_below = high_upto = 0
        if least == edges[0, axis] and most == edges[1, axis]:
            low_below, high_upto = edge_ranks[0, axis], edge_ranks[3, axis]
        else:
            for cut in range(CUTS):
                low_below += cuts[axis, cut] < least
                high_upto += cuts[axis, cut] <= most
        ranks[2, axis], ranks[3, axis] = low_below, high_upto
    for word in range(words):
        bits = below[0, CUTS, word]
        for axis in range(d):
            bits &= below[axis, ranks[2, axis], word] & above[axis, ranks[3, axis], word]
        while bits != 0 and found < 0:
            slot = (word << 6) + lowest(bits)
            bits &= bits - _ONE
            found = slot
            for axis in range(d):
                if own_low[slot, axis] > lows[box, axis] or own_high[slot, axis] < highs[box, axis]:
                    found = -1
                    break
        if found >= 0:
            break
    return found


@borrowing
def cover_and_add(
    rows: Rows,
    low: Ints,
    high: Ints,
    starts: Ints,
    owner: int,
    scratch: SearchScratch,
    nodes_max: int,
    tests_max: int,
    codes: Ints,
    witness_low: Ints,
    witness_high: Ints,
    begin: int,
    begins: Ints,
    names: Ints,
) -> int:
    """For each region from `begin` on, its boxes starts[i]..starts[i+1]: decide, and insert it unless it is covered.

    Owners are numbered upward from `owner`. Certificates are written as names, and the place where each region's begin.
    Ends early, with the region that comes next, if there might be no room for its names.
    """
    n, base = len(starts) - 1, begins[begin]
    own_low, own_high, owners, used = rows.low, rows.high, rows.owner, rows.used
    cuts, edges, edge_ranks, below, above = rows.cuts, rows.edges, rows.edge_ranks, rows.below, rows.above
    ranks = scratch.ranks
    for region in range(begin, n):
        first, last, place = starts[region], starts[region + 1], begins[region] - base
        if place + len(scratch.names) > len(names):
            return region
        if last - first == 1:
            words = min(EARLY, (used[0] + 63) >> 6)
            slot = early_around(
                low, high, first, cuts, edges, edge_ranks, below, above, words, own_low, own_high, ranks
            )
            if slot >= 0:
                codes[region], names[place] = COVERED, owners[slot]
                begins[region + 1] = begins[region] + 1
                continue
        code = cover_union(rows, low, high, first, last, scratch, nodes_max, tests_max)
        codes[region] = code
        begins[region + 1] = begins[region]
        if code == COVERED:
            for position in range(scratch.state[0]):
                names[place + position] = scratch.names[position]
            begins[region + 1] += scratch.state[0]
            continue
        if code == UNCOVERED:
            for axis in range(low.shape[1]):
                witness_low[region, axis] = scratch.low[axis]
                witness_high[region, axis] = scratch.high[axis]
        for box in range(first, last):
            insert_box(rows, rows.used[0], low, high, box, owner + region)
    return n


def find_witness(low: Ints, high: Ints, wall_low: Ints, wall_high: Ints) -> list[int]:
    """A point of a box that is in no wall, where the walls' parts of the box sum to less than the box. Exact integers.

    Cut the box around the largest wall. The wall's own share is gone from the volume and from the sum alike, and what
    else lay inside it is gone from the sum only, so some piece is left with a sum below its volume: go there. Each
    step loses a wall, so it ends, after at most n steps of n walls each.
    """
    while True:
        wall_low, wall_high, volumes = _clipped(low, high, wall_low, wall_high)
        if not volumes:
            result: list[int] = low.tolist()
            return result
        largest = volumes.index(max(volumes))
        rest_low, rest_high = low.copy(), high.copy()
        best: tuple[int, Ints, Ints] | None = None
        for axis in range(len(low)):
            least, most = wall_low[largest, axis], wall_high[largest, axis]
            for bound, rest, end, inward in ((rest_high, rest_low, least, -1), (rest_low, rest_high, most, 1)):
                if end == rest[axis]:
                    continue  # the wall reaches this face: nothing sticks out
                kept, bound[axis] = bound[axis], end + inward
                slack = _volumes(rest_low[None], rest_high[None])[0] - sum(
                    _clipped(rest_low, rest_high, wall_low, wall_high)[2]
                )
                if best is None or slack > best[0]:
                    best = slack, rest_low.copy(), rest_high.copy()
                bound[axis], rest[axis] = kept, end
        assert best is not None and best[0] > 0, "the walls hold as much as the box"
        _, low, high = best


def _clipped(low: Ints, high: Ints, wall_low: Ints, wall_high: Ints) -> tuple[Ints, Ints, list[int]]:
    """The walls' parts of a box, of those that have one, and their volumes."""
    least, most = np.maximum(wall_low, low), np.minimum(wall_high, high)
    meets = (least <= most).all(axis=1)
    least, most = least[meets], most[meets]
    return least, most, _volumes(least, most)


def _volumes(low: Ints, high: Ints) -> list[int]:
    """As integers without bound: a side alone can have 2^64 points."""
    widths = (high.astype(np.uint64) - low.astype(np.uint64)).tolist()
    return [prod(width + 1 for width in each) for each in widths]
