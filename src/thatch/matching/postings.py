"""Watchlists: entries with a large set of single values are looked up by the event's value, as texts are by a word.

A box around 2,000 symbols tells nothing, and 2,000 boxes are too many. So each value has the list of the entries whose
set holds it. An event's value leads to one list; its entries are tested by their boxes (the price range beside the
symbols) and by whatever other checks they have. 4 bytes for each value of each set.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from thatch.jit import kernel
from thatch.matching.entries import LAST, Exact
from thatch.matching.tree import grown
from thatch.space.arrays import Ints, lower_bound


class Postings(NamedTuple):
    keys: Ints  # values, ascending within an attribute
    keys_at: Any  # int64 [d + 1]: the keys of each attribute, from and to
    starts: Ints  # [keys + 1]: the list of each key, from and to
    slots: Any  # int32
    entries: Any  # int32: the slots of all entries here

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self)


def build_postings(exact: Exact, slots: Any, checks: Ints) -> Postings:
    """Of the entries in these slots (int32), each to be looked up by one of its checks."""
    d = exact.low.shape[1]
    axes = exact.checks[checks, 0]
    keys_at, keys, starts, lists = np.zeros(d + 1, np.int64), [], [np.zeros(1, np.int64)], []
    for axis in range(d):
        own, places = slots[axes == axis], exact.checks[checks[axes == axis], 1:3].copy()
        if len(own):
            known = np.unique(np.concatenate([exact.values[start:stop:2] for start, stop in places.tolist()]))
            counts, filled = fill_postings(exact.values, places, own, known)
            keys.append(known)
            starts.append(starts[-1][-1] + np.cumsum(counts))
            lists.append(filled)
        keys_at[axis + 1] = sum(map(len, keys))
    return Postings(
        np.concatenate([np.zeros(0, np.int64), *keys]), keys_at, np.concatenate(starts),
        np.concatenate([np.zeros(0, np.int32), *lists]), slots.copy(),
    )  # fmt: skip


@kernel
def fill_postings(values: Ints, places: Ints, slots: Any, keys: Ints) -> tuple[Ints, Any]:
    """How many entries each key has, and the entries, key by key. Sets and keys are sorted: one walk through both."""
    counts = np.zeros(len(keys), np.int64)
    total = 0
    for each in range(len(slots)):
        start, stop, at = places[each, 0], places[each, 1], 0
        total += (stop - start) >> 1
        for place in range(start, stop, 2):
            while keys[at] < values[place]:
                at += 1
            counts[at] += 1
    heads, at = np.empty(len(keys), np.int64), 0
    for place in range(len(keys)):
        heads[place], at = at, at + counts[place]
    lists = np.empty(total, np.int32)
    for each in range(len(slots)):
        start, stop, at = places[each, 0], places[each, 1], 0
        for place in range(start, stop, 2):
            while keys[at] < values[place]:
                at += 1
            lists[heads[at]] = slots[each]
            heads[at] += 1
    return counts, lists


@kernel
def match_posted(
    postings: Postings, exact: Exact, version: int, points: Ints
) -> tuple[Ints, Ints, int, Ints, Ints, int]:
    """Rows and numbers, and how many; rows and slots for `verified`, of those with further checks, and how many."""
    keys, keys_at, starts, lists = postings.keys, postings.keys_at, postings.starts, postings.slots
    low, high, owner, died = exact.low, exact.high, exact.owner, exact.died
    checks_at, checks = exact.checks_at, exact.checks
    n, d = points.shape
    rows, numbers = np.empty(64, np.int64), np.empty(64, np.int64)
    found = 0
    open_rows, open_slots = np.empty(64, np.int64), np.empty(64, np.int64)
    pending = 0
    for row in range(n):
        for axis in range(d):
            value = points[row, axis]
            at = lower_bound(keys, keys_at[axis], keys_at[axis + 1], value)
            if at == keys_at[axis + 1] or keys[at] != value:
                continue
            for place in range(starts[at], starts[at + 1]):
                slot = lists[place]
                holds = died[slot] > version
                for other in range(d):
                    holds &= (low[slot, other] <= points[row, other]) & (points[row, other] <= high[slot, other])
                if not holds:
                    continue
                if checks[checks_at[slot], 4] & LAST:  # the set, which holds it, is its only check
                    if found == len(rows):
                        rows, numbers = grown(rows, len(rows)), grown(numbers, len(rows))
                    rows[found], numbers[found] = row, owner[slot]
                    found += 1
                else:
                    if pending == len(open_rows):
                        size = len(open_rows)
                        open_rows, open_slots = grown(open_rows, size), grown(open_slots, size)
                    open_rows[pending], open_slots[pending] = row, ~np.int64(slot)
                    pending += 1
    return rows, numbers, found, open_rows, open_slots, pending
