"""A packed tree of blocks: which boxes hold this point? 64 children a node, each node a block (blocks.py).

Boxes are divided into blocks of 64 (partition.py); the boxes around up to 64 blocks are the lanes of a node one level
up, and so on to the root. No box is stored twice, and a box costs 2 bytes for each attribute that its block bounds,
4 for its slot, and some 4 % of that for the levels above.

    root        [ lane: node 7 | lane: node 8 | ... ]      a lane passes: go there
    node 7      [ lane: leaf 0 | lane: leaf 1 | ... ]
    leaf 0      [ slot 17 | slot 4 | slot 230 | ... ]      a lane passes surely: a match; else look at the exact bounds

Two ways down. One event at a time, with a stack. Or many together: each node with the list of events that reach it,
so that the node's codes are loaded once for all of them and the branches of neighbours are alike; that wins from
some two dozen events on, even over a million boxes, where lists at the leaves are short.

A tree never changes; what is discarded from it is marked in `Exact.died` (entries.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from thatch.jit import address, carray, float64_at, int32_at, kernel, lowest, uint8_at
from thatch.matching.blocks import (
    EMPTY_LANE,
    LANES,
    UNBOUNDED_ABOVE,
    code,
    lanes_around,
    lanes_at,
    lanes_meeting,
    position,
)
from thatch.matching.entries import Exact, filter_candidates, opened
from thatch.matching.partition import by_pairs, partition
from thatch.region.boxes import with_room
from thatch.space.arrays import Ints

DROP_AFTER = 4  # columns tested before events without a lane are dropped; 2, 3 and 6 were no faster
SCALE_MIN, SCALE_MAX = 1e-306, 1e300  # a span may be beyond float64 or too small to divide by; never times zero
_ONE = np.uint64(1)


class Tree(NamedTuple):
    """Leaves come first, the root last."""

    lanes: Any  # int32 [nodes, 64]: slots of a leaf, children of an inner node
    columns_at: Any  # int32 [nodes + 1]: the columns of each node, from and to
    axis: Any  # int32 [columns]: which attribute
    scaling: Any  # float64 [columns, 2]: base and scale
    codes: Any  # uint8 [columns, 2, 64]: lower bounds, widths
    size: Ints  # [1]: leaves

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)


def empty_tree(nodes: int = 0, columns: int = 0) -> Tree:
    """An empty tree with room for so many nodes."""
    return Tree(
        np.zeros((nodes, LANES), np.int32), np.zeros(nodes + 1, np.int32), np.empty(columns, np.int32),
        np.empty((columns, 2)), np.empty((columns, 2, LANES), np.uint8), np.zeros(1, np.int64),
    )  # fmt: skip


def build_tree(exact: Exact, slots: Any, edges: Ints, doubles: Any) -> Tree:
    """Of the entries in these slots (int32); `edges` are the ends of the axes, `doubles` tells which are double.

    NumPy allocates, sorts and joins; kernels write to what they are given. Numba compiles its own of each, for every
    kind of array, and that took longer than the kernels.
    """
    if not len(slots):
        return empty_tree()
    rows = np.empty((len(slots), 2 * exact.low.shape[1]), np.float32)
    normalised(exact.low, exact.high, slots, edges, doubles, rows)
    order = slots.copy()
    parts = partition(rows, order, by_pairs(rows, order))
    begins, members = grouped(parts)
    return packed(exact, order, begins, members, edges, doubles)


@kernel
def lower_end(low: int, edge: int, is_double: bool) -> float:
    return -np.inf if low == edge else position(low, is_double)


@kernel
def upper_end(high: int, edge: int, is_double: bool) -> float:
    return np.inf if high == edge else position(high, is_double)


@kernel
def share(end: float, least: float, scale: float) -> float:
    """Where an end lies in 0..1. A side without one reaches a little further than all that have one."""
    if end == -np.inf:
        return -0.01
    return 1.01 if end == np.inf else min(max((end - least) * scale, 0.0), 1.0)


@kernel
def normalised(low: Ints, high: Ints, slots: Any, edges: Ints, doubles: Any, rows: Any) -> None:
    """Boxes as rows of float32 in 0..1, relative to the finite ends of a sample: good enough to divide them by."""
    n, d = len(slots), low.shape[1]
    for axis in range(d):
        first, last, is_double = edges[0, axis], edges[1, axis], doubles[axis]
        least, most = np.inf, -np.inf
        for row in range(0, n, max(1, n // 1024)):  # some will do
            one = lower_end(low[slots[row], axis], first, is_double)
            other = upper_end(high[slots[row], axis], last, is_double)
            least = min(least, finite(one, np.inf), finite(other, np.inf))
            most = max(most, finite(one, -np.inf), finite(other, -np.inf))
        scale = max(1.0 / (most - least), SCALE_MIN) if most > least else 0.0
        for row in range(n):
            one = lower_end(low[slots[row], axis], first, is_double)
            other = upper_end(high[slots[row], axis], last, is_double)
            rows[row, 2 * axis] = share(one, least, scale)
            rows[row, 2 * axis + 1] = share(other, least, scale)


@kernel
def finite(end: float, otherwise: float) -> float:
    return end if -np.inf < end < np.inf else otherwise


def grouped(parts: Ints) -> tuple[Ints, Ints]:
    """The nodes of the tree: where the rows of each block begin, in order; and the members of the nodes above them, as
    numbers of nodes, of which blocks come first; -1 behind the last.

    A maximal part with at most 64 units becomes a node, whose lanes those are; nodes are the units of the next level,
    until one is left. A unit that would be alone goes up as it is.
    """
    blocks, inner = np.flatnonzero(parts[:, 2] < 0), np.flatnonzero(parts[:, 2] >= 0)
    blocks = blocks[np.argsort(parts[blocks, 0])]
    parent, node = np.full((2, len(parts)), -1, np.int64)  # node: the unit that stands at a part
    parent[parts[inner, 2]] = parent[parts[inner, 3]] = inner
    node[blocks] = np.arange(len(blocks))
    members = np.empty((len(blocks), LANES), np.int64)  # more than are needed: a node has two units or more
    count = gather(parts, parent, node, len(blocks), np.empty_like(parent), members)
    return parts[blocks, 0], members[:count]


@kernel
def gather(parts: Ints, parent: Ints, node: Ints, leaves: int, units: Ints, members: Ints) -> int:
    """Fill in the members; of how many nodes."""
    count, fill = len(parts), 0
    stack = np.empty(LANES * 2 + 2, np.int64)
    while node[0] < 0:
        for turn in range(count):
            part = count - 1 - turn
            if node[part] >= 0:
                units[part] = 1
            elif parts[part, 2] >= 0:
                units[part] = units[parts[part, 2]] + units[parts[part, 3]]
            else:
                units[part] = 0  # swallowed by a node above it
        for part in range(count):
            if node[part] >= 0 or units[part] < 2 or units[part] > LANES:
                continue
            if part > 0 and units[parent[part]] <= LANES:
                continue
            top, lane = 1, 0
            stack[0] = part
            while top > 0:
                top -= 1
                each = stack[top]
                if node[each] >= 0:
                    members[fill, lane] = node[each]
                    node[each] = -1
                    lane += 1
                elif parts[each, 2] >= 0:
                    stack[top], stack[top + 1] = parts[each, 3], parts[each, 2]
                    top += 2
            if lane < LANES:
                members[fill, lane] = -1
            node[part] = leaves + fill
            fill += 1
    return fill


def packed(exact: Exact, order: Any, begins: Ints, members: Ints, edges: Ints, doubles: Any) -> Tree:
    """The blocks: first the leaves, then the nodes above them."""
    d, nodes = exact.low.shape[1], len(begins) + len(members)
    tree = empty_tree(nodes, nodes * min(d, 4) + d)
    tree.size[0] = len(begins)
    boxes = exact.low, exact.high, order, begins, members, edges, doubles
    room = np.empty((nodes, 2, d)), np.empty((2, d, LANES)), np.empty(d)
    node = pack(*boxes, tree, *room, 0)
    while node < nodes:  # twice the columns, and on from there
        tree = tree._replace(axis=_twice(tree.axis), scaling=_twice(tree.scaling), codes=_twice(tree.codes))
        node = pack(*boxes, tree, *room, node)
    used = slice(tree.columns_at[nodes])
    return tree._replace(axis=tree.axis[used].copy(), scaling=tree.scaling[used].copy(), codes=tree.codes[used].copy())


def _twice(array: Any) -> Any:
    return np.concatenate((array, np.empty_like(array)))


@kernel
def pack(
    low: Ints,
    high: Ints,
    order: Any,
    begins: Ints,
    members: Ints,
    edges: Ints,
    doubles: Any,
    tree: Tree,
    bounds: Any,
    ends: Any,
    mean: Any,
    first: int,
) -> int:
    """Write the blocks from the first on, from the ends of what they hold; where the room for columns ended.

    `bounds` are those of the box around each node; `ends` and `mean` are room for those of one node.
    """
    d, leaves, nodes = low.shape[1], len(begins), len(begins) + len(members)
    lanes, columns_at, axes, scaling, codes = tree.lanes, tree.columns_at, tree.axis, tree.scaling, tree.codes
    for node in range(first, nodes):
        columns = columns_at[node]
        if columns + d > len(axes):
            return node
        if node < leaves:
            start = begins[node]
            count = (begins[node + 1] if node + 1 < leaves else len(order)) - start
            for lane in range(count):
                slot = order[start + lane]
                lanes[node, lane] = slot
                for axis in range(d):
                    ends[0, axis, lane] = lower_end(low[slot, axis], edges[0, axis], doubles[axis])
                    ends[1, axis, lane] = upper_end(high[slot, axis], edges[1, axis], doubles[axis])
        else:
            count = 0
            while count < LANES and members[node - leaves, count] >= 0:
                child = members[node - leaves, count]
                lanes[node, count] = child
                for axis in range(d):
                    ends[0, axis, count], ends[1, axis, count] = bounds[child, 0, axis], bounds[child, 1, axis]
                count += 1
        # Which attributes does it bound, and how narrowly?
        bounded = 0
        for axis in range(d):
            least, most = np.inf, -np.inf
            low_end, high_end = np.inf, -np.inf  # of all; and of those that end least far out
            low_most, high_least = -np.inf, np.inf
            for lane in range(count):
                one, other = ends[0, axis, lane], ends[1, axis, lane]
                low_end, low_most = min(low_end, one), max(low_most, one)
                high_end, high_least = max(high_end, other), min(high_least, other)
                least = min(least, finite(one, np.inf), finite(other, np.inf))
                most = max(most, finite(one, -np.inf), finite(other, -np.inf))
            bounds[node, 0, axis], bounds[node, 1, axis] = low_end, high_end
            if low_most == -np.inf and high_least == np.inf:  # none of them bounds it
                continue
            column = columns + bounded
            if not least <= most:
                least = most = 0.0
            base = least
            span = most - least
            scale = min(max(252.99 / span, SCALE_MIN), SCALE_MAX) if span > 0.0 else SCALE_MAX
            total = 0
            for lane in range(LANES):
                if lane < count:
                    first = code(ends[0, axis, lane], base, scale)
                    last = code(ends[1, axis, lane], base, scale)
                    codes[column, 0, lane], codes[column, 1, lane] = first, last - first
                    total += last - first
                else:
                    codes[column, 0, lane], codes[column, 1, lane] = EMPTY_LANE, 0
            axes[column], scaling[column, 0], scaling[column, 1] = axis, base, scale
            mean[bounded] = total / count
            bounded += 1
        if bounded == 0:  # boxes of everything: a column tells which lanes are there
            axes[columns], scaling[columns, 0], scaling[columns, 1] = 0, 0.0, 1.0
            for lane in range(LANES):
                codes[columns, 0, lane] = 0 if lane < count else EMPTY_LANE
                codes[columns, 1, lane] = UNBOUNDED_ABOVE if lane < count else 0
            bounded = 1
        for place in range(1, bounded):  # the narrowest first: it leaves the fewest lanes
            other = place
            while other > 0 and mean[other - 1] > mean[other]:
                one, two = columns + other - 1, columns + other
                mean[other - 1], mean[other] = mean[other], mean[other - 1]
                axes[one], axes[two] = axes[two], axes[one]
                for part in range(2):
                    scaling[one, part], scaling[two, part] = scaling[two, part], scaling[one, part]
                    for lane in range(LANES):
                        codes[one, part, lane], codes[two, part, lane] = codes[two, part, lane], codes[one, part, lane]
                other -= 1
        columns_at[node + 1] = columns + bounded
    return nodes


def tree_handle(tree: Tree) -> list[int]:
    """A tree as `match_each` takes it."""
    arrays = (tree.lanes, tree.columns_at, tree.axis, tree.scaling, tree.codes)
    return [len(tree.lanes), int(tree.size[0]), len(tree.axis), *map(address, arrays)]


@kernel
def match_each(handle: Ints, trees: Ints, moment: Ints, is_double: Any, points: Ints, doubles: Any) -> Ints:
    """Rows and numbers, one point at a time: against some trees and a run of entries.

    `handle` is that of the entries, line i of `trees` that of tree i; `moment` is a version and the run, from and to.
    """
    n, d = points.shape
    version, first, last = moment[0], moment[1], moment[2]
    exact = opened(handle, d)
    low, high = exact.low, exact.high
    rows, slots = np.empty(64, np.int64), np.empty(64, np.int64)
    found: Any = np.int64(0)  # a plain 0 would have `verified` compiled for it as well
    place = np.empty(d, np.float64)
    stack = np.empty(LANES * 12, np.int64)
    for row in range(n):
        if found + last - first > len(rows):
            rows, slots = grown(rows, found + last - first), grown(slots, found + last - first)
        for slot in range(first, last):
            holds = True
            for axis in range(d):
                holds &= (low[slot, axis] <= points[row, axis]) & (points[row, axis] <= high[slot, axis])
            if holds:
                rows[found], slots[found] = row, ~slot
                found += 1
        for axis in range(d):
            place[axis] = position(points[row, axis], is_double[axis])
        for tree in range(len(trees)):
            nodes, leaves, columns = trees[tree, 0], trees[tree, 1], trees[tree, 2]
            lanes = carray(int32_at(trees[tree, 3]), (nodes, LANES))
            columns_at = carray(int32_at(trees[tree, 4]), nodes + 1)
            axes = carray(int32_at(trees[tree, 5]), columns)
            scaling = carray(float64_at(trees[tree, 6]), (columns, 2))
            codes = carray(uint8_at(trees[tree, 7]), (columns, 2, LANES))
            top = 1
            stack[0] = nodes - 1
            while top > 0:
                top -= 1
                node = stack[top]
                mask = ~np.uint64(0)
                begin, end = columns_at[node], columns_at[node + 1]
                for column in range(begin, end):
                    value = code(place[axes[column]], scaling[column, 0], scaling[column, 1])
                    mask &= lanes_at(codes, column, np.uint8(value))
                    if mask == 0:
                        break
                if mask == 0:
                    continue
                if node >= leaves:
                    if top + LANES > len(stack):
                        stack = grown(stack, top + LANES)
                    while mask != 0:
                        stack[top] = lanes[node, lowest(mask)]
                        top += 1
                        mask &= mask - _ONE
                    continue
                sure = mask
                for column in range(begin, end):
                    value = code(place[axes[column]], scaling[column, 0], scaling[column, 1])
                    sure &= lanes_around(codes, column, np.uint8(value))
                if found + LANES > len(rows):
                    rows, slots = grown(rows, found + LANES), grown(slots, found + LANES)
                while mask != 0:
                    lane = lowest(mask)
                    mask &= mask - _ONE
                    entry = np.int64(lanes[node, lane])
                    rows[found] = row
                    slots[found] = ~entry if (sure >> np.uint64(lane)) & _ONE else entry
                    found += 1
    found = filter_candidates(exact, version, points, doubles, rows, slots, found)
    pairs = np.empty((2, found), np.int64)
    for pair in range(found):
        pairs[0, pair], pairs[1, pair] = rows[pair], slots[pair]
    return pairs


@kernel
def grown(array: Ints, size: int) -> Ints:
    larger = np.empty(max(2 * len(array), 2 * size), np.int64)
    for place in range(len(array)):
        larger[place] = array[place]
    return larger


class TreeScratch(NamedTuple):
    """What `match_lists` writes to. New memory costs more than the search of a small tree: it is used again."""

    places: Any  # float64 [points, d]
    masks: Any  # uint64 [points]: the lanes that each point of a list passes
    arena: Any  # int32: lists of rows: those of the nodes on the stack, one after another
    rows: Ints  # candidates
    slots: Ints


def new_scratch(points: int, d: int) -> TreeScratch:
    return TreeScratch(
        np.empty((points, d), np.float64), np.empty(points, np.uint64), np.empty(4 * points + LANES, np.int32),
        np.empty(2 * points + LANES, np.int64), np.empty(2 * points + LANES, np.int64),
    )  # fmt: skip


@kernel
def match_lists(tree: Tree, is_double: Any, points: Ints, scratch: TreeScratch) -> tuple[Ints, Ints, int]:
    """All points together, node by node: rows and slots for `verified`, and how many."""
    lanes, columns_at, axes, scaling, codes = tree.lanes, tree.columns_at, tree.axis, tree.scaling, tree.codes
    n, d = points.shape
    places, masks, arena = scratch.places, scratch.masks, scratch.arena
    rows, slots = scratch.rows, scratch.slots
    found = 0
    for axis in range(d):
        for row in range(n):
            places[row, axis] = position(points[row, axis], is_double[axis])
    leaves = tree.size[0]
    stack = np.empty((LANES * 12, 3), np.int64)
    heads = np.empty(LANES, np.int64)
    for row in range(n):
        arena[row] = row
    stack[0, 0], stack[0, 1], stack[0, 2] = len(lanes) - 1, 0, n
    top = 1
    while top > 0:
        top -= 1
        node, start, stop = stack[top, 0], stack[top, 1], stack[top, 2]
        begin, end = columns_at[node], columns_at[node + 1]
        count = stop - start
        for column in range(begin, end):
            axis, base, scale = axes[column], scaling[column, 0], scaling[column, 1]
            if column == begin:
                for each in range(count):
                    value = code(places[np.uint32(arena[start + each]), axis], base, scale)
                    masks[each] = lanes_at(codes, column, np.uint8(value))
                continue
            if column == begin + DROP_AFTER:
                kept = 0
                for each in range(count):
                    arena[start + kept], masks[kept] = arena[start + each], masks[each]
                    kept += masks[each] != 0
                count = kept
            for each in range(count):
                value = code(places[np.uint32(arena[start + each]), axis], base, scale)
                masks[each] &= lanes_at(codes, column, np.uint8(value))
        if node >= leaves:
            for lane in range(LANES):
                heads[lane] = 0
            for each in range(count):
                mask = masks[each]
                while mask != 0:
                    heads[lowest(mask)] += 1
                    mask &= mask - _ONE
            at = stop
            if top + LANES > len(stack):
                stack = with_room(stack, len(stack))
            for lane in range(LANES):
                if heads[lane] > 0:
                    stack[top, 0], stack[top, 1], stack[top, 2] = lanes[node, lane], at, at + heads[lane]
                    top += 1
                    at, heads[lane] = at + heads[lane], at
            if at > len(arena):
                larger = np.empty(2 * at, np.int32)
                for place in range(stop):
                    larger[place] = arena[place]
                arena = larger
            for each in range(count):
                mask = masks[each]
                row = arena[start + each]
                while mask != 0:
                    lane = lowest(mask)
                    mask &= mask - _ONE
                    arena[heads[lane]] = row
                    heads[lane] += 1
            continue
        for each in range(count):
            mask = masks[each]
            if mask == 0:
                continue
            at_row = np.uint32(arena[start + each])
            sure = mask
            for column in range(begin, end):
                value = code(places[at_row, axes[column]], scaling[column, 0], scaling[column, 1])
                sure &= lanes_around(codes, column, np.uint8(value))
            if found + LANES > len(rows):
                rows, slots = grown(rows, found + LANES), grown(slots, found + LANES)
            while mask != 0:
                lane = lowest(mask)
                mask &= mask - _ONE
                entry = np.int64(lanes[node, lane])
                rows[found] = at_row
                slots[found] = ~entry if (sure >> np.uint64(lane)) & _ONE else entry
                found += 1
    return rows, slots, found


@kernel
def sort_run(values: Ints, spare: Ints, start: int, stop: int) -> None:
    """Sort a run of values that are not negative: by bytes from the lowest on, up to the highest one that is not zero
    everywhere. `spare` is as long."""
    heads = np.empty(257, np.int64)
    every, shift = 0, 0
    for place in range(start, stop):
        every |= values[place]
    while shift < 64 and every >> shift > 0:
        for byte in range(257):
            heads[byte] = 0
        for place in range(start, stop):
            heads[((values[place] >> shift) & 255) + 1] += 1
        heads[0] = start
        for byte in range(256):
            heads[byte + 1] += heads[byte]
        for place in range(start, stop):
            byte = (values[place] >> shift) & 255
            spare[heads[byte]] = values[place]
            heads[byte] += 1
        for place in range(start, stop):
            values[place] = spare[place]
        shift += 8


@kernel
def sort_unique_pairs(rows: Ints, numbers: Ints, n: int) -> tuple[Ints, Ints]:
    """Pairs by row, then by number, each once: a counting sort, then a sort of each row's few."""
    heads = np.zeros(n + 1, np.int64)
    for pair in range(len(rows)):
        heads[rows[pair] + 1] += 1
    for row in range(n):
        heads[row + 1] += heads[row]
    out_rows, out_numbers = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    for pair in range(len(rows)):
        at = heads[rows[pair]]
        out_numbers[at] = numbers[pair]
        heads[rows[pair]] = at + 1
    start: Any = np.int64(0)  # a plain 0 would have `sort_run` compiled for it as well
    found = 0
    for row in range(n):
        stop = heads[row]
        if stop - start > 64:
            sort_run(out_numbers, out_rows, start, stop)  # rows are written up to here at most
        else:
            for place in range(start + 1, stop):
                value, other = out_numbers[place], place
                while other > start and out_numbers[other - 1] > value:
                    out_numbers[other] = out_numbers[other - 1]
                    other -= 1
                out_numbers[other] = value
        for place in range(start, stop):
            if place == start or out_numbers[place] != out_numbers[place - 1]:
                out_rows[found] = row
                out_numbers[found] = out_numbers[place]
                found += 1
        start = stop
    return out_rows[:found], out_numbers[:found]


