"""Relation graphs against a naive model: the roots are the maximal ones, and a change says all that changes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.cover_oracles import ints, random_box, random_clause, recode, region_of, whole
from helpers.strategies import examples
from thatch import Space
from thatch.cover import ActiveSet, Covered, RelationGraph, Unproven, verify
from thatch.cover.cover_set import Change
from thatch.cover.relation_graph import KINDS
from thatch.errors import CallerError, UnknownSubscription
from thatch.region.region import Region

SEED = 20240301
both_kinds = pytest.mark.parametrize("kind", KINDS)


class Points:
    """All events of a tiny space; what a region holds of them is one number, a bit for each."""

    def __init__(self, space: Space, values: Mapping[str, list[Any]]) -> None:
        self.space = space
        names = [attribute.name for attribute in space.attributes]
        self.events = [dict(zip(names, each, strict=True)) for each in product(*(values[name] for name in names))]
        self._bits: dict[int, tuple[Region, int]] = {}

    def bits(self, region: Region) -> int:
        if id(region) not in self._bits:
            found = sum(1 << at for at, event in enumerate(self.events) if region.contains(event))
            self._bits[id(region)] = region, found
        return self._bits[id(region)][1]

    def roots(self, regions: Mapping[Any, Region]) -> list[Any]:
        """Those that no other one holds; of equal ones the first."""
        bits = [(id, self.bits(region)) for id, region in regions.items()]
        return [
            id
            for position, (id, mine) in enumerate(bits)
            if mine
            and not any(
                mine & ~other == 0 and (other != mine or earlier < position)
                for earlier, (_, other) in enumerate(bits)
                if earlier != position
            )
        ]


class Mirror:
    """A relation graph, a receiver that applies each change, and the naive rules, side by side."""

    def __init__(self, points: Points, kind: str) -> None:
        self.points = points
        self.graph = RelationGraph(points.space, kind)
        self.regions: dict[Any, Region] = {}  # in order of arrival
        self.mirror: set[Any] = set()

    def subscribe(self, id: Any, region: Region) -> None:
        change = self.graph.subscribe(id, region)
        self.regions[id] = region
        assert change.forward == ([id] if self.graph.is_active(id) else [])
        assert not (change.withdraw and not change.forward)
        self.check_verdict(id, change)
        self.apply(change)

    def unsubscribe(self, id: Any) -> None:
        was_active, children = self.graph.is_active(id), self.graph.children(id)
        change = self.graph.unsubscribe(id)
        del self.regions[id]
        assert set(change.forward) <= set(children)  # property 5
        assert change.withdraw == ([id] if was_active else [])
        assert was_active or change == Change()
        self.apply(change)

    def replace(self, id: Any, region: Region) -> None:
        change = self.graph.replace(id, region)
        self.regions[id] = region
        assert (id in change.forward) == self.graph.is_active(id)
        self.check_verdict(id, change)
        self.apply(change, replaced=id)

    def check_verdict(self, id: Any, change: Change) -> None:
        certificate = self.graph.certificate(id)
        if certificate is None:
            assert isinstance(change.verdict, Unproven)
        else:
            assert change.verdict == Covered(certificate)

    def apply(self, change: Change, replaced: Any = None) -> None:
        """Forward first, then withdraw; nothing is forwarded twice, nothing withdrawn that was not forwarded."""
        arrival = list(self.regions)
        assert change.forward == sorted(change.forward, key=arrival.index), change
        assert self.mirror.isdisjoint(set(change.forward) - {replaced}), change
        self.mirror |= set(change.forward)
        assert len(set(change.withdraw)) == len(change.withdraw) and self.mirror >= set(change.withdraw), change
        self.mirror -= set(change.withdraw)
        assert self.graph.active == [id for id in self.regions if id in self.mirror], change
        self.holds()

    def holds(self) -> None:
        graph, regions = self.graph, self.regions
        graph.check_invariants()
        assert graph.active == self.points.roots(regions)
        assert len(graph) == len(regions) and all(graph.region(id) is region for id, region in regions.items())
        passive = graph.passive
        assert list(passive) == [id for id in regions if id not in self.mirror]
        for id, names in passive.items():
            assert graph.certificate(id) == names and len(names) == (not regions[id].is_empty)
            held = sum(self.points.bits(regions[name]) for name in names if name in self.mirror)
            assert self.points.bits(regions[id]) & ~held == 0, (id, names)


def run(mirror: Mirror, regions: list[Region], random: Random, steps: int) -> None:
    """Grow, shrink, grow; replace now and then; then take all away."""
    for step in range(steps):
        growing = 0.6 if step % 50 < 32 else 0.2
        chance = random.random()
        if len(mirror.regions) < 3 or chance < growing:
            mirror.subscribe(f"s{step}", random.choice(regions))
        elif chance < growing + 0.15:
            mirror.replace(random.choice(list(mirror.regions)), random.choice(regions))
        else:
            roots = mirror.graph.active
            mirror.unsubscribe(random.choice(roots if roots and chance < 0.9 else list(mirror.regions)))
    for id in random.sample(list(mirror.regions), len(mirror.regions)):
        mirror.unsubscribe(id)
    assert mirror.graph.active == [] and mirror.graph.passive == {} and len(mirror.graph) == 0


def nested(random: Random, space: Space, count: int) -> list[Region]:
    """Boxes, boxes in boxes, some twice, some in two terms, everything and nothing."""
    boxes = [random_box(random, whole(space)) for _ in range(count)]
    boxes += [random_box(random, random.choice(boxes)) for _ in range(2 * count)]
    regions = [region_of(space, *box) for box in boxes]
    unions = [random.choice(regions) | random.choice(regions) for _ in range(count)]
    return [*regions, *unions, *random.choices(regions, k=count), Region.everything(space), Region.nothing(space)]


@cache
def pool(name: str) -> tuple[Points, list[Region]]:
    random = Random(f"{SEED}/{name}")
    if name == "strings":
        space = Space.parse("name string, size int 0..2")
        points = Points(
            space, {"name": [None, "a", "ab", "abb", "abc", "abd", "b", "bb", "c", "d"], "size": [None, 0, 1, 2]}
        )
    elif name == "nulls":
        space = Space.parse("size int 0..5, ok bool, kind enum('a', 'b', 'c') not null")
        values = {"size": [None, *range(6)], "ok": [None, False, True], "kind": ["a", "b", "c"]}
        points = Points(space, values)
    else:
        sizes = {"line": (12,), "plane": (5, 5), "cube": (3, 3, 3)}[name]
        space = ints(*sizes)
        points = Points(space, {f"a{axis}": list(range(size)) for axis, size in enumerate(sizes)})
        return points, nested(random, space, 12)
    clauses = [random_clause(random, space) for _ in range(50)]
    regions = [space.where(clause) for clause in clauses]
    return points, [*regions, *(space.where(clause) for clause in clauses[:8]), space.where("TRUE")]


@both_kinds
@pytest.mark.parametrize("name", ["line", "plane", "cube", "nulls", "strings"])
def test_random_subscriptions(name: str, kind: str) -> None:
    points, regions = pool(name)
    for number in range(2):
        run(Mirror(points, kind), regions, Random(f"{SEED}/{name}/{number}"), 100)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("subscribe"), st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("replace"), st.integers(0, 20), st.integers(0, 5), st.integers(0, 5)),
        st.tuples(st.just("unsubscribe"), st.integers(0, 20)),
    ),
    max_size=18,
)


@cache
def intervals() -> tuple[Points, dict[tuple[int, int], Region]]:
    space = ints(6)
    regions = {(low, high): region_of(space, [low], [high]) for low in range(6) for high in range(low, 6)}
    return Points(space, {"a0": list(range(6))}), regions


@examples(60)
@given(operations=operations, kind=st.sampled_from(KINDS))
def test_drawn_subscriptions(operations: list[Any], kind: str) -> None:
    """Intervals on a short line, and pairs of them: a failure shrinks to a few."""
    points, regions = intervals()
    mirror = Mirror(points, kind)
    for number, (operation, chosen, *ends) in enumerate(operations):
        if operation == "subscribe":
            region = regions[min(ends), max(ends)]
            mirror.subscribe(number, region if chosen > max(ends) else region | regions[chosen, max(chosen, *ends)])
        elif mirror.regions:
            id = list(mirror.regions)[chosen % len(mirror.regions)]
            if operation == "replace":
                mirror.replace(id, regions[min(ends), max(ends)])
            else:
                mirror.unsubscribe(id)


@pytest.mark.parametrize("name", ["line", "plane", "strings"])
def test_both_kinds_say_the_same(name: str) -> None:
    points, regions = pool(name)
    graphs = [RelationGraph(points.space, kind) for kind in KINDS]
    active_set = ActiveSet(points.space, cover="pairwise", retract=True)
    sets: list[RelationGraph | ActiveSet] = [*graphs, active_set]
    random, here = Random(SEED), list[int]()
    for step in range(150):
        if len(here) < 5 or random.random() < 0.6:
            here.append(step)
            region = random.choice(regions)
            changes = [each.subscribe(step, region) for each in sets]
        else:
            gone = here.pop(random.randrange(len(here)))
            changes = [each.unsubscribe(gone) for each in sets]
        assert changes[0].forward == changes[1].forward and changes[0].withdraw == changes[1].withdraw
        assert graphs[0].active == graphs[1].active
        held = [{points.bits(each.region(id)) for id in each.active} for each in (graphs[0], active_set)]
        assert held[0] == held[1]  # ActiveSet may tell another one of equals


@both_kinds
def test_a_change_depends_on_what_is_there_not_on_what_was(kind: str) -> None:
    """After any history the roots are those of the same subscriptions in order of arrival."""
    points, regions = pool("plane")
    random = Random(SEED)
    mirror = Mirror(points, kind)
    for step in range(60):
        mirror.subscribe(step, random.choice(regions))
        if step % 3 == 2:
            mirror.unsubscribe(random.choice(list(mirror.regions)))
        if step % 4 == 0:
            mirror.replace(random.choice(list(mirror.regions)), random.choice(regions))
        graph, change = mirror.graph.recompiled(points.space, mirror.regions)
        assert change == Change() and graph.active == mirror.graph.active


# --- Worked examples -------------------------------------------------------------------------------------------------

# In the spirit of figures 4 and 5: two roots that overlap, and what lies in one of them or in both.
FIGURE = {
    "s1": (0, 60), "s2": (40, 100), "s3": (0, 30), "s4": (45, 58), "s5": (70, 90), "s6": (50, 55), "s7": (5, 10),
}  # fmt: skip


def figure(kind: str) -> RelationGraph:
    space = ints(101)
    graph = RelationGraph(space, kind)
    for id, (low, high) in FIGURE.items():
        graph.subscribe(id, region_of(space, [low], [high]))
    graph.check_invariants()
    return graph


def test_the_traditional_graph_has_all_edges() -> None:
    graph = figure("traditional")
    edges = {id: graph.children(id) for id in FIGURE if graph.children(id)}
    assert edges == {"s1": ["s3", "s4"], "s2": ["s4", "s5"], "s3": ["s7"], "s4": ["s6"]}
    assert graph.parents("s4") == ["s1", "s2"] and graph.parents("s1") == []
    before = graph.comparisons
    change = graph.unsubscribe("s1")
    assert change == Change(["s3"], ["s1"]) and graph.comparisons == before
    assert graph.parents("s4") == ["s2"] and graph.passive["s7"] == ("s3",)
    graph.check_invariants()


def test_the_simplified_graph_stops_at_the_first_parent() -> None:
    graph = figure("simplified")
    edges = {id: graph.children(id) for id in FIGURE if graph.children(id)}
    assert edges == {"s1": ["s3", "s4"], "s2": ["s5"], "s3": ["s7"], "s4": ["s6"]}
    assert graph.unsubscribe("s1") == Change(["s3"], ["s1"])
    assert graph.parents("s4") == ["s2"] and graph.passive["s6"] == ("s2",)
    assert graph.rechecks == 2
    graph.check_invariants()
    assert graph.comparisons < figure("traditional").comparisons


@both_kinds
def test_a_newcomer_takes_back_the_roots_it_covers(kind: str) -> None:
    graph = figure(kind)
    space = graph.space
    change = graph.subscribe("w", region_of(space, [0], [99]))
    assert change == Change(["w"], ["s1"], Unproven("no single member covers it"))
    assert graph.active == ["s2", "w"]
    change = graph.subscribe("all", Region.everything(space))
    assert change.forward == ["all"] and change.withdraw == ["s2", "w"]
    assert set(graph.passive.values()) == {("all",)}
    assert graph.subscribe("late", region_of(space, [1], [2])).verdict == Covered(("all",))
    assert graph.unsubscribe("w") == Change()
    assert graph.unsubscribe("all") == Change(["s1", "s2"], ["all"])
    graph.check_invariants()


def two_roots() -> tuple[RelationGraph, Callable[[int, int], Region]]:
    """Roots n and q, met in this order, hold all that follows; x lies below q, for it came before n, and z below x."""
    space = ints(100)

    def box(low: int, high: int) -> Region:
        return region_of(space, [low], [high])

    graph = RelationGraph(space)
    graph.subscribe("early", box(99, 99))
    graph.subscribe("first", box(10, 95))
    graph.subscribe("q", box(10, 95))
    graph.subscribe("x", box(25, 45))
    graph.subscribe("z", box(28, 42))
    graph.subscribe("n", box(0, 90))
    graph.unsubscribe("first")  # q takes its place, behind n
    assert graph.active == ["early", "q", "n"] and graph.parents("x") == ["q"]
    return graph, box


def test_those_taken_along_are_inserted_below_not_just_connected() -> None:
    """Property 6 where Algorithm 1 does not look: c brings y along and takes x, which covers y."""
    graph, box = two_roots()
    graph.subscribe("c", box(20, 50))
    graph.subscribe("y", box(26, 44))
    assert graph.parents("c") == ["n"] and graph.parents("y") == ["c"]
    assert graph.unsubscribe("n") == Change([], ["n"])
    graph.check_invariants()
    assert graph.parents("c") == ["q"] and graph.parents("x") == ["c"]
    assert graph.children("x") == ["y"] and graph.children("y") == ["z"]


@pytest.mark.parametrize("name", ["early", "late"])
def test_equal_ones_that_meet_late_are_combined(name: str) -> None:
    """Both have children; the one that came first stands for both, where the other was."""
    graph, box = two_roots()
    if name == "early":
        graph.replace("early", box(25, 45))
    else:
        graph.subscribe("late", box(25, 45))
    graph.subscribe("y", box(30, 40))
    assert graph.parents(name) == ["n"] and graph.parents("y") == [name]
    assert graph.unsubscribe("n") == Change([], ["n"])
    graph.check_invariants()
    first, second = ("early", "x") if name == "early" else ("x", "late")
    assert graph.parents(first) == ["q"] and graph.parents(second) == [first]
    assert graph.parents("z") == [first] and graph.parents("y") == ["z"]


@both_kinds
def test_the_earlier_of_equal_ones_is_active(kind: str) -> None:
    space = ints(10)
    graph = RelationGraph(space, kind)
    low = space.where("a0 < 5")
    cut = space.where("a0 < 2") | space.where("a0 BETWEEN 2 AND 4")
    for id, region in {"a": low, "b": cut, "c": low, "inner": space.where("a0 = 1")}.items():
        graph.subscribe(id, region)
    assert graph.active == ["a"] and graph.parents("c") == ["a"] and graph.children("a") == ["b", "c", "inner"]
    before = graph.comparisons
    assert graph.unsubscribe("a") == Change(["b"], ["a"])
    assert graph.passive == {"c": ("b",), "inner": ("b",)} and graph.comparisons == before
    assert graph.unsubscribe("c") == Change() and graph.unsubscribe("b") == Change(["inner"], ["b"])
    graph.subscribe("d", low)
    change = graph.replace("inner", low)  # it came earlier
    assert change.forward == ["inner"] and change.withdraw == ["d"]
    graph.check_invariants()


@both_kinds
def test_equal_ones_cost_one_comparison_each(kind: str) -> None:
    space = ints(10)
    graph = RelationGraph(space, kind)
    for id in range(500):
        graph.subscribe(id, space.where("a0 < 5") if id < 2 else graph.region(1))
    assert graph.comparisons == 499 and graph.active == [0]


@both_kinds
def test_siblings_are_not_compared_again(kind: str) -> None:
    space = ints(100)
    graph = RelationGraph(space, kind)
    for id in range(50):
        graph.subscribe(id, region_of(space, [2 * id], [2 * id + 1]))
    graph.subscribe("all", Region.everything(space))
    before = graph.comparisons
    assert graph.unsubscribe("all").forward == list(range(50))
    assert graph.comparisons == before and graph.rechecks == 50


@both_kinds
def test_replacing_reports_the_net_change(kind: str) -> None:
    graph = figure(kind)
    space = graph.space
    change = graph.replace("s1", region_of(space, [0], [59]))  # still covers what it covered
    assert (change.forward, change.withdraw) == (["s1"], [])
    change = graph.replace("s1", region_of(space, [41], [99]))  # below s2 now
    assert (change.forward, change.withdraw, change.verdict) == (["s3"], ["s1"], Covered(("s2",)))
    change = graph.replace("s7", region_of(space, [0], [95]))
    assert (change.forward, change.withdraw) == (["s7"], ["s3"])
    graph.check_invariants()


@both_kinds
def test_recoded_strings(kind: str) -> None:
    space = Space.parse("name string, size int not null 0..9")
    graph = RelationGraph(space, kind)
    clauses = {
        "all": "name IS NOT NULL",
        "low": "name < 'm'",
        "high": "name >= 'm' AND size < 5",
        "m": "name = 'maaa' AND size = 3",
        "null": "name IS NULL",
    }
    for id, clause in clauses.items():
        graph.subscribe(id, space.where(clause))
    assert graph.active == ["all", "null"]
    recode(space)
    change = graph.unsubscribe("all")
    assert change.forward == ["low", "high"] and graph.passive == {"m": ("high",)}
    recode(space)
    elsewhere = Space.parse("name string, size int not null 0..9")  # an equal space that met other strings
    assert graph.subscribe("wide", elsewhere.where("name >= 'k'")).withdraw == ["high"]
    recode(elsewhere)
    graph.check_invariants()
    assert graph.active == ["low", "null", "wide"]


@both_kinds
def test_balls(kind: str) -> None:
    """What is active holds every sampled point of what is subscribed."""
    space = Space.parse("x int not null 0..20, y int not null 0..20")
    points = Points(space, {"x": list(range(21)), "y": list(range(21))})
    random = Random(SEED)
    centres = [(10, 10), (10, 10), (12, 9)]
    regions = [
        space.where(f"within({random.randint(1, 9)}, x, {x}, y, {y})" + random.choice(("", " AND x < 12")))
        for x, y in centres * 6
    ]
    regions += [space.where(f"x BETWEEN {10 - at} AND {10 + at} AND y BETWEEN {9 - at} AND 14") for at in range(8)]
    graph, here = RelationGraph(space, kind), dict[int, Region]()
    for step in range(120):
        if len(here) < 4 or random.random() < 0.6:
            here[step] = random.choice(regions)
            graph.subscribe(step, here[step])
        else:
            gone = random.choice(list(here))
            del here[gone]
            graph.unsubscribe(gone)
        graph.check_invariants()
        for passive, names in graph.passive.items():
            assert graph.is_active(names[0]) and verify(Covered(names), here[passive], here)
            assert points.bits(here[passive]) & ~points.bits(here[names[0]]) == 0
    assert len(graph.passive) > 3


# --- Loading, compiling anew, copying --------------------------------------------------------------------------------


@both_kinds
@pytest.mark.parametrize("name", ["plane", "strings"])
def test_what_was_forwarded_is_loaded_again(name: str, kind: str) -> None:
    points, regions = pool(name)
    random = Random(SEED)
    mirror = Mirror(points, kind)
    for step in range(50):
        mirror.subscribe(step, random.choice(regions))
    loaded = Mirror(points, kind)
    loaded.graph.load(mirror.regions, mirror.graph.passive)
    loaded.regions, loaded.mirror = dict(mirror.regions), set(mirror.mirror)
    loaded.holds()
    for step in random.sample(range(50), 30):
        loaded.unsubscribe(step)
    loaded.subscribe("new", regions[0])


@both_kinds
def test_what_cannot_be_loaded_is_refused(kind: str) -> None:
    space = ints(10)
    regions = {"a": space.where("a0 < 5"), "b": space.where("a0 >= 5"), "c": space.where("a0 = 1")}
    graph = RelationGraph(space, kind)
    for certificates in ({"c": ("a", "b")}, {"c": ()}, {"c": ("d",)}, {"d": ("a",)}, {"b": ("a",), "c": ("b",)}):
        with pytest.raises(CallerError):
            graph.load(regions, certificates)
        assert len(graph) == 0 and graph.active == []
    graph.load(regions | {"none": Region.nothing(space)}, {"c": ("a",)})
    assert graph.active == ["a", "b"] and graph.passive == {"c": ("a",), "none": ()}
    with pytest.raises(CallerError, match="empty"):
        graph.load(regions, {"c": ("a",)})
    graph.check_invariants()


@both_kinds
def test_compiled_anew(kind: str) -> None:
    """An enum gets a value: what were all values are all no more, and the roots differ."""
    clauses = {"some": "kind IN ('a', 'b')", "all": "kind IS NOT NULL AND n < 5", "n": "n < 5", "x": "kind = 'c'"}
    old, new = (
        Space.parse(f"kind enum({values}) not null, n int not null 0..9") for values in ("'a', 'b'", "'a', 'b', 'c'")
    )
    graph = RelationGraph(old, kind)
    for id, clause in clauses.items():
        if id == "x":
            graph.subscribe(id, Region.nothing(old))
        else:
            graph.subscribe(id, old.where(clause))
    assert graph.active == ["some"]
    again, change = graph.recompiled(new, {id: new.where(clause) for id, clause in clauses.items()})
    assert change == Change(["all", "x"], []) and again.active == ["some", "all", "x"]
    assert again.kind == kind and again.space is new and graph.active == ["some"]
    assert again.comparisons > graph.comparisons
    back, change = again.recompiled(old, {id: graph.region(id) for id in clauses})
    assert change == Change([], ["all", "x"]) and back.passive == graph.passive
    with pytest.raises(CallerError):
        graph.recompiled(new, {"some": new.where("n = 1")})


@both_kinds
def test_a_copy_goes_its_own_way(kind: str) -> None:
    graph = figure(kind)
    other = copy.deepcopy(graph)
    assert other.unsubscribe("s2").forward == ["s5"]
    other.check_invariants()
    assert graph.active == ["s1", "s2"]
    graph.check_invariants()


@both_kinds
def test_nobody_has_no_parents_and_an_unknown_kind_is_refused_by_name(kind: str) -> None:
    graph = RelationGraph(ints(10), kind)
    for ask in (graph.parents, graph.children):
        with pytest.raises(UnknownSubscription):
            ask("nobody")
    with pytest.raises(CallerError, match="magic"):
        RelationGraph(ints(10), "magic")


@both_kinds
def test_a_long_chain(kind: str) -> None:
    """Three thousand boxes, each in the next: no recursion, and each wider one costs one comparison."""
    space = ints(6_001)
    graph = RelationGraph(space, kind)
    for at in range(3_000):
        change = graph.subscribe(at, region_of(space, [3_000 - at], [3_000 + at]))
        assert change.withdraw == ([at - 1] if at else [])
    assert graph.comparisons == 2_999 and graph.certificate(0) == (2_999,)
    assert set(graph.passive.values()) == {(2_999,)}
    assert graph.subscribe("inner", region_of(space, [3_000], [3_000])).verdict == Covered((2_999,))
    assert graph.parents("inner") == [0]
    assert graph.unsubscribe(1_500) == Change() and graph.parents(1_499) == [1_501]
    assert graph.unsubscribe(2_999) == Change([2_998], [2_999])
    if kind == "simplified":  # of the traditional one all pairs would be compared
        graph.check_invariants()


def test_the_simplified_graph_compares_less() -> None:
    space = ints(1_000, 1_000)
    random = Random(SEED)
    boxes = [random_box(random, whole(space)) for _ in range(20)]
    boxes += [random_box(random, random.choice(boxes)) for _ in range(300)]
    compared = {}
    for kind in KINDS:
        graph = RelationGraph(space, kind)
        for id, box in enumerate(boxes):
            graph.subscribe(id, region_of(space, *box))
        compared[kind] = graph.comparisons
    assert compared["simplified"] < compared["traditional"]
