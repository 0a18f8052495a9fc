"""Kernels on a divided space: what nobody covers as disjoint negative rectangles, what somebody does as pieces.

    +----------+-------+     Each piece belongs to the box that took it from the negative space (negative-space's
    |  r1      |       |     CoveredBy): negative rectangles and pieces together are the whole space, and no two
    +---+------+  r3   |     of them meet. So the owners of the pieces that meet a covered box cover it, and when
    | s1|  s2  |       |     a box leaves, its pieces are what has to be handed on or becomes negative again.
    +---+------+-------+

Negative rectangles are in an index; the pieces of a box are a linked list in flat arrays, because they are looked at
only when their owner is at hand already.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from thatch.cover.boxed import COVERED, UNCOVERED, UNDECIDED
from thatch.cover.index import ALL, COVERING, CUTS, ONE, TOUCHING, Rows, found_slots, insert_box, meets, remove_box
from thatch.jit import borrowing, inlined, inner
from thatch.region.boxes import subtract_box
from thatch.space.arrays import Ints

BENEFIT_BY_COST, BENEFIT, INVERSE_COST = 0, 1, 2
ASK, NO_ROOM = -1, -2
LOOKS_MAX = 8_192  # for neighbours, after one change
CORNERS: Any = np.int64(4)  # negative rectangles whose corners are tried as witnesses, where they may be covered
_ONE = np.uint64(1)
# Constants as NumPy numbers: of a plain 0 or True Numba would make a kernel of its own wherever one is passed.
_FIRST: Any = np.int64(0)
_NOBODY: Any = np.int64(-1)
_ASK: Any = np.int64(ASK)


class Pieces(NamedTuple):
    """The part of the space that is covered, by owner: a slot of the members' index."""

    low: Ints  # [pieces, d]
    high: Ints
    next: Ints  # [pieces]: the next piece of the same owner, or the next free one; -1 ends
    head: Ints  # [slots of the members]: the first piece of each
    state: Ints  # [2]: the first free piece among those used before, or -1; pieces used from the front


class Rule(NamedTuple):
    """Which rectangles are split."""

    k: int  # new rectangles for a member; below 0 without bound
    is_dynamic: bool
    metric: int
    rectangles_max: int
    is_merging: bool


class Workspace(NamedTuple):
    """What kernels write to."""

    words: Any  # uint64: bits of candidates, in either index
    slots: Ints  # candidates
    ranks: Ints  # [2, d]
    out_low: Ints  # [2d, d]: what is left of a rectangle
    out_high: Ints
    low: Ints  # [d]: the rectangle at hand; after UNCOVERED the witness
    high: Ints
    scores: Any  # float64 [slots]
    costs: Ints  # [slots]: rectangles that a split adds
    is_double: Any  # bool [d]: whether coordinates are doubles in order, to be measured by their values
    touched: Ints  # slots of rectangles that changed
    names: Ints  # owners
    marks: Ints  # [slots]: the number of the question for which a slot was named
    state: Ints  # [7]: names; touched; rectangles left whole; splits; rectangles, pieces a box needs at most; questions


# --- Questions -------------------------------------------------------------------------------------------------------


@inner
def name(members: Rows, slot: int, work: Workspace) -> None:
    """Add the owner of a slot to the names, once for each slot; owners of several slots may be there twice."""
    if work.marks[slot] != work.state[6]:
        work.marks[slot] = work.state[6]
        work.names[work.state[0]] = members.owner[slot]
        work.state[0] += 1


@inlined
def name_owners(members: Rows, pieces: Pieces, low: Ints, high: Ints, work: Workspace) -> None:
    """Whose pieces meet low..high; or one member that contains it, if there is one."""
    if found_slots(members, low, high, COVERING, ONE, work.ranks, work.words, work.slots) > 0:
        name(members, work.slots[0], work)
        return
    for position in range(found_slots(members, low, high, TOUCHING, ALL, work.ranks, work.words, work.slots)):
        slot = work.slots[position]
        piece = pieces.head[slot]
        while piece >= 0:
            if meets(pieces.low, pieces.high, piece, low, high):
                name(members, slot, work)
                break
            piece = pieces.next[piece]


