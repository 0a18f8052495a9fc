r"""Covering by one: the rule of Siena, PADRES and REBECA, in three forms.

The idea: a region is covered if a single member contains it. `linear` scans all members, `indexed` asks the bitset
index for members that begin before the region and end behind it, `poset` keeps the members in Siena's partial order
(congestion's traditional relation graph) and walks down from the roots: what no parent holds, no child holds.

    poset:      [0,100]          A question starts at the roots and goes below a node only if it lies inside it;
               /       \         the last node that holds it covers it. An insertion also looks for the nodes
          [0,60]     [40,100]    that the new one holds, and takes its place between the two.
               \      /
               [45,55]

Errs: unproven only. It has no witness to show: what no one covers, several may cover together. Cost per check: linear
O(n d), indexed O(n d / 64) words, poset the nodes it visits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from thatch.cover.engine import CoverEngine
from thatch.cover.index import BoxIndex
from thatch.cover.verdict import Covered, Unproven, Verdict, terms_covered
from thatch.errors import CallerError, TooManyBoxes, unknown
from thatch.region.box_sets import Boxes
from thatch.region.region import Region
from thatch.region.term import Term, hulls
from thatch.space.space import Space

FORMS = ("linear", "indexed", "poset")
NOT_ONE = Unproven("no single member covers it")


def contains(member: Sequence[Term], terms: Sequence[Term], space: Space) -> bool:
    """Whether one member contains a union of terms: term by term, or, where it has several, all of it together."""
    if len(member) == len(terms) == 1 and not (terms[0].balls or member[0].balls):
        return terms[0].is_inside(member[0])  # the usual case, asked of every member in turn
    if all(any(inner.is_inside(each) for each in member) for inner in terms):
        return True
    if len(member) == 1 and not (member[0].balls or any(term.balls for term in terms)):
        return False
    try:
        return terms_covered(terms, member, space)
    except TooManyBoxes:
        return False


class MemberStore(Protocol):
    """How members are kept, and who of them covers is found."""

    def add(self, id: Any, region: Region) -> None: ...
    def discard(self, id: Any, region: Region) -> None: ...
    def coverer(self, region: Region) -> Any | None: ...
    def check_invariants(self, members: dict[Any, Region]) -> None: ...


class PairwiseEngine(CoverEngine):
    name = "pairwise"
    covers_by = "one"
    may_err = "unproven"

    def __init__(self, space: Space, form: str = "indexed") -> None:
        super().__init__(space)
        if form not in FORMS:
            raise CallerError(f"pairwise has {unknown('form', form, FORMS)}")
        self.form = form
        self._members: dict[Any, Region] = {}
        stores: dict[str, type[_Linear | _Indexed | _Poset]] = {"linear": _Linear, "indexed": _Indexed, "poset": _Poset}
        self._store: MemberStore = stores[form](space)

    def add(self, id: Any, region: Region) -> None:
        if id in self._members:
            raise CallerError(f"{id!r} is a member already")
        region.require(self.space)
        self._members[id] = region
        self._store.add(id, region)

    def discard(self, id: Any) -> None:
        region = self._members.pop(id, None)
        if region is not None:
            self._store.discard(id, region)

    def check(self, region: Region) -> Verdict:
        if not region.terms_in(self.space):
            return Covered(())
        found = self._store.coverer(region)
        return NOT_ONE if found is None else Covered((found,))

    def members_within(self, region: Region) -> list[Any]:
        terms = region.terms_in(self.space)
        near = self._members if not isinstance(self._store, _Indexed) else self._store.inside(region)
        return [id for id in near if contains(terms, self._members[id].terms_in(self.space), self.space)]

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, id: object) -> bool:
        return id in self._members

    def __iter__(self) -> Iterator[Any]:
        return iter(self._members)

    def check_invariants(self) -> None:
        self._store.check_invariants(self._members)


class _Linear:
    """Compares with all members in turn."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.members: dict[Any, Region] = {}

    def add(self, id: Any, region: Region) -> None:
        self.members[id] = region

    def discard(self, id: Any, region: Region) -> None:
        del self.members[id]

    def coverer(self, region: Region) -> Any | None:
        terms = region.terms_in(self.space)
        for id, member in self.members.items():
            if contains(member.terms_in(self.space), terms, self.space):
                return id
        return None

    def check_invariants(self, members: dict[Any, Region]) -> None:
        assert self.members == members


