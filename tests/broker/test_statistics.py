"""Statistics: how far from its subscriber an event parts from those of others, which pruning goes by."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helpers.overlays import CALM, Deliveries, left, overlay, published, subscribed
from helpers.strategies import examples
from thatch.broker import similarity
from thatch.broker.statistics import SLICES, Distances
from thatch.protocol import codec
from thatch.protocol.messages import Publish, Send
from thatch.sim.topology import chain


def test_the_prune_distance_is_the_smallest_below_which_more_than_theta_of_the_events_are() -> None:
    distances = Distances(60.0)
    for distance in [6] * 86 + [7] * 14:
        distances.saw("S1", ["A1"], distance, 0.0)
    assert distances.prune("S1", ["A1", "A2"], 0.85, 1.0) == {"A1": 7, "A2": 0}
    assert distances.prune("S1", ["A1"], 0.86, 1.0) == {"A1": 8}
    assert distances.similarity("S1", "A1", 6, 1.0) == 0.86 and distances.similarity("S1", "A2", 6, 1.0) is None


def test_the_window_slides_and_is_purged() -> None:
    distances = Distances(SLICES * 1.0)
    for second in range(30):
        distances.saw("S1", ["A1"], second, float(second))
    assert list(distances.counts("S1", "A1", 29.0)) == list(range(30 - SLICES, 30))
    assert distances.counts("S1", "A1", 33.0) == {26: 1, 27: 1, 28: 1, 29: 1}
    assert distances.counts("S1", "A1", 300.0) == {}
    distances.forget("S1")
    assert len(distances) == 0


@examples(100)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.floats(0, 0.999))
def test_prune_distances_by_their_definition(seen: list[int], theta: float) -> None:
    distances = Distances(1.0)
    for each in seen:
        distances.saw("s", ["a"], each, 0.5)
    shares = {h: sum(each < h for each in seen) / len(seen) for h in range(11)}
    assert distances.prune("s", ["a"], theta, 0.5)["a"] == min(h for h, share in shares.items() if share > theta)


def test_figure_6_the_header_of_an_event() -> None:
    """From A to I: others want it at C and at G, so at I the nearest one is two hops away."""
    net = overlay([*chain("ABCDEFGHI"), ("C", "J"), ("G", "K")], ["A"], CALM)
    subscribed(net, "I", s1="x < 50")
    subscribed(net, "J", other="x < 60")
    subscribed(net, "K", third="x < 55")
    published(net, (10, 10))
    seen = net.network.observer
    assert isinstance(seen, Deliveries)
    assert {client: (distance, count) for _, client, _, distance, count in seen.got} == {
        "at J": (1, 1), "at K": (1, 2), "at I": (2, 2),
    }  # fmt: skip
    broker = net.network.nodes["I"].broker
    assert similarity(broker, "I/at I/s1", 1, net.network.now) == {"A/from A/all": 0.0}
    assert similarity(broker, "I/at I/s1", 2, net.network.now) == {"A/from A/all": 1.0}


def test_publishers_that_come_and_go_leave_nothing_in_a_history() -> None:
    distances = Distances(SLICES * 1.0)
    for second in range(100):
        distances.saw("s", [f"a{second}", "stays"], 1, float(second))
        assert distances.counts("s", f"a{second - 50}", float(second)) == {}
    assert len(distances._seen["s"]) <= SLICES + 2
    assert distances.counts("s", "stays", 99.0) == {1: SLICES} and distances.counts("s", "a99", 99.0) == {1: 1}


def test_the_header_of_an_event_is_the_brokers_own_and_can_always_be_sent() -> None:
    net = overlay(chain("ABC"), ["B", "C"], CALM)
    subscribed(net, "A", s="x < 50")
    broker = net.network.nodes["B"].broker
    for number in (2**64 - 1, -5):
        (send,) = broker.handle(Publish("from C:1:1", {"x": 1, "y": 1}, b"", number, number), "C", 0.0)
        assert isinstance(send, Send) and isinstance(send.message, Publish) and codec.encode(send.message)
        assert send.message.distance > 0 <= send.message.count
        (send,) = broker.handle(Publish("from B:1:1", {"x": 1, "y": 1}, b"", number, number), "from B", 0.0)
        assert isinstance(send, Send) and send.message == Publish("from B:1:1", {"x": 1, "y": 1})


def test_only_the_subscribers_own_broker_keeps_a_history_and_it_ends_with_the_subscription() -> None:
    net = overlay(chain("ABC"), ["A"], CALM)
    subscribed(net, "C", s="x < 50")
    published(net, (1, 1))
    kept = {name: len(node.broker.distances) for name, node in net.network.nodes.items()}
    assert kept == {"A": 0, "B": 0, "C": 1}
    left(net, "s")
    assert len(net.network.nodes["C"].broker.distances) == 0