@inlined
def loosely_uncovered(negative: Rows, members: Rows, low: Ints, high: Ints, work: Workspace) -> int:
    """A box meets negative rectangles, of which some may be covered: does one member contain it, or is a corner of
    what they share in no member?"""
    if found_slots(members, low, high, COVERING, ONE, work.ranks, work.words, work.slots) > 0:
        return COVERED
    found = found_slots(negative, low, high, TOUCHING, CORNERS, work.ranks, work.words, work.slots)
    for position in range(found):
        slot = work.slots[position]
        for corner in range(2):
            for axis in range(len(low)):
                if corner == 0:
                    work.low[axis] = max(low[axis], negative.low[slot, axis])
                else:
                    work.low[axis] = min(high[axis], negative.high[slot, axis])
            if found_slots(members, work.low, work.low, TOUCHING, ONE, work.ranks, work.words, work.costs) == 0:
                return UNCOVERED
    return UNDECIDED


@borrowing
def search_union(
    negative: Rows,
    members: Rows,
    pieces: Pieces,
    low: Ints,
    high: Ints,
    first: int,
    last: int,
    is_loose: bool,
    work: Workspace,
) -> int:
    """Are the boxes from first up to last covered? With names, or with a witness in work.low."""
    code = COVERED
    for box in range(first, last):
        if found_slots(negative, low[box], high[box], TOUCHING, ONE, work.ranks, work.words, work.slots) == 0:
            continue
        slot = work.slots[0]
        if is_loose:
            each = loosely_uncovered(negative, members, low[box], high[box], work)
            if each == UNCOVERED:
                return UNCOVERED
            code = max(code, each)
        else:
            for axis in range(low.shape[1]):
                work.low[axis] = max(low[box, axis], negative.low[slot, axis])
            return UNCOVERED
    work.state[0] = 0
    work.state[6] += 1
    if code == COVERED:
        for box in range(first, last):
            name_owners(members, pieces, low[box], high[box], work)
    return code


# --- Changes ---------------------------------------------------------------------------------------------------------


@inner
def take_piece(pieces: Pieces, owner: int, low: Ints, high: Ints) -> None:
    """A part of the space that belongs to an owner from now on. There is room."""
    piece = pieces.state[0]
    if piece >= 0:
        pieces.state[0] = pieces.next[piece]
    else:
        piece = pieces.state[1]
        pieces.state[1] += 1
    for axis in range(len(low)):
        pieces.low[piece, axis], pieces.high[piece, axis] = low[axis], high[axis]
    pieces.next[piece] = pieces.head[owner]
    pieces.head[owner] = piece


@inlined
def take_slot(rows: Rows, free: Ints) -> int:
    """A slot for one more rectangle. There is room."""
    if rows.used[2] > 0:
        rows.used[2] -= 1
        return free[rows.used[2]]
    return rows.used[0]


@inner
def drop(rows: Rows, free: Ints, slot: int) -> None:
    remove_box(rows, slot)
    free[rows.used[2]] = slot
    rows.used[2] += 1


@inner
def put(rows: Rows, slot: int, low: Ints, high: Ints, box: int, owner: int) -> None:
    """`insert_box`, compiled once for all who call it here."""
    insert_box(rows, slot, low, high, box, owner)


@inner
def split(
    negative: Rows, free: Ints, pieces: Pieces, slot: int, low: Ints, high: Ints, owner: int, work: Workspace
) -> None:
    """Subtract low..high from one negative rectangle that it meets; what they share becomes a piece of the owner's.

    The remainder keeps the range s(d) & r(d) in the dimensions done (ERRATA, figure 4); with no remainder the
    rectangle is gone (figures 6 and 8).
    """
    for axis in range(len(low)):
        work.low[axis], work.high[axis] = negative.low[slot, axis], negative.high[slot, axis]
    parts = subtract_box(work.low, work.high, low, high, work.out_low, work.out_high)
    drop(negative, free, slot)
    for part in range(parts):
        fresh = take_slot(negative, free)
        put(negative, fresh, work.out_low, work.out_high, part, _NOBODY)
        if work.state[1] < len(work.touched):
            work.touched[work.state[1]] = fresh
            work.state[1] += 1
    take_piece(pieces, owner, work.low, work.high)
    work.state[3] += 1


