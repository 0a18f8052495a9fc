r"""Merging: several regions are forwarded as one that holds them all; un-merging when one of them leaves.

The idea: what one region says as well as two is forwarded once. A *perfect* merger is the union of its members; an
*imperfect* one is the least simple term around them (bounding.py) and adds events, within a budget. Mergers are trees:
a member that leaves takes its ancestors with it, and the subtrees along its way to the root are what is merged again.

          *                                c leaves: two subtrees are left, as exact as they were. They merge with
        /   \                              one another, or with others, or stay as they are
       *     *                 *     *
      / \   / \      ─▶       / \   / \
     *   c d   e             a   b d   e
    / \
   a   b

From: REBECA (Mühl: Large-Scale Content-Based Publish/Subscribe Systems, 2002), whose perfect mergers unite two filters
that differ in one attribute; and Crespo, Buyukkokten, Garcia-Molina: Query merging (2003), who merge by bounding boxes,
greedily, the pair with the least cost first.

What differs: a side of a term is a set of intervals, so two regions that differ in one attribute always merge
perfectly, touching or not, up to `intervals_max` intervals. Regions of several terms merge if their union has no more
terms than the larger one. What lies inside a merger rides along: it costs nothing while it comes and goes. The cost of
a pair is the share of the bounding term that neither fills, by value widths; or, with a sample of events, the share of
sampled events that the pair would add. The papers' cost models ask for rates that nobody knows here. Greedy means
greedy among the newcomers: what has been forwarded is merged with them, not taken apart for them.

It errs on one side: a merger may hold events that no member wants, never the other way round, and with a budget of 0
all mergers together hold exactly what the members do. `added` is exact for two members and may be too high for more:
what several members share is bounded by what their bounding terms share. So no merger adds more than its budget, by the
measure at the time of merging; the width of a set of strings changes as more strings become known. Balls merge only
where nothing is bounded: equal balls, or one inside another. Regions of several terms are not bounded either, but merge
perfectly or lie inside others. Partners are sought among the few that a pass names, so where sides are sets, or with a
sample, a pair that fits may be missed.

Cost for n forwarded regions: a newcomer takes two passes over n boxes in flat arrays (pairs.py), and a look at
signatures (a term without one side) in O(attributes). Whoever leaves costs as many newcomers as there are subtrees
along its way: O(log n) for a tree made at once, the number of its members for one that grew member by member; and a
look at each region that rode along. n at once: O(n) newcomers, so O(n^2) steps of a few nanoseconds. To ask all pairs
again after each merger would be O(n^3). """

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from thatch.cover.verdict import is_covered
from thatch.errors import CallerError, UnknownSubscription, shown
from thatch.merge.bounding import around
from thatch.merge.groups import (
    EventSample,
    MergeGroup,
    MergeNode,
    MergeShape,
    added_share,
    alive,
    group_of,
    trees_without,
)
from thatch.merge.pairs import FOUND_MAX, Pairs
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.space import Space

INTERVALS_MAX = 256
TRIES_MAX = 16  # that fail, in one search. Of plain boxes none does; among watchlists nearly all might


@dataclass(frozen=True, slots=True)
class Merger:
    """One region that is forwarded for its members.

    `added` is what it holds beyond their union, as a share of that union: 0.0 for a perfect merger.
    """

    region: Region
    members: tuple[Any, ...]
    added: float


@dataclass(frozen=True, slots=True)
class MergeChange:
    """What to send: `forward` in its order, each region in place of what was sent under its key, if anything; then
    `withdraw`. So nothing is missed in between: what shrinks or goes does so after others hold what it held."""

    forward: dict[int, Region] = field(default_factory=dict)
    withdraw: list[int] = field(default_factory=list)


