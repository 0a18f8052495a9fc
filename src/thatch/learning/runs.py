"""Long work in pieces: rows of different sizes, some at a time, so that what is computed at once fits into memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from thatch.space.arrays import Ints


def runs(sizes: Ints, at_once: int) -> Iterator[tuple[int, int]]:
    """From and to of runs of rows whose sizes sum up to so much at most; a row that is larger has a run of its own.

    >>> list(runs(np.array([3, 4, 9, 1, 1]), 8))
    [(0, 2), (2, 3), (3, 5)]
    """
    ends, start = np.cumsum(sizes), 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + at_once, "right")))
        yield start, stop
        start = stop


def within_runs(sizes: Ints) -> Ints:
    """Numbers from 0 within each row, one row after the other.

    >>> within_runs(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