@borrowing
def value(coordinate: int, is_double: bool) -> float:
    """What a coordinate measures: itself, or the double at that place in the order of doubles."""
    if not is_double:
        return np.float64(coordinate)
    magnitude = min(abs(coordinate), 0x7FEF_FFFF_FFFF_FFFF)
    exponent, fraction = magnitude >> 52, np.float64(magnitude & 0xF_FFFF_FFFF_FFFF) / 2.0**52
    size = math.ldexp(1.0 + fraction, exponent - 1023) if exponent else math.ldexp(fraction, -1022)
    return size if coordinate >= 0 else -size


@borrowing
def size(low: Ints, high: Ints, is_double: Any) -> float:
    """The volume of low..high by values, as a logarithm: a product of twenty ranges of doubles overflows."""
    total = 0.0
    for axis in range(len(low)):
        span = value(high[axis], is_double[axis]) - value(low[axis], is_double[axis])
        span += 0.0 if is_double[axis] else 1.0
        total += math.log(min(span, 1.7e308)) if span > 0 else -1e9
    return total


@inlined
def rate(negative: Rows, slot: int, low: Ints, high: Ints, metric: int, work: Workspace) -> tuple[int, float]:
    """How many rectangles a split would add (-1 to 2d - 1), and its score. The benefit is the volume that is shared."""
    faces = 0
    for axis in range(len(low)):
        faces += (negative.low[slot, axis] < low[axis]) + (negative.high[slot, axis] > high[axis])
        work.low[axis] = max(low[axis], negative.low[slot, axis])
        work.high[axis] = min(high[axis], negative.high[slot, axis])
    added = faces - 1
    if metric == INVERSE_COST:
        return added, -np.float64(added)
    benefit = size(work.low, work.high, work.is_double)
    if metric == BENEFIT or added < 1:
        return added, benefit
    return added, benefit - math.log(np.float64(added))


@inlined
def has_room(negative: Rows, pieces: Pieces, low: Ints, high: Ints, work: Workspace) -> bool:
    """Whether what comes of subtracting low..high fits; how much that is at most, in work.state."""
    found, rectangles = found_slots(negative, low, high, TOUCHING, ALL, work.ranks, work.words, work.slots), 0
    for position in range(found):
        slot = work.slots[position]
        for axis in range(len(low)):
            rectangles += (negative.low[slot, axis] < low[axis]) + (negative.high[slot, axis] > high[axis])
    work.state[4], work.state[5] = rectangles, found
    spare = len(negative.owner) - negative.used[0] + negative.used[2]
    return rectangles <= spare and found <= len(pieces.next) - pieces.state[1]


@inlined
def threshold(rule: Rule, members: int, rectangles: int, more: int) -> int:
    """New rectangles that the next member may cost, after so many; below 0 without bound. It might add `more`."""
    if rectangles + more > rule.rectangles_max:
        return 0
    if rule.is_dynamic:
        return max(0, rule.k * (members + 1) - rectangles)
    return rule.k


