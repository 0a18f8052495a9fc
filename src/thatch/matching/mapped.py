"""An index as one run of bytes: written once, mapped into memory by any number of processes, ready without a copy.

    THATCH INDEX 1\\n | length of the head, 8 bytes | head: MessagePack | the arrays, each from a multiple of 64 on

The head has the space, its labels (coordinates mean something only with their encoder) and where each
array is. Opening costs what the head costs; the pages of the arrays are read when a search first touches them, and
processes of one machine share them. A file is trusted as far as its head goes: it travels from a driver to its own
workers, within one job. What is to be kept is a snapshot (snapshot.py), which is checked.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from thatch.errors import SnapshotError
from thatch.matching.axes import Axes
from thatch.matching.entries import Exact
from thatch.matching.index import Level, Levels, TreeView
from thatch.matching.postings import Postings
from thatch.matching.tree import Tree
from thatch.region.packing import PackedLabels, pack_labels, restore_labels
from thatch.space.space import Space

MAGIC = b"THATCH INDEX 1\n"
ALIGNED = 64


class ArrayPlace(msgspec.Struct, array_like=True):
    """Where an array is, counted from the first one."""

    dtype: str
    shape: list[int]
    start: int


class Head(msgspec.Struct):
    space: str
    labels: PackedLabels
    ball_axes: list[int]
    version: int
    first: int
    last: int
    levels: list[tuple[int, bool]]  # of each: its size, whether it has postings
    arrays: list[ArrayPlace]  # of the entries; then of each level those of its tree and its postings


def packed(view: TreeView) -> bytes:
    """A view as bytes for `opened`."""
    arrays = [np.ascontiguousarray(array[: view.last] if at < 5 else array) for at, array in enumerate(view.exact)]
    for level in view.levels.all:
        arrays += [*level.tree, *(level.postings or ())]
    places, end = [], 0
    for array in arrays:
        start = -(-end // ALIGNED) * ALIGNED
        places.append(ArrayPlace(array.dtype.str, list(array.shape), start))
        end = start + array.nbytes
    head = msgspec.msgpack.encode(
        Head(
            view.space.to_json(),
            pack_labels(view.label_codes),
            sorted(view.ball_axes),
            view.version,
            view.first,
            view.last,
            [(level.size, level.postings is not None) for level in view.levels.all],
            places,
        )
    )
    base = _base(len(head))
    data = bytearray(base + end)
    data[:base] = (MAGIC + len(head).to_bytes(8, "little") + head).ljust(base, b"\0")
    for place, array in zip(places, arrays, strict=True):
        start = base + place.start
        data[start : start + array.nbytes] = array.reshape(-1).view(np.uint8).data
    return bytes(data)


def opened(path: Path) -> TreeView:
    """The view in a file, as part of a space of its own."""
    with open(path, "rb") as file:
        # A private mapping: its arrays count as writable, so that kernels take them as they take any, and nobody writes
        # to them, so that all processes share the pages.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    if data[: len(MAGIC)] != MAGIC:
        raise SnapshotError(f"{path}: not a match index, or of another version of the format")
    start = len(MAGIC) + 8
    length = int.from_bytes(data[len(MAGIC) : start], "little")
    head = msgspec.msgpack.decode(data[start : start + length], type=Head)
    base = _base(length)
    arrays = [_array(data, place, base) for place in head.arrays]
    exact, arrays = Exact(*arrays[: len(Exact._fields)]), arrays[len(Exact._fields) :]
    levels = []
    for size, has_postings in head.levels:
        tree, arrays = Tree(*arrays[: len(Tree._fields)]), arrays[len(Tree._fields) :]
        postings = None
        if has_postings:
            postings, arrays = Postings(*arrays[: len(Postings._fields)]), arrays[len(Postings._fields) :]
        levels.append(Level(tree, postings, size))
    space = Space.from_json(head.space)
    restore_labels(space, head.labels)
    return TreeView(
        space.label_codes, Axes.of(space), exact, frozenset(head.ball_axes), Levels(levels), head.first, head.last,
        head.version,
    )  # fmt: skip


def _base(head: int) -> int:
    """Where the arrays begin, after a head of this length."""
    return -(-(len(MAGIC) + 8 + head) // ALIGNED) * ALIGNED


def _array(data: Any, place: ArrayPlace, base: int) -> Any:
    dtype, count = np.dtype(place.dtype), int(np.prod(place.shape))
    if not count:
        return np.zeros(place.shape, dtype)
    return np.frombuffer(data, dtype, count, base + place.start).reshape(place.shape)
