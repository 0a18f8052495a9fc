"""Events that carry the number of their cell, and subscriptions the ranges of theirs, between brokers that agree."""

from __future__ import annotations

import random
from typing import Any

import pytest

from thatch import Space
from thatch.broker import Cells, Policy, Settings
from thatch.broker.cells import CLIENTS, LinkCells
from thatch.errors import CallerError, PeerError
from thatch.protocol.messages import Deliver, Extend, Publish, Subscribe
from thatch.sim.network import Observer
from thatch.sim.overlay import Overlay
from thatch.sim.topology import chain
from thatch.sim.workload import box_clause, events, space_of

SPACE = Space.parse("x int not null 0..7, y int not null 0..7")
CELLS = Cells(bits=3)


class Deliveries(Observer):
    def __init__(self) -> None:
        self.got: list[tuple[str, tuple[str, ...]]] = []

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        self.got.append((delivered.event.id, delivered.ids))


def overlay(settings: Settings, space: Space = SPACE) -> Overlay:
    return Overlay(space, [*chain("PABS"), ("A", "T")], ["S", "T"], ["P"], settings, observer=Deliveries())


def noted(net: Overlay, broker: str, kind: type) -> list[Any]:
    """Messages of a kind that a broker gets from now on."""
    own = net.network.nodes[broker].broker
    handle, received = own.handle, list[Any]()

    def noting(message: Any, link: str, now: float) -> Any:
        if isinstance(message, kind):
            received.append(message)
        return handle(message, link, now)

    own.handle = noting  # type: ignore[method-assign]
    return received


def test_ranges_and_numbers_travel_where_both_sides_agree() -> None:
    """The worked example of MICS: ranges [32,35], [45,46], [50,55]."""
    net = overlay(Settings(cells=CELLS))
    subscriptions, published = noted(net, "A", Subscribe), noted(net, "B", Publish)
    net.subscribe("s", "x BETWEEN 4 AND 6 AND y BETWEEN 2 AND 5", broker="S")
    net.network.run()
    assert [each.cells for each in subscriptions] == [(32, 35, 45, 46, 50, 55)]
    net.publish({"x": 4, "y": 2})
    net.network.run()
    assert [each.cell for each in published] == [LinkCells(CELLS.grid(SPACE)).number([4, 2])]


def test_a_broker_on_the_way_reads_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    net = overlay(Settings(cells=CELLS))
    net.subscribe("s", "x < 3", broker="S")
    net.network.run()
    for name in "AB":
        monkeypatch.setattr(net.network.nodes[name].broker._router, "space", None)
    net.publish({"x": 2, "y": 2})
    net.network.run()
    seen = net.network.observer
    assert isinstance(seen, Deliveries) and [ids for _, ids in seen.got] == [("s",)]


def test_partitions_that_differ_are_not_used() -> None:
    net = overlay(Settings())
    published = noted(net, "A", Publish)
    net.subscribe("s", "x < 3", broker="S")
    net.publish({"x": 2, "y": 2}, at=1.0)
    net.network.run()
    assert [each.cell for each in published] == [-1]
    assert not any(link.agrees for node in net.network.nodes.values() for link in node.broker.links.values())


@pytest.mark.parametrize("cells", [Cells(bits=2), Cells(("x1", "x3"), bits=3, path="gray", ranges_max=3)])
@pytest.mark.parametrize("policy", [Policy(merge=0.1), Policy("pairwise", True, packed=True)], ids=str)
def test_clients_get_exactly_what_they_want(cells: Cells, policy: Policy) -> None:
    """Compared with brute force, while subscriptions come and go."""
    rng = random.Random(1)
    net = overlay(Settings(policy=policy, cells=cells), space_of(4))
    seen = net.network.observer
    assert isinstance(seen, Deliveries)
    wheres: dict[str, str] = {}
    for at in range(60):
        low = [rng.randrange(6_000) for _ in range(4)]
        wheres[f"s{at}"] = box_clause(low, [each + 4_000 for each in low])
        net.subscribe(f"s{at}", wheres[f"s{at}"])
        if at % 3 == 2:
            gone = rng.choice(list(wheres))
            net.network.run()
            net.unsubscribe(gone)
            del wheres[gone]
    net.network.run()
    for node in net.network.nodes.values():
        node.broker.check_invariants()
    regions = {id: net.space.where(where) for id, where in wheres.items()}
    vain = 0
    for event in events(90, rng):
        seen.got.clear()
        net.publish(event)
        net.network.run()
        got = sorted(id for _, ids in seen.got for id in ids)
        assert got == sorted(id for id, region in regions.items() if region.contains(event))
    for here, there in (("S", "B"), ("T", "A")):
        vain += net.network.nodes[here].broker.links[there].counts.false_positives
    assert vain < 90, "coarser than regions, but no flood"


def test_a_space_that_grows_ends_the_agreement() -> None:
    small = Space.parse("x int not null 0..7, kind enum('a','b') not null")
    net = overlay(Settings(cells=Cells(bits=3)), small)
    net.subscribe("s", "kind <> 'a'", broker="S")

    def agrees() -> bool:
        return net.network.nodes["A"].broker.links["B"].agrees

    net.network.run()
    assert agrees()
    grown = Space.parse("x int not null 0..7, kind enum('a','b','c') not null")
    net.network.operate("A", Extend(0, grown.to_json()))
    net.network.run()
    assert not agrees()
    net.publish({"x": 1, "kind": "c"})
    net.network.run()
    seen = net.network.observer
    assert isinstance(seen, Deliveries) and [ids for _, ids in seen.got] == [("s",)]


def test_what_makes_no_partition_is_refused() -> None:
    with pytest.raises(
        CallerError, match="strings and decimals of more than 18 digits have no cells that a neighbour understands"
    ):
        Cells().grid(Space.parse("name string"))
    with pytest.raises(CallerError, match="theta or cells"):
        Settings(policy=Policy(theta=0.5), cells=CELLS)


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ((1, 2, 3), "pairs of numbers"),
        ((5, 4), "ends where it begins, or later"),
        ((-1, 4), "lie within 0..63"),
        ((1, 64), "lie within 0..63"),
        ((1, 9, 9, 12), "ascend, are apart"),
    ],
)
def test_ranges_that_cannot_be_are_the_peers_fault(ranges: tuple[int, ...], reason: str) -> None:
    cells = LinkCells(CELLS.grid(SPACE))
    with pytest.raises(PeerError, match=reason):
        cells.put("B", "s", "B", SPACE.where("x < 3"), ranges)
    assert len(cells) == 0 and cells.wanting(5) == []


def test_clients_are_one_table() -> None:
    cells = LinkCells(CELLS.grid(SPACE))
    for link in ("ann", "bob"):
        cells.put(link, "s", CLIENTS, SPACE.where("x < 3"))
    assert cells.wanting(cells.number([1, 1])) == [CLIENTS]
    cells.drop("ann", "s")
    assert cells.wanting(cells.number([1, 1])) == [CLIENTS] and cells.wanting(cells.number([7, 7])) == []