@inlined
def split_all(
    negative: Rows,
    free: Ints,
    pieces: Pieces,
    low: Ints,
    high: Ints,
    owner: int,
    budget: int,
    metric: int,
    work: Workspace,
) -> int:
    """Subtract the box of an owner from the rectangles that it meets, which `has_room` has listed; the budget left.

    With a budget below 0 every rectangle is split. Else splits that add none are always made, and others by falling
    score while they fit: one split changes the score of no other, since rectangles do not meet.
    """
    is_exact, kept = budget < 0, 0
    if budget == 0:
        metric = INVERSE_COST  # none will be chosen, and logarithms take time
    for position in range(work.state[5]):
        slot = work.slots[position]
        added, score = 0, 0.0
        if not is_exact:
            added, score = rate(negative, slot, low, high, metric, work)
        if is_exact or added <= 0:
            split(negative, free, pieces, slot, low, high, owner, work)
        else:
            work.slots[kept], work.costs[kept], work.scores[kept] = slot, added, score
            kept += 1
    wanted = 0
    for position in range(kept):
        wanted += work.costs[position]
    if wanted <= budget:  # all of them: no need to look for the best
        for position in range(kept):
            split(negative, free, pieces, work.slots[position], low, high, owner, work)
        return budget - wanted
    while kept > 0:
        best = -1
        for position in range(kept):
            if work.costs[position] <= budget and (best < 0 or work.scores[position] > work.scores[best]):
                best = position
        if best < 0:
            break
        budget -= work.costs[best]
        split(negative, free, pieces, work.slots[best], low, high, owner, work)
        kept -= 1
        work.slots[best], work.costs[best] = work.slots[kept], work.costs[kept]
        work.scores[best] = work.scores[kept]
    work.state[2] += kept
    return budget


@inlined
def neighbour(rows: Rows, slot: int, work: Workspace) -> int:
    """A rectangle that together with this one is a rectangle: the same ranges but in one attribute, in which one ends
    where the other begins. Or -1."""
    d = rows.low.shape[1]
    for axis in range(d):
        least, most = rows.low[slot, axis], rows.high[slot, axis]
        work.low[axis] = least - 1 if least > rows.edges[0, axis] else least
        work.high[axis] = most + 1 if most < rows.edges[1, axis] else most
    near = found_slots(rows, work.low, work.high, TOUCHING, ALL, work.ranks, work.words, work.slots)
    for position in range(near):
        other = work.slots[position]
        differing, is_next = 0, False
        for axis in range(d):
            if rows.low[slot, axis] != rows.low[other, axis] or rows.high[slot, axis] != rows.high[other, axis]:
                differing += 1
                is_next = (
                    rows.high[other, axis] < rows.low[slot, axis] and rows.high[other, axis] + 1 == rows.low[slot, axis]
                ) or (
                    rows.high[slot, axis] < rows.low[other, axis] and rows.high[slot, axis] + 1 == rows.low[other, axis]
                )
        if differing == 1 and is_next:
            return other
    return -1


@inlined
def merge_touched(rows: Rows, free: Ints, work: Workspace) -> None:
    """Merge the rectangles that changed with neighbours, and what comes of it again; up to a bound, since in many
    attributes there are many rectangles and few neighbours."""
    for _ in range(LOOKS_MAX):
        if work.state[1] == 0:
            break
        work.state[1] -= 1
        slot = work.touched[work.state[1]]
        if rows.below[0, CUTS, slot >> 6] >> np.uint64(slot & 63) & _ONE == 0:
            continue  # merged into another already
        other = neighbour(rows, slot, work)
        if other < 0:
            continue
        for axis in range(rows.low.shape[1]):
            work.out_low[0, axis] = min(rows.low[slot, axis], rows.low[other, axis])
            work.out_high[0, axis] = max(rows.high[slot, axis], rows.high[other, axis])
        drop(rows, free, other)
        drop(rows, free, slot)
        slot = take_slot(rows, free)
        put(rows, slot, work.out_low, work.out_high, _FIRST, _NOBODY)
        work.touched[work.state[1]] = slot
        work.state[1] += 1


@borrowing
def take_out(
    negative: Rows,
    free: Ints,
    pieces: Pieces,
    low: Ints,
    high: Ints,
    owner: int,
    members: int,
    budget: int,
    rule: Rule,
    work: Workspace,
) -> int:
    """Take the box of an owner out of the negative space, and merge what has changed. Returns the budget that is left,
    or NO_ROOM: nothing is done then. With the budget ASK it is that of one more member after so many. With no
    owner, -1, it only merges."""
    if owner >= 0:
        if not has_room(negative, pieces, low, high, work):
            return NO_ROOM
        allowed = threshold(rule, members, negative.used[1], work.state[4])
        if budget >= 0:  # of a member with several boxes
            allowed = min(allowed, budget)
        budget = split_all(negative, free, pieces, low, high, owner, allowed, rule.metric, work)
    if rule.is_merging:
        merge_touched(negative, free, work)
    work.state[1] = 0
    return budget


