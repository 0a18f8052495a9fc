r"""The subscription relation graph: who covers whom, one by one, kept so that an unsubscription finds its successors.

The idea: an edge leads from a subscription to one that it covers. Only roots, which no other subscription covers, are
forwarded. A newcomer goes below those that cover it and above those that it covers; when a root leaves, the new roots
are among its children, and nobody else is looked at.

From: the congestion paper, section IV. `traditional` is the graph of SIENA and PADRES: the transitive reduction of the
whole relation, a node has all its nearest coverers as parents. `simplified` is Algorithm 1: a newcomer goes below the
first that covers it, so a node has one parent, and edges that are dear to find are not there.

    a [0,100]   b [50,150]        traditional            simplified
    c [60,90]   d [70,80]           a     b                a     b
                                     \   /                 |
                                       c                   c          a leaves: c is compared with the other roots
                                       |                   |          and goes below b. In the traditional graph
                                       d                   d          the edge b-c is known, and nothing is compared.

Where it differs, since Algorithm 1 leaves it open:
- `visited`: with one parent no node is met twice, so there is no mark. The traditional walk compares each node once.
- EQUAL, `combine`: the later one is a child of the earlier, outside the search: one node stands for all with its
  region, and when it leaves the next in order of arrival takes its place, edges and all. Chains of equal ones would be
  walked to their ends by each further one.
- A node that is inserted again brings its children along. Those that it takes from its new parent may cover, or be
  covered by, these (edges that were never looked for): so they are inserted below it, not just connected, or property
  6 would break.
- Former siblings are known to be apart and are not compared again, or a root with k children would cost k*k/2.

So the roots depend on the regions and the order of arrival only, not on what came and went, and are the same for both
kinds. Each edge was proved when it was made; longer paths rest on covering being transitive. For balls of radius past
2^500, and regions cut into more boxes than the cap, one step may be unproven where two are proven: such a one becomes
a root too many, and a certificate may be right without `verify` being able to show it in one step.

Errs: unproven only. It covers by one, never by a union. Cost, in comparisons: to subscribe, the roots and the children
of the nodes on one path (simplified), or nearly all nodes below the parents (traditional); to unsubscribe, children
times siblings of the one that leaves (simplified), or none (traditional).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any

from thatch.cover.cover_set import Change
from thatch.cover.pairwise import NOT_ONE, contains
from thatch.cover.verdict import Covered, Verdict, is_covered
from thatch.errors import CallerError, TooManyBoxes, UnknownSubscription, unknown
from thatch.region.region import BOXES_CAP, Region
from thatch.space.space import Space

KINDS = ("traditional", "simplified")


class Virtual(Enum):
    """The paper's virtual node, the parent of all roots. An enum, for it must stay itself when a graph is copied."""

    NODE = auto()


VIRTUAL = Virtual.NODE


class Relation(Enum):
    """How one node relates to another."""

    SUBSET = auto()
    SUPERSET = auto()
    EQUAL = auto()
    NEITHER = auto()


Insertion = tuple[Any, Any, Collection[Any]]  # a node, the node to start from, and those known to be apart from it