class _Indexed:
    """Members by their bounding boxes; a member whose box contains that of the region is compared in full."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.index = BoxIndex(space.low[0], space.high[0])
        self.slots: dict[Any, list[int]] = {}
        self.ids: dict[int, Any] = {}
        self.regions: dict[Any, Region] = {}
        self.number = 0
        self.empty = 0  # members without a box
        self.label_codes = space.label_codes

    def align(self) -> None:
        """Rebuild if an axis was recoded: labels in the index would mean nothing."""
        if not self.space.is_current(self.label_codes):
            regions = self.regions
            self.__init__(self.space)  # type: ignore[misc]
            for id, region in regions.items():
                self.add(id, region)

    def add(self, id: Any, region: Region) -> None:
        low, high = hull(region, self.space)
        self.align()
        self.slots[id] = self.index.insert(low, high, self.number)
        self.empty += not self.slots[id]
        self.ids[self.number] = id
        self.regions[id] = region
        self.number += 1

    def discard(self, id: Any, region: Region) -> None:
        slots = self.slots.pop(id)
        del self.regions[id]
        if not slots:
            self.empty -= 1
            self.ids = {number: each for number, each in self.ids.items() if each != id}
        for slot in slots:
            self.ids.pop(int(self.index.rows.owner[slot]), None)
            self.index.remove(slot)

    def coverer(self, region: Region) -> Any | None:
        terms = region.terms_in(self.space)
        low, high = hull(region, self.space)
        self.align()
        rows = self.index.rows
        candidates = [slot for slot in self.index.around(low[0], high[0]) if rows.owner[slot] in self.ids]
        for number in sorted({int(rows.owner[slot]) for slot in candidates}):
            id = self.ids[number]
            if contains(self.regions[id].terms_in(self.space), terms, self.space):
                return id
        return None

    def inside(self, region: Region) -> list[Any]:
        """The members whose bounding boxes lie in that of a region, in the order in which they were added."""
        low, high = hull(region, self.space)
        self.align()
        numbers = {number for number, id in self.ids.items() if not self.slots[id]} if self.empty else set()
        if len(low):
            numbers.update(self.index.rows.owner[self.index.inside(low[0], high[0])].tolist())
        return [self.ids[number] for number in sorted(numbers)]

    def check_invariants(self, members: dict[Any, Region]) -> None:
        self.index.check_invariants()
        assert self.regions == members and self.slots.keys() == members.keys()


def hull(region: Region, space: Space) -> Boxes:
    """The bounding box of a region, [1, d]; none if it is empty. Balls count as the boxes around them."""
    low, high = hulls(region.terms_in(space), space)
    for row, term in enumerate(region.terms_in(space)):
        for ball in term.balls:
            for index, bounds in ball.bounds(space).items():
                if bounds.ends:
                    low[row, index] = max(low[row, index], bounds.low)
                    high[row, index] = min(high[row, index], bounds.high)
    return (low.min(axis=0, keepdims=True), high.max(axis=0, keepdims=True)) if len(low) else (low, high)


class _Poset:
    """Siena's partial order: each node knows its nearest holders (parents) and those it nearest holds (children)."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.regions: dict[Any, Region] = {}
        self.parents: dict[Any, dict[Any, None]] = {}
        self.children: dict[Any, dict[Any, None]] = {}
        self.roots: dict[Any, None] = {}

    def holds(self, one: Any, other: Any) -> bool:
        return contains(self.regions[one].terms_in(self.space), self.regions[other].terms_in(self.space), self.space)

    def lowest_holders(self, terms: Sequence[Term]) -> dict[Any, None]:
        """The nodes that hold the terms while none of their children does."""
        found: dict[Any, None] = {}
        seen: set[Any] = set()
        waiting = list(reversed(self.roots))
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if not contains(self.regions[node].terms_in(self.space), terms, self.space):
                continue
            below = [
                child
                for child in self.children[node]
                if contains(self.regions[child].terms_in(self.space), terms, self.space)
            ]
            if below:
                waiting += below
            else:
                found[node] = None
        return found

    def coverer(self, region: Region) -> Any | None:
        return next(iter(self.lowest_holders(region.terms_in(self.space))), None)

    def add(self, id: Any, region: Region) -> None:
        parents = self.lowest_holders(region.terms_in(self.space))
        self.regions[id] = region
        held = self._highest_held(id, parents)
        for child in held:
            for parent in [each for each in self.parents[child] if each in parents]:
                del self.parents[child][parent], self.children[parent][child]
            self.parents[child][id] = None
            self.roots.pop(child, None)
        self.parents[id], self.children[id] = dict(parents), dict(held)
        for parent in parents:
            self.children[parent][id] = None
        if not parents:
            self.roots[id] = None

    def _highest_held(self, id: Any, parents: dict[Any, None]) -> dict[Any, None]:
        """The nodes that the new one holds while it holds none of their parents. Equal nodes are parents already."""
        found: dict[Any, None] = {}
        seen = set(parents)
        waiting = list(self.roots) if not parents else [child for parent in parents for child in self.children[parent]]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if self.holds(id, node):
                found[node] = None
            else:
                waiting += self.children[node]
        return {node: None for node in found if not any(parent in found for parent in self._ancestors(node))}

    def _ancestors(self, node: Any) -> set[Any]:
        seen: set[Any] = set()
        waiting = list(self.parents[node])
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting += self.parents[each]
        return seen

    def discard(self, id: Any, region: Region) -> None:
        parents, children = self.parents.pop(id), self.children.pop(id)
        for parent in parents:
            del self.children[parent][id]
        for child in children:
            del self.parents[child][id]
            above = self._ancestors(child)
            for parent in parents:
                if parent not in above:
                    self.parents[child][parent] = None
                    self.children[parent][child] = None
            if not self.parents[child]:
                self.roots[child] = None
        self.roots.pop(id, None)
        del self.regions[id]

    def check_invariants(self, members: dict[Any, Region]) -> None:
        assert self.regions == members
        for node in self.regions:
            assert (node in self.roots) == (not self.parents[node])
            for child in self.children[node]:
                assert node in self.parents[child] and self.holds(node, child)
            for parent in self.parents[node]:
                assert node in self.children[parent]
            above = self._ancestors(node)
            for other in self.regions:
                if other != node and self.holds(other, node) and not self.holds(node, other):
                    assert other in above, f"{other!r} holds {node!r} and is not above it"