@borrowing
def decide_and_add(
    negative: Rows,
    free: Ints,
    members: Rows,
    pieces: Pieces,
    low: Ints,
    high: Ints,
    starts: Ints,
    begin: int,
    owner: int,
    count: int,
    rule: Rule,
    is_loose: bool,
    work: Workspace,
    codes: Ints,
    witness: Ints,
    begins: Ints,
    names: Ints,
) -> tuple[int, int]:
    """For each region from `begin` on, its boxes starts[i]..starts[i+1]: decide, and insert it unless it is covered,
    and take its box out of the negative space. Ends early with a region of several boxes, or for which there is no
    room: inserted, and still to be taken out; or before one whose names have no room. Returns the region that comes
    next, and how many boxes are still to be taken out, the last to be inserted. Members are `count` before."""
    n, base = len(starts) - 1, begins[begin]
    for region in range(begin, n):
        first, last = starts[region], starts[region + 1]
        code = search_union(negative, members, pieces, low, high, first, last, is_loose, work)
        codes[region] = code
        begins[region + 1] = begins[region]
        if code == COVERED:
            found, place = work.state[0], begins[region] - base
            if place + found > len(names):
                return region, 0
            for position in range(found):
                names[place + position] = work.names[position]
            begins[region + 1] += found
            continue
        for axis in range(low.shape[1]):
            witness[region, axis] = work.low[axis]
        slot, left_whole, budget = members.used[0], work.state[2], NO_ROOM
        for box in range(first, last):
            put(members, members.used[0], low, high, box, owner + region)
        if last - first == 1:
            budget = take_out(negative, free, pieces, low[first], high[first], slot, count, _ASK, rule, work)
        if budget == NO_ROOM:
            return region + 1, last - first
        is_loose |= work.state[2] > left_whole
        count += 1
    return n, 0


@borrowing
def handed_on(
    members: Rows, pieces: Pieces, owner: int, is_exact: bool, work: Workspace, low: Ints, high: Ints, heirs: Ints
) -> int:
    """What happens to the pieces of a box that has left the members' index: rectangles low, high, and who gets each:
    the slot of another box that holds it, or -1 for nobody, as for all unless it is exact. Their number, and the pieces
    are gone then; or NO_ROOM, and nothing is done."""
    d = members.low.shape[1]
    found, done, piece = 0, 0, pieces.head[owner]
    while piece >= 0:
        if found == len(heirs):
            return NO_ROOM
        for axis in range(d):
            low[found, axis], high[found, axis] = pieces.low[piece, axis], pieces.high[piece, axis]
        heirs[found] = -1
        found += 1
        piece = pieces.next[piece]
    while is_exact and done < found:  # what is left of one around its heir comes behind the others
        at_low, at_high = low[done], high[done]
        if found_slots(members, at_low, at_high, TOUCHING, ONE, work.ranks, work.words, work.slots) > 0:
            heirs[done] = heir = work.slots[0]
            parts = subtract_box(
                at_low, at_high, members.low[heir], members.high[heir], work.out_low, work.out_high
            )  # fmt: skip
            if found + parts > len(heirs):
                return NO_ROOM
            for part in range(parts):
                for axis in range(d):
                    low[found, axis], high[found, axis] = work.out_low[part, axis], work.out_high[part, axis]
                heirs[found] = -1
                found += 1
        done += 1
    while pieces.head[owner] >= 0:
        piece = pieces.head[owner]
        pieces.head[owner] = pieces.next[piece]
        pieces.next[piece] = pieces.state[0]
        pieces.state[0] = piece
    return found


@borrowing
def take_pieces(pieces: Pieces, owners: Ints, low: Ints, high: Ints) -> None:
    for position in range(len(owners)):
        take_piece(pieces, owners[position], low[position], high[position])