def merged(
    regions: Mapping[Any, Region],
    space: Space,
    budget: float = 0.0,
    sample: Any = None,
    intervals_max: int = INTERVALS_MAX,
) -> list[Merger]:
    """Regions merged all at once, by the first member of each merger. Regions that hold nothing are in none.

    >>> space = Space.parse("symbol string not null, price double not null 0..1000")
    >>> clauses = ["symbol = 'A' AND price < 20", "symbol = 'B' AND price < 20", "symbol = 'B' AND price < 21"]
    >>> regions = {number: space.where(clause) for number, clause in enumerate(clauses)}
    >>> [(each.region.to_sql(), each.members) for each in merged(regions, space)]
    [("symbol IN ('A', 'B') AND price < 20.0D", (0, 1)), ("symbol = 'B' AND price < 21.0D", (2,))]
    >>> [(each.region.to_sql(), each.added) for each in merged(regions, space, budget=0.05)]
    [("symbol IN ('A', 'B') AND price < 21.0D", 0.024390243902439046)]
    """
    merging = MergeSet(space, budget, sample, intervals_max)
    merging.update(add=regions)
    return list(merging.mergers.values())


class MergeSet:
    """Regions that come and go, forwarded as mergers under keys that last: what a link of a broker holds.

    >>> space = Space.parse("price int not null 0..100")
    >>> merging = MergeSet(space)
    >>> merging.add("low", space.where("price < 20")).forward
    {0: <Region price <= 19>}
    >>> merging.add("high", space.where("price BETWEEN 20 AND 50")).forward
    {0: <Region price <= 50>}
    >>> merging.discard("low")
    MergeChange(forward={0: <Region price BETWEEN 20 AND 50>}, withdraw=[])
    """

    def __init__(
        self, space: Space, budget: float = 0.0, sample: Any = None, intervals_max: int = INTERVALS_MAX
    ) -> None:
        """`budget` is the share of its members' union that each merger may add; 0 for perfect mergers only. `sample`
        is a batch of events (an Arrow table, or a dict of arrays): shares are then shares of these events. A side of a
        merger has up to `intervals_max` intervals, or as many as one of its members."""
        if not budget >= 0:
            raise CallerError(f"the budget is a share of at least 0, not {shown(budget)}")
        if intervals_max < 1:
            raise CallerError(f"a side has at least one interval, so intervals_max is not {shown(intervals_max)}")
        self.space = space
        self.budget = budget
        self.intervals_max = intervals_max
        self.tries = 0  # pairs that were looked at
        self._sample = None if sample is None else EventSample(sample, space)
        self._ids: dict[Any, tuple[MergeShape, int]] = {}  # each with its arrival
        self._arrivals = 0
        self._groups: dict[int, MergeGroup] = {}
        self._keys = 0
        self._numbers = 0
        self._forwarded: dict[int, Region] = {}
        self._touched: dict[int, None] = {}  # keys whose region may differ after this change
        self._fresh: list[MergeGroup] = []  # groups made by this change
        self._start()

    def _start(self) -> None:
        """Begin again without what is known by coordinates."""
        self._label_codes = self.space.label_codes
        self._shapes: dict[tuple[Term, ...], MergeShape] = {}
        self._pairs = Pairs(self.space)
        self._at: dict[int, MergeGroup] = {}  # by slot
        self._signed: dict[Any, dict[MergeGroup, None]] = {}

    # --- What is forwarded --------------------------------------------------------------------------------------------

    @property
    def regions(self) -> dict[int, Region]:
        """The region of each merger by its key, ascending."""
        return {key: self._forwarded[key] for key in sorted(self._forwarded)}

    @property
    def mergers(self) -> dict[int, Merger]:
        """By key, ascending; keys rise with the arrival of a merger's first member where all came at once."""
        return {key: self.merger(key) for key in sorted(self._groups)}

    def merger(self, key: int) -> Merger:
        group = self._groups[key]
        shapes = [*group.root.shapes(), *group.riders]
        members = sorted((id for shape in shapes for id in shape.ids), key=lambda id: self._ids[id][1])
        return Merger(group.root.region, tuple(members), group.root.added)

    def key_of(self, id: Any) -> int | None:
        """Under which key a member is forwarded; None if its region holds nothing."""
        shape = self._shape_of(id)
        return None if shape.region.is_empty else group_of(shape).key

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ids)

    def _shape_of(self, id: Any) -> MergeShape:
        if id not in self._ids:
            raise UnknownSubscription(id)
        return self._ids[id][0]

    @property
    def passes(self) -> int:
        """Passes over all forwarded boxes so far."""
        return self._pairs.passes

    # --- Changes -----------------------------------------------------------------------------------------------------

    def add(self, id: Any, region: Region) -> MergeChange:
        return self.update(add={id: region})

    def discard(self, id: Any) -> MergeChange:
        return self.update(discard=[id])

    def update(self, add: Mapping[Any, Region] | None = None, discard: Iterable[Any] = ()) -> MergeChange:
        """Some leave and some come, in one step; an id that does both has another region from now on."""
        add = {} if add is None else add
        leaving = dict.fromkeys(discard)
        for id in leaving:
            self._shape_of(id)
        for id in add:
            if id in self._ids and id not in leaving:
                raise CallerError(f"{id!r} is a member already")
        regions = {id: region.in_space(self.space) for id, region in add.items()}
        self._align()
        fresh = []
        gone: dict[MergeShape, None] = {}
        for id in leaving:
            shape, _ = self._ids.pop(id)
            del shape.ids[id]
            if not shape.ids:
                gone[shape] = None
        for id, region in regions.items():
            fresh += self._entered(id, region, gone)
        apart = self._taken_apart(gone)
        self._settle([*(part for _, parts in apart for part in parts), *fresh])
        self._settle([loose for group, parts in apart for loose in self._loose(group, parts)])
        return self._net_change()

    def _entered(self, id: Any, region: Region, gone: dict[MergeShape, None]) -> list[MergeGroup]:
        """A new member; with a group of its own if nobody else has its region."""
        terms = region.terms
        shape = self._shapes.get(terms)
        is_new = shape is None
        if shape is None:
            shape = self._shapes[terms] = MergeShape(region, self._arrivals)
        shape.ids[id] = None
        gone.pop(shape, None)
        self._ids[id] = shape, self._arrivals
        self._arrivals += 1
        return [self._leaf(shape)] if is_new and terms else []

    def _leaf(self, shape: MergeShape) -> MergeGroup:
        node = MergeNode(shape.region, 0 if self._sample is None else self._sample.bits(shape.region))
        node.shape, shape.node, shape.carrier = shape, node, None
        return self._group(node, {})

    def _group(self, root: MergeNode, riders: dict[MergeShape, None]) -> MergeGroup:
        self._numbers += 1
        group = MergeGroup(root, self._numbers, riders)
        self._fresh.append(group)
        return group

    def _taken_apart(self, gone: dict[MergeShape, None]) -> list[tuple[MergeGroup, list[MergeGroup]]]:
        """The groups in which shapes have gone from the tree, each with the subtrees that are left, as groups."""
        trees: dict[MergeGroup, list[MergeNode]] = {}
        for shape in gone:
            del self._shapes[shape.region.terms]
            if shape.node is not None:
                trees.setdefault(group_of(shape), []).append(shape.node)
            elif shape.carrier is not None:
                del group_of(shape).riders[shape]
        apart = []
        for group, leaves in trees.items():
            parts = [self._group(node, {}) for node in trees_without(leaves)]
            self._leave(group)
            group.is_apart = True
            apart.append((group, self._originating(group, parts)))
        return apart

    def _originating(self, group: MergeGroup, parts: list[MergeGroup]) -> list[MergeGroup]:
        assert group.key is not None
        for part in parts:
            part.origins[group.key] = None
        return parts

    def _loose(self, group: MergeGroup, parts: list[MergeGroup]) -> list[MergeGroup]:
        """What rode in a group that was taken apart and lies in none of those that came of its parts, as groups."""
        carriers = sorted(dict.fromkeys(map(alive, parts)), key=lambda each: (-each.root.leaves, each.number))
        loose = []
        for shape in group.riders:
            terms = shape.region.terms
            carrier = next((each for each in carriers if self._is_inside(terms, each)), None)
            if carrier is None:
                loose.append(self._leaf(shape))
            else:
                shape.carrier = carrier
                carrier.riders[shape] = None
        return self._originating(group, loose)

    def _align(self) -> None:
        """Rebuild what is known by coordinates if an axis was recoded."""
        if self.space.is_current(self._label_codes):
            return
        shapes, passes = list(self._shapes.values()), self._pairs.passes
        self._start()
        self._pairs.passes = passes
        self._shapes = {shape.region.terms: shape for shape in shapes}
        for key in sorted(self._groups):
            self._enter(self._groups[key])

    def _net_change(self) -> MergeChange:
        """Give keys to the groups that have none; what differs from what was sent."""
        unkeyed = [group for group in self._fresh if group.is_alive and group.key is None]
        unkeyed.sort(key=lambda group: (-group.root.leaves, group.number))
        shrunk = {key for group in unkeyed for key in group.origins}
        # A key lives on in the largest part of what it stood for, unless that has parts of another one, too: of two
        # that swap parts neither could be sent first.
        for group in unkeyed:
            if len(group.origins) == 1:
                (origin,) = group.origins
                if origin not in self._groups:
                    self._name(group, origin)
        nameless = [group for group in unkeyed if group.key is None]
        for group in sorted(nameless, key=self._first_arrival) if len(nameless) > 1 else nameless:
            self._name(group, self._keys)
            self._keys += 1
        forward: dict[int, Region] = {}
        withdraw = []
        for key in sorted(self._touched, key=lambda key: (key in shrunk, key)):
            now, before = self._groups.get(key), self._forwarded.get(key)
            if now is None:
                if before is not None:
                    withdraw.append(key)
                    del self._forwarded[key]
            elif before is None or before.terms != now.root.region.terms:
                forward[key] = self._forwarded[key] = now.root.region
        self._touched, self._fresh = {}, []
        return MergeChange(forward, withdraw)

    def _name(self, group: MergeGroup, key: int) -> None:
        group.key, group.origins = key, {}
        self._groups[key] = group
        self._touched[key] = None

    def _first_arrival(self, group: MergeGroup) -> int:
        return min(shape.arrival for shapes in (group.root.shapes(), group.riders) for shape in shapes)

    # --- Merging -----------------------------------------------------------------------------------------------------

    def _settle(self, fresh: list[MergeGroup]) -> None:
        """Merge new groups with one another and with those that were there: perfectly wherever that is possible, then
        the pair with the least cost, until no pair fits the budget."""
        for group in fresh:
            self._enter(group)
        waiting = deque(fresh)
        heap: list[tuple[float, int, int, MergeGroup]] = []
        while waiting:
            lonely = []
            while waiting:  # a group that was merged goes to the end, so that equals meet and trees are flat
                group = waiting.popleft()
                if group.is_alive:
                    union = self._merged_perfectly(group)
                    if union is not None:
                        waiting.append(union)
                    else:
                        lonely.append(group)
            for group in lonely if self.budget else ():
                if group.is_alive:  # it may ride in one that came after it
                    self._seek(group, heap)
            pair = self._least_cost(heap)
            if pair is not None:
                waiting.append(self._joined(*pair))

    def _merged_perfectly(self, group: MergeGroup) -> MergeGroup | None:
        """What comes of merging it with one that differs in one attribute; None if there is none, or if it rides."""
        around, inside = self._nested(group)
        for other in around[:TRIES_MAX]:
            if self._is_inside(group.root.region.terms, other):
                self._ride(group, other)
                return None
        misses = 0
        for other in inside:
            if other.is_alive and self._is_inside(other.root.region.terms, group):
                self._ride(other, group)
            else:
                misses += 1
                if misses == TRIES_MAX:
                    break
        for signature in group.signatures:
            bucket = self._signed[signature]
            for other in [each for _, each in zip(range(TRIES_MAX + 1), bucket, strict=False) if each is not group]:
                union = self._united(group, other)
                if union is not None:
                    return self._joined(group, other, *union)
                del bucket[other]
                bucket[other] = None  # to the end: the next one in need tries others first
        return None

    def _nested(self, group: MergeGroup) -> tuple[list[MergeGroup], list[MergeGroup]]:
        """The groups that may hold one, and those that it may hold: their first terms would lie in some term."""
        around: list[MergeGroup] = []
        inside: list[MergeGroup] = []
        for place, slot in enumerate(group.slots):
            outer, inner = self._pairs.nested(slot)
            if place == 0:
                around = [self._at[each] for each in outer]
            inside += [other for each in inner if (other := self._at[each]).slots[0] == each]
        if len(group.slots) == 1:
            return around, inside
        return [each for each in around if each is not group], [each for each in inside if each is not group]

    def _is_inside(self, terms: tuple[Term, ...], group: MergeGroup) -> bool:
        """Whether each of these terms lies in a term that is forwarded."""
        self.tries += 1
        others = group.root.region.terms
        return all(any(term.is_inside(each) for each in others) for term in terms)

    def _ride(self, group: MergeGroup, carrier: MergeGroup) -> None:
        """One group becomes part of another that holds it all; what is forwarded of that stays as it is."""
        for shape in group.root.shapes():
            shape.node, shape.carrier = None, carrier
            carrier.riders[shape] = None
        carrier.riders.update(group.riders)
        self._succeed(group, carrier)

    def _united(self, group: MergeGroup, other: MergeGroup) -> tuple[Region, float] | None:
        """The union of two as a region and what it adds; None if it has more terms than the larger, or no room."""
        self.tries += 1
        one, two = group.root, other.root
        mine, theirs = one.region.terms, two.region.terms
        union = Region(self.space, [*mine, *theirs], self._label_codes)
        if len(union.terms) > max(len(mine), len(theirs)) or not self._has_room(union.terms, mine, theirs):
            return None
        added = one.added + two.added  # what it adds, one of the two adds
        if self._sample is not None:
            added = self._added_events(one, two, union)
        elif added and len(mine) == len(theirs) == 1 and not (mine[0].balls or theirs[0].balls):
            added = min(added, added_share(one, two, around(mine[0], theirs[0], self.space)))
        return (union, added) if added <= self.budget else None

    def _has_room(self, union: Iterable[Term], one: Iterable[Term], other: Iterable[Term]) -> bool:
        """Whether no side has too many intervals, and more than a side before."""
        most = max((len(side) for term in union for _, side in term.sides), default=1)
        if most <= self.intervals_max:
            return True
        return most <= max((len(side) for terms in (one, other) for term in terms for _, side in term.sides), default=1)

    def _seek(self, group: MergeGroup, heap: list[tuple[float, int, int, MergeGroup]]) -> None:
        """Find the partners with which a group would waste least."""
        group.partners = []
        least = 0.0 if self._sample is not None else 1 / (1 + self.budget)
        slots = self._pairs.fullest(group.slots[0], least)
        group.was_full = len(slots) == FOUND_MAX
        mine = group.root.region.terms
        for slot in slots:
            self.tries += 1
            other = self._at[slot]
            theirs = other.root.region.terms
            bound = around(mine[0], theirs[0], self.space)
            cost = bound.cost
            if self._sample is None:
                added = added_share(group.root, other.root, bound)
            else:
                added = self._added_events(group.root, other.root, Region(self.space, [bound.term], self._label_codes))
                cost = (1 - 1 / (1 + added)) + cost * 1e-9  # volume decides among those that add as many events
            if added <= self.budget and self._has_room([bound.term], mine, theirs):
                group.partners.append((cost, other, bound, added))
        group.partners.sort(key=lambda partner: (-partner[0], -partner[1].number))
        if group.partners:
            heappush(heap, (group.partners[-1][0], group.root.leaves, group.number, group))

    def _least_cost(
        self, heap: list[tuple[float, int, int, MergeGroup]]
    ) -> tuple[MergeGroup, MergeGroup, Region, float] | None:
        """The pair that wastes least. Whoever lost its partner takes the next one: those that came since have looked
        for partners themselves."""
        while heap:
            cost, _, _, group = heappop(heap)
            if not group.is_alive:
                continue
            while group.partners and not group.partners[-1][1].is_alive:
                group.partners.pop()
            if not group.partners:
                if group.was_full:
                    self._seek(group, heap)
            elif group.partners[-1][0] > cost:
                heappush(heap, (group.partners[-1][0], group.root.leaves, group.number, group))
            else:
                _, other, bound, added = group.partners[-1]
                return group, other, Region(self.space, [bound.term], self._label_codes), added
        return None

    def _added_events(self, one: MergeNode, other: MergeNode, region: Region) -> float:
        """The sampled events that a region adds to what two hold, as a share of that."""
        assert self._sample is not None
        held = one.bits | other.bits
        more = (self._sample.bits(region) & ~held).bit_count()
        if not more:
            return 0.0
        return more / held.bit_count() if held else math.inf

    def _joined(self, one: MergeGroup, other: MergeGroup, region: Region, added: float) -> MergeGroup:
        """A new group in the place of two."""
        node = MergeNode(region, one.root.bits | other.root.bits)
        node.added, node.leaves = added, one.root.leaves + other.root.leaves
        node.left, node.right = one.root, other.root
        one.root.parent = other.root.parent = node
        more, fewer = (one, other) if len(one.riders) >= len(other.riders) else (other, one)
        more.riders.update(fewer.riders)
        union = self._group(node, more.riders)
        self._succeed(one, union)
        self._succeed(other, union)
        self._enter(union)
        return union

    def _succeed(self, group: MergeGroup, by: MergeGroup) -> None:
        """A group has become part of another, which keeps the older key, if it is not forwarded under one already."""
        self._leave(group)
        group.into = by
        group.root.group = by
        if group.key is None:
            if by.key is None:
                by.origins.update(group.origins)
        elif by.key is None or (not by.slots and group.key < by.key):
            if by.key is not None:
                del self._groups[by.key]
            self._name(by, group.key)

    def _enter(self, group: MergeGroup) -> None:
        """Make a group known to those that look for partners."""
        terms = group.root.region.terms
        filled = max(1 / (1 + group.root.added), 1e-300) if self._sample is None else 1.0
        takes_partner = self.budget > 0 and len(terms) == 1
        group.slots = [self._pairs.put(term, filled if takes_partner else 0.0) for term in terms]
        self._at.update(dict.fromkeys(group.slots, group))
        group.signatures = [
            (index, tuple(side for side in term.sides if side[0] != index), term.balls)
            for term in terms
            for index, _ in term.sides
        ]
        for signature in group.signatures:
            self._signed.setdefault(signature, {})[group] = None

    def _leave(self, group: MergeGroup) -> None:
        for slot in group.slots:
            self._pairs.drop(slot)
            del self._at[slot]
        group.slots = []
        for signature in group.signatures:
            bucket = self._signed[signature]
            del bucket[group]
            if not bucket:
                del self._signed[signature]
        group.partners = []
        if group.key is not None:
            del self._groups[group.key]
            self._touched[group.key] = None

    def check_invariants(self) -> None:
        """Everything is forwarded for a reason, and every member is forwarded. Slow: it subtracts regions."""
        self._align()
        assert not self._touched and not self._fresh
        assert self._groups.keys() == self._forwarded.keys()
        seen: dict[Any, None] = {}
        for key, group in self._groups.items():
            assert group.key == key and group.is_alive and all(self._at[slot] is group for slot in group.slots)
            region = group.root.region
            assert self._forwarded[key] == region and not region.is_empty
            assert 0.0 <= group.root.added <= self.budget
            builders = list(group.root.shapes())
            assert len(builders) == group.root.leaves and group.root.parent is None
            for shape in [*builders, *group.riders]:
                assert shape.ids and group_of(shape) is group and is_covered(shape.region, [region])
                seen.update(shape.ids)
            if not group.root.added and self._sample is None:
                assert is_covered(region, [shape.region for shape in builders])
        empty = self._shapes.get(())
        assert seen.keys() | (empty.ids.keys() if empty else set()) == self._ids.keys()
        assert all(self._shapes[shape.region.terms] is shape for shape, _ in self._ids.values())
        assert sum(len(shape.ids) for shape in self._shapes.values()) == len(self._ids)
