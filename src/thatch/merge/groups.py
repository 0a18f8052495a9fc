"""What is merged: shapes, trees of mergers, groups with their riders, and a sample of events to weigh them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from thatch.merge.bounding import Bound
from thatch.region.region import Region
from thatch.space.space import Space


class MergeShape:
    """A region with all the ids that want it: a leaf of a merger's tree, or riding along in one."""

    __slots__ = ("arrival", "carrier", "ids", "node", "region")

    def __init__(self, region: Region, arrival: int) -> None:
        self.region = region
        self.arrival = arrival
        self.ids: dict[Any, None] = {}
        self.node: MergeNode | None = None  # its leaf
        self.carrier: MergeGroup | None = None  # else the group in which it rides, or one that has become part of that


class MergeNode:
    """A region and the two of which it was merged; or a shape's own."""

    __slots__ = ("added", "bits", "group", "leaves", "left", "parent", "region", "right", "shape")

    def __init__(self, region: Region, bits: int) -> None:
        self.region = region
        self.added = 0.0
        self.bits = bits  # the sampled events that the leaves hold
        self.leaves = 1
        self.shape: MergeShape | None = None
        self.left: MergeNode | None = None
        self.right: MergeNode | None = None
        self.parent: MergeNode | None = None
        self.group: MergeGroup | None = None  # of a root

    def shapes(self) -> Iterator[MergeShape]:
        nodes = [self]
        while nodes:
            node = nodes.pop()
            if node.shape is not None:
                yield node.shape
            elif node.left is not None and node.right is not None:
                nodes += (node.right, node.left)


class MergeGroup:
    """What is forwarded as one: a tree, and the shapes that lie inside its region without having made it."""

    __slots__ = (
        "into",
        "is_apart",
        "key",
        "number",
        "origins",
        "partners",
        "riders",
        "root",
        "signatures",
        "slots",
        "was_full",
    )

    def __init__(self, root: MergeNode, number: int, riders: dict[MergeShape, None]) -> None:
        self.root = root
        root.group = self
        self.number = number  # rising: ties are broken by it
        self.riders = riders
        self.key: int | None = None
        self.origins: dict[int, None] = {}  # keys of groups that were taken apart, of which it has parts
        self.into: MergeGroup | None = None  # the group of which it has become part
        self.is_apart = False
        self.slots: list[int] = []  # of its terms; none before it is known to others
        self.signatures: list[Any] = []
        self.partners: list[tuple[float, MergeGroup, Bound, float]] = []  # the best last
        self.was_full = False  # there may be more partners than these

    @property
    def is_alive(self) -> bool:
        return self.into is None and not self.is_apart


class EventSample:
    """Events to weigh mergers with."""

    def __init__(self, events: Any, space: Space) -> None:
        self._events, self._space = events, space
        self._label_codes = space.label_codes
        self._columns = space.encode_batch(events)

    def bits(self, region: Region) -> int:
        """Which events are in a region, as a set of bits."""
        if not self._space.is_current(self._label_codes):
            self._label_codes = self._space.label_codes
            self._columns = self._space.encode_batch(self._events)
        return int.from_bytes(np.packbits(region.contains_points(self._columns)).tobytes(), "big")


def added_share(one: MergeNode, other: MergeNode, bound: Bound) -> float:
    """What the term around two adds to what both were made of, at most, as a share of that."""
    filled = bound.filled(1 / (1 + one.added), 1 / (1 + other.added))
    return 1 / filled - 1 if filled else math.inf


def group_of(shape: MergeShape) -> MergeGroup:
    """The group in which a shape is now."""
    if shape.node is not None:
        node = shape.node
        while node.parent is not None:
            node = node.parent
        assert node.group is not None
        return node.group
    assert shape.carrier is not None
    shape.carrier = alive(shape.carrier)
    return shape.carrier


def alive(group: MergeGroup) -> MergeGroup:
    """The group of which another has become part."""
    while group.into is not None:
        group = group.into
    return group


def trees_without(leaves: Iterable[MergeNode]) -> list[MergeNode]:
    """The largest subtrees of a tree that have none of these leaves, from left to right."""
    broken = set()
    root = None
    for leaf in leaves:
        node: MergeNode | None = leaf
        while node is not None and node not in broken:
            broken.add(node)
            root, node = (node if node.parent is None else root), node.parent
    kept = []
    nodes = [root]
    while nodes:
        node = nodes.pop()
        assert node is not None
        if node not in broken:
            node.parent = None
            kept.append(node)
        elif node.shape is None:
            nodes += (node.right, node.left)
    return kept