@kernel
def meeting_slots(tree: Tree, edges: Ints, is_double: Any, low: Ints, high: Ints) -> Ints:
    """The slots of a superset of the boxes that meet low..high."""
    lanes, columns_at, axes, scaling, codes = tree.lanes, tree.columns_at, tree.axis, tree.scaling, tree.codes
    slots, found = np.empty(LANES, np.int64), 0
    stack = np.empty(LANES * 12, np.int64)
    top = 0
    if len(lanes) > 0:
        stack[0], top = len(lanes) - 1, 1
    while top > 0:
        top -= 1
        node = stack[top]
        mask = ~np.uint64(0)
        for column in range(columns_at[node], columns_at[node + 1]):
            axis, base, scale = axes[column], scaling[column, 0], scaling[column, 1]
            first = code(lower_end(low[axis], edges[0, axis], is_double[axis]), base, scale)
            last = code(upper_end(high[axis], edges[1, axis], is_double[axis]), base, scale)
            mask &= lanes_meeting(codes, column, np.uint8(first), np.uint8(last))
        if top + LANES > len(stack):
            stack = grown(stack, top + LANES)
        if found + LANES > len(slots):
            slots = grown(slots, found + LANES)
        while mask != 0:
            child = lanes[node, lowest(mask)]
            mask &= mask - _ONE
            if node >= tree.size[0]:
                stack[top] = child
                top += 1
            else:
                slots[found] = child
                found += 1
    return slots[:found]