class RelationGraph:
    """A `CoverSet` by a relation graph. Its newcomers always retract what they cover.

    >>> space = Space.parse("price int not null 0..100")
    >>> graph = RelationGraph(space)
    >>> graph.subscribe("cheap", space.where("price < 20")).forward
    ['cheap']
    >>> change = graph.subscribe("all", space.where("price >= 0"))
    >>> change.forward, change.withdraw
    (['all'], ['cheap'])
    >>> graph.unsubscribe("all")
    Change(forward=['cheap'], withdraw=['all'], verdict=None)
    """

    is_gradual = keeps_certificates = False  # edges say who covers whom, and all of them hold

    def __init__(self, space: Space, kind: str = "simplified") -> None:
        if kind not in KINDS:
            raise CallerError(f"there is {unknown('relation graph of kind', kind, KINDS)}")
        self.space = space
        self.kind = kind
        self.comparisons = 0  # pairs compared
        self.rechecks = 0  # children given other parents because somebody left
        self._regions: dict[Any, Region] = {}  # in order of arrival
        self._arrival: dict[Any, int] = {}
        self._arrivals = 0
        self._parents: dict[Any, dict[Any, None]] = {}  # of nodes
        self._children: dict[Any, dict[Any, None]] = {VIRTUAL: {}}
        self._equals: dict[Any, dict[Any, None]] = {}  # node -> the others that it stands for
        self._node: dict[Any, Any] = {}  # id -> the node that stands for it; none for an empty region
        self._was_root: dict[Any, bool] = {}  # before the present change, of all that became roots or ceased to be

    # --- Reading -----------------------------------------------------------------------------------------------------

    @property
    def active(self) -> list[Any]:
        """The roots, in order of arrival."""
        return self._in_order(self._children[VIRTUAL])

    @property
    def passive(self) -> dict[Any, tuple[Any, ...]]:
        """Each with its certificate, in order of arrival. O(n)."""
        roots: dict[Any, Any] = {root: root for root in self._children[VIRTUAL]}
        for node in self._parents:
            path = []
            while node not in roots:
                path.append(node)
                node = self._first_parent(node)
            roots.update(dict.fromkeys(path, roots[node]))
        return {
            id: (roots[self._node[id]],) if id in self._node else () for id in self._regions if not self._is_root(id)
        }

    def region(self, id: Any) -> Region:
        return self._regions[self._known(id)]

    def is_active(self, id: Any) -> bool:
        return self._is_root(self._known(id))

    def certificate(self, id: Any) -> tuple[Any, ...] | None:
        """One root that covers a passive one; None for a root. O(depth)."""
        if self._known(id) not in self._node:
            return ()
        root = self._node[id]
        while not self._is_root(root):
            root = self._first_parent(root)
        return None if root == id else (root,)

    def parents(self, id: Any) -> list[Any]:
        """In order of arrival; none of a root."""
        node = self._node.get(self._known(id), id)
        if node != id:
            return [node]
        return self._in_order(each for each in self._parents.get(id, ()) if each is not VIRTUAL)

    def children(self, id: Any) -> list[Any]:
        """In order of arrival, with those of an equal region."""
        self._known(id)
        return self._in_order([*self._children.get(id, ()), *self._equals.get(id, ())])

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, id: object) -> bool:
        return id in self._regions

    def _known(self, id: Any) -> Any:
        if id not in self._regions:
            raise UnknownSubscription(id)
        return id

    def _is_root(self, id: Any) -> bool:
        return VIRTUAL in self._parents.get(id, ())

    def _first_parent(self, node: Any) -> Any:
        return next(iter(self._parents[node]))

    def _in_order(self, ids: Iterable[Any]) -> list[Any]:
        return sorted(ids, key=self._arrival.__getitem__)

    # --- Changing ----------------------------------------------------------------------------------------------------

    def subscribe(self, id: Any, region: Region, check: bool = True, witness: bool = True) -> Change:
        """Roots that the newcomer covers are retracted. It is always checked, and there is no witness to search for."""
        if id in self._regions:
            raise CallerError(f"{id!r} is subscribed already")
        self._register(id, region.in_space(self.space))  # refuses another space
        self._was_root.clear()
        self._insert(id)
        return Change(*self._net(), self._verdict(id))

    def unsubscribe(self, id: Any) -> Change:
        """Forward names those that nobody covers now, in order of arrival; withdraw ends with a root that leaves."""
        was_root = self._is_root(self._known(id))
        self._was_root.clear()
        self._remove(id)
        forward, withdraw = self._net()
        del self._regions[id], self._arrival[id]
        return Change(forward, [each for each in withdraw if each != id] + [id] * was_root)

    def replace(self, id: Any, region: Region) -> Change:
        """Give a subscription another region, in one step: forwarding it again supersedes what was sent under its id.
        It keeps its place in the order of arrival."""
        self._known(id)
        region = region.in_space(self.space)  # refuses another space
        self._was_root.clear()
        self._remove(id)
        self._regions[id] = region
        self._insert(id)
        forward, withdraw = self._net()
        if self._is_root(id) and id not in forward:
            forward = self._in_order([*forward, id])
        return Change(forward, withdraw, self._verdict(id))

    def exchange(self, gone: Sequence[Any], new: Mapping[Any, Region]) -> Change:
        """Some leave and others come in their place, in the paper's three steps: the newcomers go below one that
        leaves and covers them, so they are compared with its children only; those that leave are taken out, and the
        newcomers that they held are roots; the other children go below the nodes that cover them."""
        for id in gone:
            self._known(id)
        for id in new:
            if id in self._regions:
                raise CallerError(f"{id!r} is subscribed already")
        local = {id: region.in_space(self.space) for id, region in new.items()}
        roots = [id for id in gone if self._is_root(id)]
        self._was_root.clear()
        for id, region in local.items():
            self._register(id, region)
            self._insert(id, [self._node[each] for each in gone if each in self._node])
        for id in gone:
            self._remove(id)
        forward, withdraw = self._net()
        for id in gone:
            del self._regions[id], self._arrival[id]
        leaving = set(gone)
        return Change(forward, [each for each in withdraw if each not in leaving] + roots)

    def dependents(self, id: Any) -> list[Any]:
        """Those that a root holds back without anybody in between, in order of arrival."""
        return self.children(id) if self._is_root(self._known(id)) else []

    def holds_back(self, id: Any) -> bool:
        return self._is_root(self._known(id)) and bool(self._children[id] or self._equals[id])

    def promotes_more_than(self, id: Any, more_than: float = 0) -> bool:
        """Whether more than so many may have to be forwarded if a root left."""
        return self.holds_back(id) and len(self._children[id]) + len(self._equals[id]) > more_than

    def release(self, id: Any, most: int) -> Change:
        """Nothing: a root covers its children for as long as it is there."""
        self._known(id)
        return Change()

    def load(self, regions: Mapping[Any, Region], certificates: Mapping[Any, tuple[Any, ...]]) -> None:
        """Into an empty graph: what a relation graph had forwarded, in order of arrival. Who is a root is not decided
        again; the rest is placed below the roots that their certificates name."""
        self._check_loadable(regions, certificates)
        local = {id: region.in_space(self.space) for id, region in regions.items()}
        for id, region in local.items():
            self._register(id, region)
            if not region.is_empty and id not in certificates:
                self._add_node(id)
                self._connect(VIRTUAL, id)
        for id in local:
            if id in certificates and certificates[id] and not local[id].is_empty:
                self._add_node(id)
                self._place_below(id, certificates[id][0])

    def recompiled(self, space: Space, regions: Mapping[Any, Region]) -> tuple[RelationGraph, Change]:
        """The same subscriptions with other regions, of another space, and which of them have to be forwarded now, or
        withdrawn. What roots now and before hold may differ: their holder knows whether to send them again."""
        if regions.keys() != self._regions.keys():
            raise CallerError("a graph is compiled again with one region for each of its subscriptions, and no other")
        graph = RelationGraph(space, self.kind)
        graph.comparisons, graph.rechecks = self.comparisons, self.rechecks
        for id in self._regions:
            graph.subscribe(id, regions[id])
        forward = [id for id in graph.active if not self._is_root(id)]
        return graph, Change(forward, [id for id in self.active if not graph._is_root(id)])

    def _register(self, id: Any, region: Region) -> None:
        self._regions[id] = region
        self._arrival[id] = self._arrivals
        self._arrivals += 1

    def _check_loadable(self, regions: Mapping[Any, Region], certificates: Mapping[Any, tuple[Any, ...]]) -> None:
        roots = regions.keys() - certificates.keys()
        if self._regions or not certificates.keys() <= regions.keys():
            raise CallerError("a relation graph is loaded into an empty one, and certificates are of its subscriptions")
        for id, names in certificates.items():
            if len(names) > 1 or not roots.issuperset(names) or not (names or regions[id].is_empty):
                raise CallerError(f"in a relation graph one root covers {id!r}, not {names!r}")

    def _net(self) -> tuple[list[Any], list[Any]]:
        """Who is a root and was none before this change, and the reverse."""
        forward = [id for id, before in self._was_root.items() if not before and self._is_root(id)]
        withdraw = [id for id, before in self._was_root.items() if before and not self._is_root(id)]
        return self._in_order(forward), self._in_order(withdraw)

    def _verdict(self, id: Any) -> Verdict:
        certificate = self.certificate(id)
        return NOT_ONE if certificate is None else Covered(certificate)

    # --- Nodes and edges ---------------------------------------------------------------------------------------------

    def _add_node(self, id: Any) -> None:
        self._parents[id], self._children[id], self._equals[id] = {}, {}, {}
        self._node[id] = id

    def _drop_node(self, node: Any) -> list[Any]:
        """Take a node and its edges out. Returns its children, in order of arrival."""
        orphans = self._in_order(self._children[node])
        for parent in list(self._parents[node]):
            self._disconnect(parent, node)
        for orphan in orphans:
            self._disconnect(node, orphan)
        del self._parents[node], self._children[node], self._equals[node], self._node[node]
        return orphans

    def _connect(self, parent: Any, child: Any) -> None:
        if parent is VIRTUAL:
            self._was_root.setdefault(child, False)
        self._children[parent][child] = None
        self._parents[child][parent] = None

    def _disconnect(self, parent: Any, child: Any) -> None:
        if parent is VIRTUAL:
            self._was_root.setdefault(child, True)
        del self._children[parent][child], self._parents[child][parent]

    def _ancestors(self, nodes: Iterable[Any]) -> set[Any]:
        """The virtual node among them, unless all are virtual."""
        found: set[Any] = set()
        waiting = [node for node in nodes if node is not VIRTUAL]
        while waiting:
            for parent in self._parents[waiting.pop()]:
                if parent not in found:
                    found.add(parent)
                    if parent is not VIRTUAL:
                        waiting.append(parent)
        return found

    def _relation(self, node: Any, other: Any) -> Relation:
        """Decided by `contains`: sound always; exact but for balls, and for boxes past the cap. Terms are read afresh:
        an axis may have been recoded."""
        self.comparisons += 1
        mine, theirs = self._regions[node].terms, self._regions[other].terms
        if contains(theirs, mine, self.space):
            return Relation.EQUAL if contains(mine, theirs, self.space) else Relation.SUBSET
        return Relation.SUPERSET if contains(mine, theirs, self.space) else Relation.NEITHER

    # --- Equal regions -----------------------------------------------------------------------------------------------

    def _combine(self, node: Any, other: Any) -> list[Insertion]:
        """A node without parents has the region of another: the earlier one stands for both, in the other's place.
        Returns the node's children, which are to be inserted below."""
        orphans = self._join(node, other)
        if self._arrival[node] < self._arrival[other]:
            self._hand_over(other, node)
        apart = dict.fromkeys(orphans)
        return [(orphan, self._node[node], apart) for orphan in orphans]

    def _join(self, node: Any, other: Any) -> list[Any]:
        joining = {node: None, **self._equals[node]}
        orphans = self._drop_node(node)
        self._equals[other].update(joining)
        self._node.update(dict.fromkeys(joining, other))
        return orphans

    def _hand_over(self, old: Any, new: Any) -> None:
        """Another one of the same region stands for all of them."""
        parents, equals = list(self._parents[old]), self._equals[old]
        children = self._drop_node(old)
        del equals[new]
        equals[old] = None
        self._add_node(new)
        self._equals[new] = equals
        self._node.update(dict.fromkeys(equals, new))
        for parent in parents:
            self._connect(parent, new)
        for child in children:
            self._connect(new, child)

    # --- Inserting ---------------------------------------------------------------------------------------------------

    def _insert(self, id: Any, near: Iterable[Any] = ()) -> None:
        """A subscription without a node yet. An empty one gets none: it covers nobody, and nobody need cover it. The
        search begins at a node of `near` that covers it, if there is one."""
        if self._regions[id].is_empty:
            return
        self._add_node(id)
        for node in near:
            relation = self._relation(id, node)
            if relation in (Relation.SUBSET, Relation.EQUAL):
                self._place_below(id, node, relation)
                return
        if self.kind == "traditional":
            self._insert_everywhere(id, {})
        else:
            self._insert_below(id, VIRTUAL)

    def _place_below(self, node: Any, root: Any, relation: Relation | None = None) -> None:
        """As a certificate says, or as has been found."""
        if (relation or self._relation(node, root)) is Relation.EQUAL:
            self._join(node, root)
        elif self.kind == "traditional":
            self._insert_everywhere(node, {root: Relation.SUBSET})
        else:
            self._insert_below(node, root)

    def _insert_below(self, node: Any, start: Any, apart: Collection[Any] = ()) -> None:
        """Algorithm 1, from a node that covers this one. It ends: those displaced only ever gain ancestors."""
        waiting: deque[Insertion] = deque([(node, start, apart)])
        while waiting:
            waiting.extend(self._descend(*waiting.popleft()))

    def _descend(self, node: Any, parent: Any, apart: Collection[Any]) -> list[Insertion]:
        """Go below the first child that covers the node, until none does. Returns who is to be inserted below it."""
        while True:
            covered: dict[Any, None] = {}
            for other in self._children[parent]:
                relation = Relation.NEITHER if other in apart else self._relation(node, other)
                if relation is Relation.EQUAL:
                    return self._combine(node, other)
                if relation is Relation.SUPERSET:
                    covered[other] = None
                if relation is Relation.SUBSET:
                    parent = other
                    break
            else:
                return self._settle(node, parent, covered)

    def _settle(self, node: Any, parent: Any, covered: dict[Any, None]) -> list[Insertion]:
        """Between a parent and those of its children that the node covers."""
        brings_children = bool(self._children[node])
        for other in covered:
            self._disconnect(parent, other)
            if not brings_children:
                self._connect(node, other)
        self._connect(parent, node)
        return [(other, node, covered) for other in covered] if brings_children else []

    def _insert_everywhere(self, node: Any, relations: dict[Any, Relation]) -> None:
        """The traditional way, of a node without children: find all nearest coverers, and all it nearest covers."""
        parents = self._nearest_around(node, relations)
        if parents is None:
            return
        for child in self._nearest_inside(node, parents, relations):
            for parent in [each for each in self._parents[child] if each in parents]:
                self._disconnect(parent, child)
            self._connect(node, child)
        for parent in parents:
            self._connect(parent, node)

    def _nearest_around(self, node: Any, relations: dict[Any, Relation]) -> dict[Any, None] | None:
        """The nodes that cover this one while none of their children does; None if an equal one was found and they
        were combined. All that was compared is noted in `relations`."""
        found: dict[Any, None] = {}
        reached: set[Any] = {VIRTUAL}
        waiting = deque([VIRTUAL])
        while waiting:
            place = waiting.popleft()
            nearer = []
            for other in self._children[place]:
                if other not in relations:
                    relations[other] = self._relation(node, other)
                if relations[other] is Relation.EQUAL:
                    self._combine(node, other)
                    return None
                if relations[other] is Relation.SUBSET:
                    nearer.append(other)
            if not nearer:
                found[place] = None
            waiting.extend(other for other in nearer if other not in reached)
            reached.update(nearer)
        return found

    def _nearest_inside(self, node: Any, parents: dict[Any, None], relations: dict[Any, Relation]) -> list[Any]:
        """The nodes that this one covers while it covers none of their ancestors."""
        found: dict[Any, None] = {}
        seen = self._ancestors(parents)  # never below, even where covering is proved in steps only: no cycles
        waiting = deque(child for parent in parents for child in self._children[parent])
        while waiting:
            other = waiting.popleft()
            if other in seen:
                continue
            seen.add(other)
            if other not in relations:
                relations[other] = self._relation(node, other)
            if relations[other] is Relation.SUPERSET:
                found[other] = None
            else:
                waiting.extend(self._children[other])
        several = [each for each in found if len(self._parents[each]) > 1]  # the others were reached by their one way
        dominated = {each for each in several if not found.keys().isdisjoint(self._ancestors([each]))}
        return [each for each in found if each not in dominated]

    # --- Removing ----------------------------------------------------------------------------------------------------

    def _remove(self, id: Any) -> None:
        """Out of the graph; its region and its arrival stay known."""
        if id not in self._node:
            return
        if self._equals.get(id):
            self._hand_over(id, min(self._equals[id], key=self._arrival.__getitem__))
        node = self._node[id]
        if node != id:
            del self._equals[node][id], self._node[id]
            return
        parents = list(self._parents[id])
        orphans = self._drop_node(id)
        self.rechecks += len(orphans)
        if self.kind == "traditional":
            self._connect_past(orphans, parents)
        else:
            apart = dict.fromkeys(orphans)
            for orphan in orphans:
                self._insert_below(orphan, parents[0], apart)

    def _connect_past(self, orphans: list[Any], parents: list[Any]) -> None:
        """All relations are known: a parent of the one that left is a parent now unless it is an ancestor anyway."""
        for orphan in orphans:
            above = self._ancestors([orphan])
            for parent in parents:
                if parent not in above:
                    self._connect(parent, orphan)

    # --- Checking ----------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        assert self._arrival.keys() == self._regions.keys()
        assert self._node.keys() == {id for id, region in self._regions.items() if not region.is_empty}
        assert self._parents.keys() == self._equals.keys() == self._children.keys() - {VIRTUAL}
        self._check_equals()
        self._check_edges()
        self._check_acyclic()
        if self.kind == "simplified":
            assert all(len(parents) == 1 for parents in self._parents.values())
            self._check_siblings()
        elif self._is_decidable():
            self._check_siblings()
            self._check_reduction()

    def _check_equals(self) -> None:
        groups: dict[Any, set[Any]] = {node: set() for node in self._parents}
        for id, node in self._node.items():
            if id != node:
                groups[node].add(id)
                self._check_covered(id, node)
                self._check_covered(node, id)
        assert groups == {node: set(equals) for node, equals in self._equals.items()}

    def _check_edges(self) -> None:
        for parent, children in self._children.items():
            for child in children:
                assert parent in self._parents[child]
                if parent is not VIRTUAL:
                    self._check_covered(child, parent)
        for child, parents in self._parents.items():
            assert parents, f"{child!r} has no parent"
            assert all(child in self._children[parent] for parent in parents)

    def _check_covered(self, inner: Any, outer: Any) -> None:
        with suppress(TooManyBoxes):  # proved in steps
            assert is_covered(self._regions[inner], [self._regions[outer]]), f"{outer!r} does not cover {inner!r}"

    def _check_acyclic(self) -> None:
        """Take away nodes that have no parents left, until none is left."""
        left = {node: len(parents) for node, parents in self._parents.items()}
        waiting: list[Any] = [VIRTUAL]
        while waiting:
            for child in self._children[waiting.pop()]:
                left[child] -= 1
                if not left[child]:
                    waiting.append(child)
        assert not any(left.values()), "the graph has a cycle"

    def _check_siblings(self) -> None:
        """Properties 4 and 6: no root covers another, no child covers a sibling."""
        for children in self._children.values():
            for one in children:
                for other in children:
                    assert one == other or not self._holds(one, other), f"{one!r} covers its sibling {other!r}"

    def _check_reduction(self) -> None:
        """An edge wherever one node covers another with none in between, and nowhere else."""
        inside = {
            node: {each for each in self._parents if each != node and self._holds(node, each)} for node in self._parents
        }
        for node, below in inside.items():
            nearest = below.difference(*(inside[each] for each in below))
            assert nearest == self._children[node].keys(), f"the children of {node!r} are {sorted(nearest, key=str)}"
        inner: set[Any] = set[Any]().union(*inside.values())
        assert self._parents.keys() - inner == self._children[VIRTUAL].keys()

    def _is_decidable(self) -> bool:
        regions = self._regions.values()
        return not any(
            region.has_balls or sum(term.box_count() for term in region.terms) > BOXES_CAP for region in regions
        )

    def _holds(self, one: Any, other: Any) -> bool:
        return contains(self._regions[one].terms, self._regions[other].terms, self.space)
