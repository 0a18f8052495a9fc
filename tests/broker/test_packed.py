"""Packed changes: an unsubscription carries its replacements, and an exchange says what single changes say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.overlays import SPACE, forwarded, left, overlay, sent_to, subscribed
from helpers.strategies import examples
from thatch.broker import Policy, Settings
from thatch.cover import ActiveSet, CoverSet, RelationGraph
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.sim.overlay import Overlay
from thatch.sim.topology import chain


@pytest.mark.parametrize("policy", [Policy("exact"), Policy("pairwise", True), Policy("pairwise", graph="simplified")])
def test_packed_an_unsubscription_carries_its_replacements(policy: Policy) -> None:
    packed = Settings(policy=policy).tuned(packed=True).policy
    net = overlay(chain("ABC"), ["C"], packed)
    subscribed(net, "A", wide="x < 50", one="x < 10", two="x BETWEEN 20 AND 30")
    at_b, at_c = sent_to(net, "B", "A"), sent_to(net, "C", "B")
    left(net, "wide")
    for received in (at_b, at_c):
        (message,) = received
        assert message.id == "A/at A/wide" and message.also == ()
        assert message.replacements == {"A/at A/one": "x < 10", "A/at A/two": "x BETWEEN 20 AND 30"}
    assert forwarded(net, "B", "C") == {"one": "x < 10", "two": "x BETWEEN 20 AND 30"}


def test_packed_retractions_come_with_the_wider_one() -> None:
    net = overlay(chain("AB"), ["B"], Policy("exact", True, packed=True))
    subscribed(net, "A", one="x < 10", two="x BETWEEN 20 AND 30")
    received = sent_to(net, "B", "A")
    subscribed(net, "A", wide="x < 50")
    (message,) = received
    assert message.where == "x < 50" and sorted(message.retracts) == ["A/at A/one", "A/at A/two"]
    assert net.network.nodes["B"].broker.received_from(SUBSCRIPTIONS, "A") == {"A/at A/wide": "x < 50"}


def test_a_replacement_goes_only_where_its_advertisements_are() -> None:
    """Of the two publishers' brokers that knew the one that leaves, each hears what it may publish."""
    net = Overlay(SPACE, [("A", "B"), ("B", "C"), ("B", "D")], ["A"], [], Settings(policy=Policy(packed=True)))
    for broker, where in (("C", "x < 20"), ("D", "x >= 20")):
        client = net.network.add_client(f"from {broker}")
        net.network.join(broker, client.name)
        net.network.run()
        net.network.tell(client.name, client.advertise(broker, "all", where))
        net.network.run()
    subscribed(net, "A", wide="x < 50", low="x < 10", high="x BETWEEN 30 AND 40")
    left(net, "wide")
    assert forwarded(net, "B", "C") == {"low": "x < 10"} and forwarded(net, "B", "D") == {"high": "x BETWEEN 30 AND 40"}


boxes = st.tuples(st.integers(0, 11), st.integers(0, 6), st.integers(0, 11), st.integers(0, 6))


def clause(box: tuple[int, int, int, int]) -> str:
    x, width, y, height = box
    return f"x BETWEEN {x} AND {x + width} AND y BETWEEN {y} AND {y + height}"


PLANE = {name: side.ravel() for name, side in zip("xy", np.mgrid[0:18, 0:18], strict=True)}


def union_of(members: CoverSet, ids: Iterable[str]) -> NDArray[np.bool_]:
    """Which points of the plane some of the members hold."""
    held = [members.region(id).contains_batch(PLANE) for id in ids]
    return np.any(held, axis=0) if held else np.zeros(PLANE["x"].shape, np.bool_)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["exact", "exact retracting", "pairwise", "traditional", "simplified"])
@examples(60)
@given(st.lists(boxes, min_size=2, max_size=14), st.lists(boxes, max_size=8), st.data())
def test_an_exchange_sends_what_one_by_one_sends(kind: str, held: list[Any], new: list[Any], data: Any) -> None:
    """For covering by one, the same members are active; for a union, whatever is passive has a certificate that holds
    (`check_invariants` verifies each), and what is forwarded and withdrawn leads from the one set to the other."""

    def empty() -> CoverSet:
        if kind in ("traditional", "simplified"):
            return RelationGraph(SPACE, kind)
        return ActiveSet(SPACE, kind.split()[0], "retracting" in kind)

    one, other = empty(), empty()
    for at, box in enumerate(held):
        for each in (one, other):
            each.subscribe(f"h{at}", SPACE.where(clause(box)))
    gone = data.draw(st.lists(st.sampled_from([f"h{at}" for at in range(len(held))]), unique=True, min_size=1))
    coming = {f"n{at}": SPACE.where(clause(box)) for at, box in enumerate(new)}
    before = set(one.active)
    change = one.exchange(gone, coming)
    one.check_invariants()
    assert set(one.active) == (before | set(change.forward)) - set(change.withdraw)
    assert not set(change.forward) & before and set(change.withdraw) <= before
    for id in gone:
        other.unsubscribe(id)
    for id, region in coming.items():
        other.subscribe(id, region)
    if kind in ("traditional", "simplified"):
        assert one.active == other.active and one.passive.keys() == other.passive.keys()
    active, all_of_them = (union_of(one, ids) for ids in (one.active, [*one.active, *one.passive]))
    assert not np.any(all_of_them & ~active)


def test_an_exchange_of_the_simplified_graph_compares_newcomers_with_the_children_of_the_one_that_leaves() -> None:
    """The paper's first step: not with all roots."""
    graph = RelationGraph(SPACE, "simplified")
    for at in range(50):
        graph.subscribe(f"root{at}", SPACE.where(f"x = {2 * at}"))
    graph.subscribe("wide", SPACE.where("x = 100"))
    before = graph.comparisons
    change = graph.exchange(["wide"], {f"n{at}": SPACE.where(f"x = 100 AND y = {at}") for at in range(5)})
    assert change.forward == [f"n{at}" for at in range(5)] and change.withdraw == ["wide"]
    assert graph.comparisons - before < 5 + 10 + 5 * 50 + 1, (
        "each is compared with the other roots once, when it is one"
    )
