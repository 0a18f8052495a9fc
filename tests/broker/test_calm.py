"""Calm unsubscription: packing, incremental pruning, merging as a policy, and plans. One example for each rule, and
properties against what is done one by one. Random overlays with all of it are in test_sim_seeds.py."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples
from thatch import Space
from thatch.broker import Broker, Policy, Settings, plan_policy, plan_subscription, plan_unsubscription
from thatch.broker.broker import OPERATOR
from thatch.broker.inspect import why_sent
from thatch.broker.outbound import OutboundTable
from thatch.broker.statistics import SLICES, Distances
from thatch.cli.main import main
from thatch.cover import ActiveSet, RelationGraph
from thatch.errors import CallerError
from thatch.protocol import codec
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import Deliver, Extend, Publish, Put, Reject, Retune, Send, Subscribe, Unsubscribe
from thatch.sim import dryrun
from thatch.sim.network import Network, Observer
from thatch.sim.overlay import Overlay
from thatch.sim.topology import chain, congestion, eleven, path
from thatch.sim.workflow import draw_processes, workflow_space
from thatch.sim.workload import covered, events, space_of

SPACE = Space.parse("x int not null 0..100, y int not null 0..100")
CALM = Policy("pairwise", True, packed=True, theta=0.9)


class Heard(Observer):
    """Who got which events."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, tuple[str, ...], int, int]] = []

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        event = delivered.event
        self.got.append((event.id, client, delivered.ids, event.distance, event.count))


def overlay(links: list[tuple[str, str]], publishers: list[str], policy: Policy, **settings: Any) -> Overlay:
    names = list(dict.fromkeys(name for link in links for name in link))
    return Overlay(SPACE, links, names, publishers, Settings(policy=policy, **settings), observer=Heard())


def told(net: Overlay, teller: str, hearer: str) -> dict[str, str]:
    """By the last part of the id."""
    found = net.network.nodes[teller].broker.outbound(SUBSCRIPTIONS, hearer).forwarded()
    return {id.split("/")[-1]: where for id, where in found.items()}


def published(net: Overlay, *points: tuple[int, int]) -> None:
    for x, y in points:
        net.publish({"x": x, "y": y})
        net.network.run()


def subscribed(net: Overlay, broker: str, **wheres: str) -> None:
    for id, where in wheres.items():
        net.subscribe(id, where, broker=broker)
        net.network.run()


def left(net: Overlay, *ids: str) -> None:
    for id in ids:
        net.unsubscribe(id)
    net.network.run()
    for node in net.network.nodes.values():
        node.broker.check_invariants()


def sent_to(net: Overlay, hearer: str, teller: str) -> list[Any]:
    """What a broker is told from now on, of subscriptions."""
    heard: list[Any] = []
    broker = net.network.nodes[hearer].broker
    handle = broker.handle

    def noting(message: Any, link: str, now: float) -> Any:
        if link == teller and isinstance(message, Subscribe | Unsubscribe):
            heard.append(message)
        return handle(message, link, now)

    broker.handle = noting  # type: ignore[method-assign]
    return heard


# --- Statistics ------------------------------------------------------------------------------------------------------


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
    heard = net.network.observer
    assert isinstance(heard, Heard)
    assert {client: (distance, count) for _, client, _, distance, count in heard.got} == {
        "at J": (1, 1), "at K": (1, 2), "at I": (2, 2),
    }  # fmt: skip
    broker = net.network.nodes["I"].broker
    assert broker.similarity("I/at I/s1", 1, net.network.now) == {"A/from A/all": 0.0}
    assert broker.similarity("I/at I/s1", 2, net.network.now) == {"A/from A/all": 1.0}


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
    kept = {name: len(node.broker._router.distances) for name, node in net.network.nodes.items()}
    assert kept == {"A": 0, "B": 0, "C": 1}
    left(net, "s")
    assert len(net.network.nodes["C"].broker._router.distances) == 0


# --- Packed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Policy("exact"), Policy("pairwise", True), Policy("pairwise", graph="simplified")])
def test_packed_an_unsubscription_carries_its_replacements(policy: Policy) -> None:
    packed = Settings(policy=policy).tuned(packed=True).policy
    net = overlay(chain("ABC"), ["C"], packed)
    subscribed(net, "A", wide="x < 50", one="x < 10", two="x BETWEEN 20 AND 30")
    at_b, at_c = sent_to(net, "B", "A"), sent_to(net, "C", "B")
    left(net, "wide")
    for heard in (at_b, at_c):
        (message,) = heard
        assert message.id == "A/at A/wide" and message.also == ()
        assert message.replacements == {"A/at A/one": "x < 10", "A/at A/two": "x BETWEEN 20 AND 30"}
    assert told(net, "B", "C") == {"one": "x < 10", "two": "x BETWEEN 20 AND 30"}


def test_packed_retractions_come_with_the_wider_one() -> None:
    net = overlay(chain("AB"), ["B"], Policy("exact", True, packed=True))
    subscribed(net, "A", one="x < 10", two="x BETWEEN 20 AND 30")
    heard = sent_to(net, "B", "A")
    subscribed(net, "A", wide="x < 50")
    (message,) = heard
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
    assert told(net, "B", "C") == {"low": "x < 10"} and told(net, "B", "D") == {"high": "x BETWEEN 30 AND 40"}


boxes = st.tuples(st.integers(0, 11), st.integers(0, 6), st.integers(0, 11), st.integers(0, 6))


def clause(box: tuple[int, int, int, int]) -> str:
    x, width, y, height = box
    return f"x BETWEEN {x} AND {x + width} AND y BETWEEN {y} AND {y + height}"


@pytest.mark.parametrize("kind", ["exact", "exact retracting", "pairwise", "traditional", "simplified"])
@examples(60)
@given(st.lists(boxes, min_size=2, max_size=14), st.lists(boxes, max_size=8), st.data())
def test_an_exchange_tells_what_one_by_one_tells(kind: str, held: list[Any], new: list[Any], data: Any) -> None:
    """For covering by one, the same members are active; for a union, whatever is passive has a certificate that holds
    (`check_invariants` verifies each), and what is forwarded and withdrawn leads from the one set to the other."""

    def empty() -> ActiveSet | RelationGraph:
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
    for x in range(18):
        for y in range(18):
            held_by = [id for id in [*one.active, *one.passive] if one.region(id).contains({"x": x, "y": y})]
            assert not held_by or any(map(one.is_active, held_by)), (x, y)


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


# --- Incremental -----------------------------------------------------------------------------------------------------


def wide_on_a_chain(theta: float = 0.9, **settings: Any) -> Overlay:
    """A - B - C - D - E - P: `wide` lives at A, what it holds back at B and A; events of B's hit wide, too."""
    net = overlay(chain("ABCDEP"), ["P"], Policy("pairwise", True, packed=True, theta=theta), **settings)
    subscribed(net, "A", wide="x < 50", a1="x < 10 AND y < 50", a2="x < 10 AND y >= 50")
    subscribed(net, "B", b1="x < 40 AND y < 50", b2="x < 40 AND y >= 50")
    return net


def test_incremental_keeps_what_leaves_beyond_the_critical_broker() -> None:
    """All events of `wide` are wanted at B, too, one hop away, so h = 2: it is taken back over two hops, and C tells
    it on for those that it holds back."""
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    at_d = sent_to(net, "D", "C")
    left(net, "wide")
    assert told(net, "A", "B").keys() == {"a1", "a2"}
    assert told(net, "B", "C").keys() == {"b1", "b2"}, "b1 and b2 hold a1 and a2"
    assert told(net, "C", "D") == {"wide": "x < 50"} and at_d == []
    broker = net.network.nodes["C"].broker
    preserved = broker.links["D"].outbound.subscriptions
    assert list(preserved.preserved) == ["A/at A/wide"]
    assert preserved.active_set.dependents("A/at A/wide") == ["B/at B/b1", "B/at B/b2"]
    assert net.network.nodes["D"].broker.received_from(SUBSCRIPTIONS, "C") == {"A/at A/wide": "x < 50"}


def test_events_that_only_the_preserved_one_wants_end_at_the_critical_broker() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    heard = net.network.observer
    assert isinstance(heard, Heard)
    heard.got.clear()
    published(net, (45, 1), (5, 1))
    assert [(client, ids) for _, client, ids, _, _ in heard.got] == [("at B", ("b1",)), ("at A", ("a1",))]
    assert net.network.nodes["C"].broker.links["D"].counts.false_positives == 1


def test_without_history_nothing_is_taken_back_and_with_unlike_events_everything_is() -> None:
    net = wide_on_a_chain()
    left(net, "wide")
    assert told(net, "A", "B").keys() == {"wide"}, "there is no false positive"
    net = wide_on_a_chain()
    published(net, *((45, at) for at in range(0, 100, 5)))
    left(net, "wide")
    assert told(net, "E", "P").keys() == {"b1", "b2"}


def test_toward_each_advertisement_it_is_taken_back_as_far_as_its_own_events_say() -> None:
    """Of what C publishes only `wide` wants anything, of what D publishes there were no events: both go over the link
    from A, and part at B."""
    net = Overlay(SPACE, [("A", "B"), ("B", "C"), ("B", "D")], ["A", "B"], [], Settings(policy=CALM))
    publishers = {broker: net.network.add_client(f"from {broker}") for broker in "CD"}
    for broker, where in (("C", "x < 20"), ("D", "x >= 20")):
        net.network.join(broker, f"from {broker}")
        net.network.run()
        net.network.tell(f"from {broker}", publishers[broker].advertise(broker, "all", where))
        net.network.run()
    subscribed(net, "A", wide="x < 50")
    subscribed(net, "B", c1="x < 5 AND y < 50", c2="x < 5 AND y >= 50", d1="x BETWEEN 20 AND 40 AND y < 50")
    net.network.tell("from C", publishers["C"].publish("C", {"x": 10, "y": 10}))
    net.network.run()
    left(net, "wide")
    assert told(net, "A", "B") == {}
    assert told(net, "B", "C").keys() == {"c1", "c2"} and told(net, "B", "D").keys() == {"wide"}


def test_a_subscription_that_holds_back_nobody_is_not_preserved() -> None:
    net = overlay(chain("ABC"), ["C"], CALM)
    subscribed(net, "A", alone="x < 50")
    left(net, "alone")
    assert told(net, "A", "B") == told(net, "B", "C") == {}


def test_a_preserved_one_is_withdrawn_when_nobody_is_left_that_it_stands_for() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    left(net, "b1")
    assert told(net, "D", "E").keys() == {"wide"}
    left(net, "b2", "a1", "a2")
    assert all(told(net, *link) == {} for link in chain("ABCDEP"))


def test_a_preserved_one_goes_on_covering_later_ones() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    heard = sent_to(net, "D", "C")
    subscribed(net, "C", later="x BETWEEN 30 AND 45")
    assert heard == []
    left(net, "b1", "b2", "a1", "a2")
    assert told(net, "C", "D").keys() == {"wide"}, "it stands for the later one now"
    left(net, "later")
    assert told(net, "C", "D") == {}


def test_a_wider_one_takes_a_preserved_one_back() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    subscribed(net, "B", all="TRUE")
    assert told(net, "C", "D").keys() == {"all"}
    assert net.network.nodes["C"].broker.links["D"].outbound.subscriptions.preserved == {}


def test_a_preserved_one_that_comes_back_is_itself_again() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    heard = sent_to(net, "D", "C")
    subscribed(net, "A", wide="x < 50")
    assert heard == [] and net.network.nodes["C"].broker.links["D"].outbound.subscriptions.preserved == {}
    assert told(net, "A", "B").keys() == {"wide"}


def test_a_preserved_one_whose_id_comes_back_otherwise_goes_on_as_another_incarnation() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    subscribed(net, "A", wide="x BETWEEN 45 AND 60")
    found = net.network.nodes["C"].broker.outbound(SUBSCRIPTIONS, "D").forwarded()
    assert found == {"~/1~A/at A/wide": "x < 50", "A/at A/wide": "x BETWEEN 45 AND 60"}
    left(net, "wide", "b1", "b2", "a1", "a2")
    assert all(told(net, *link) == {} for link in chain("ABCDEP"))


def test_what_is_preserved_survives_a_restart() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    network = net.network
    store = list(network.nodes["C"].store)
    assert Put("preserved", "D", "A/at A/wide", "x < 50") in store
    heard = sent_to(net, "D", "C")
    network.crash("C", keep_store=True)
    network.restart("C")
    network.run()
    assert told(net, "C", "D") == {"wide": "x < 50"} and heard == []
    left(net, "b1", "b2", "a1", "a2")
    assert all(told(net, *link) == {} for link in chain("ABCDEP"))


def test_a_preserved_one_that_comes_to_where_it_began_stands_for_others_there_too() -> None:
    """A is joined elsewhere after `wide` has left it, and hears of `wide` from D, whom C tells it for c1 and c2."""
    net = overlay(chain("ABCD"), ["D"], CALM)
    network = net.network
    subscribed(net, "A", wide="x < 50")
    subscribed(net, "C", c1="x < 40 AND y < 50", c2="x < 40 AND y >= 50")
    left(net, "wide")
    assert told(net, "C", "D") == {"wide": "x < 50"}
    wire = network.wire("A", "B")
    assert wire is not None
    network.cut(wire, forget=True)
    network.run()
    network.join("D", "A")
    client = network.add_client("publisher")
    network.join("A", client.name)
    network.run()
    network.tell(client.name, client.advertise("A", "all", "TRUE"))
    network.run()
    network.tell(client.name, client.publish("A", {"x": 10, "y": 10}))
    network.run()
    assert isinstance(network.observer, Heard)
    assert [(who, ids) for _, who, ids, _, _ in network.observer.got] == [("at C", ("c1",))]
    left(net, "c1", "c2")
    assert network.nodes["A"].broker.received_from(SUBSCRIPTIONS, "D") == {}


@pytest.mark.parametrize("policy", ["sent", "graph"])
def test_while_idle_preserved_ones_are_replaced_little_by_little(policy: str) -> None:
    chosen = Policy("pairwise", True, "simplified" if policy == "graph" else None, packed=True, theta=0.9)
    net = overlay(chain("ABP"), ["P"], chosen, idle_seconds=10.0, replacements_per_second_max=1.0)
    subscribed(net, "A", wide="x < 50")
    subscribed(net, "B", **{f"b{at}": f"x < 45 AND y BETWEEN {10 * at} AND {10 * at + 9}" for at in range(10)})
    left(net, "wide")  # without history: A keeps it? nobody is held back there, so that B keeps it
    assert told(net, "B", "P").keys() == {"wide"}
    sizes = []
    for second in range(1, 31):
        net.network.at(net.network.now + 1.0, net.network.tick)
        net.network.run()
        sizes.append(len(told(net, "B", "P")))
        net.network.nodes["B"].broker.check_invariants()
        if second < 9:
            assert sizes[-1] == 1, "not idle for long enough"
    assert sizes[-1] == 10 and "wide" not in told(net, "B", "P")
    if policy == "sent":  # one a second
        assert all(after - before <= 1 for before, after in pairwise(sizes))


def kept_at_b(**settings: Any) -> Overlay:
    """A - B - P: `wide` has left A, and B tells it on for ten of its own."""
    net = overlay(chain("ABP"), ["P"], CALM, **settings)
    net.network.run(1e9)
    subscribed(net, "A", wide="x < 50")
    subscribed(net, "B", **{f"b{at}": f"x < 45 AND y BETWEEN {10 * at} AND {10 * at + 9}" for at in range(10)})
    left(net, "wide")
    assert told(net, "B", "P").keys() == {"wide"}
    return net


def ticked(net: Overlay, seconds: int) -> int:
    """How many B tells P then."""
    for _ in range(seconds):
        net.network.at(net.network.now + 1.0, net.network.tick)
        net.network.run()
    return len(told(net, "B", "P"))


def test_after_a_restart_preserved_ones_are_not_replaced_all_at_once() -> None:
    net = kept_at_b(idle_seconds=10.0, replacements_per_second_max=1.0)
    net.network.crash("B", keep_store=True)
    net.network.restart("B")
    net.network.run()
    assert ticked(net, 10) == 1 and ticked(net, 2) in (2, 3, 4) and ticked(net, 15) == 10


def test_preserved_ones_are_replaced_also_when_theta_is_no_longer_set() -> None:
    net = kept_at_b(idle_seconds=1.0, replacements_per_second_max=20.0)
    net.retune(net.settings.tuned(theta=None))
    assert ticked(net, 3) == 10


def test_preserved_ones_may_be_left_for_ever_or_replaced_at_once() -> None:
    forever = float("inf")
    assert (
        ticked(kept_at_b(idle_seconds=forever), 5)
        == ticked(kept_at_b(idle_seconds=forever, replacements_per_second_max=0.0), 5)
        == 1
    )
    assert ticked(kept_at_b(idle_seconds=0.0, replacements_per_second_max=forever), 2) == 10


def leaves_for_good(policy: Policy, hidden: int, **settings: Any) -> Overlay:
    """A - B - P: `wide` is to leave A with a history of events that nobody else wants, so that it is taken back all the
    way; at A and at B it hides some, by twos."""
    net = overlay(chain("ABP"), ["P"], policy, **settings)
    subscribed(net, "A", wide="x < 50")
    for at in range(hidden):
        subscribed(net, "AB"[at % 2], **{f"s{at}": f"x BETWEEN 10 AND 49 AND y = {at}"})
    published(net, *[(5, 5)] * 20)
    return net


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("cover", ["pairwise", "exact"])
def test_what_leaves_for_good_is_taken_back_hop_by_hop_while_what_it_hid_is_told_little_by_little(
    cover: str, packed: bool
) -> None:
    net = leaves_for_good(
        Policy(cover, theta=0.9, packed=packed), 12, idle_seconds=1e9, replacements_per_second_max=2.0
    )
    left(net, "wide")
    assert told(net, "A", "B").keys() == told(net, "B", "P").keys() == {"wide"}
    told_by_a, told_by_b = [], []
    for _ in range(20):
        net.network.at(net.network.now + 0.5, net.network.tick)
        net.network.run()
        for node in net.network.nodes.values():
            node.broker.check_invariants()
        told_by_a.append(told(net, "A", "B").keys())
        told_by_b.append(told(net, "B", "P").keys())
        assert "wide" in told_by_b[-1] or "wide" not in told_by_a[-1], "the way is cut from its end"
        heard = len(net.network.observer.got)  # type: ignore[attr-defined]
        published(net, (20, 3), (20, 4), (5, 5))
        assert [ids for _, _, ids, _, _ in net.network.observer.got[heard:]] == [("s3",), ("s4",)]  # type: ignore[attr-defined]
    assert told_by_a[4] == {"wide", *(f"s{at}" for at in range(0, 10, 2))}, "one each half second"
    assert told_by_a[5] == {f"s{at}" for at in range(0, 12, 2)}
    assert all(len(after) - len(before) <= 2 for before, after in pairwise(told_by_b)), "a second's worth at most"
    assert told_by_b[-1] == {f"s{at}" for at in range(12)}


def test_no_faster_than_the_neighbour_settles_it() -> None:
    net = leaves_for_good(Policy("exact", theta=0.9), 40, idle_seconds=1e9, replacements_per_second_max=1.0)
    net.network.nodes["B"].cost = lambda message, took, broker: 10.0 if isinstance(message, Subscribe) else 0.0
    left(net, "wide")
    sizes = []
    for second in range(60):
        net.network.at(net.network.now + 1.0, net.network.tick)
        net.network.run(net.network.now + 1.0)
        sizes.append(len(told(net, "A", "B")))
        if second == 20:  # others come and go meanwhile
            subscribed(net, "A", other="x > 90")
    assert 6 <= sizes[-1] <= 12, "of 60 seconds, ten for each at B"
    ticked(net, 300)
    assert len(told(net, "A", "B")) == 21 and len(told(net, "B", "P")) == 41


def test_it_ends_where_many_come_that_it_covers() -> None:
    """Two links are served in turn, and newcomers do not take the places of those that wait."""
    links = [("B", "A"), ("A", "C"), ("B", "P"), ("C", "Q")]
    net = overlay(links, ["P", "Q"], Policy("exact", theta=0.9), idle_seconds=1e9, replacements_per_second_max=2.0)
    subscribed(net, "A", wide="x < 50")
    subscribed(net, "A", **{f"s{at}": f"x BETWEEN 10 AND 49 AND y = {at}" for at in range(20)})
    published(net, *[(5, 5)] * 20)
    left(net, "wide")
    for second in range(30):
        for at in range(3):
            subscribed(net, "A", **{f"n{second} {at}": f"x BETWEEN 10 AND 49 AND y = {40 + at} AND x <> {second + 12}"})
        ticked(net, 1)
    for to in "BC":
        names = told(net, "A", to).keys()
        assert names >= {f"s{at}" for at in range(20)} and "wide" not in names


def test_all_is_told_at_once_when_nothing_is_to_be_replaced_any_more() -> None:
    net = leaves_for_good(Policy("exact", theta=0.9), 12, idle_seconds=1e9, replacements_per_second_max=1.0)
    left(net, "wide")
    ticked(net, 2)
    net.retune(Settings(policy=net.settings.policy, idle_seconds=1e9, replacements_per_second_max=0.0))
    net.network.run()
    assert told(net, "B", "P").keys() == {f"s{at}" for at in range(12)}


def test_few_are_told_at_once_and_with_replaced_0_all_are() -> None:
    for hidden, replaced in ((4, 2.0), (12, 0.0), (12, 6.0), (12, float("inf"))):
        net = leaves_for_good(
            Policy("exact", theta=0.9), hidden, idle_seconds=1e9, replacements_per_second_max=replaced
        )
        left(net, "wide")
        assert told(net, "A", "B").keys() == {f"s{at}" for at in range(0, hidden, 2)}, (hidden, replaced)


def test_one_that_comes_back_while_it_is_taken_back_stays() -> None:
    net = leaves_for_good(Policy("exact", True, theta=0.9), 12, idle_seconds=1e9, replacements_per_second_max=1.0)
    left(net, "wide")
    assert ticked(net, 3) == 1 and len(told(net, "A", "B")) == 4
    subscribed(net, "A", wide="x < 50")
    assert ticked(net, 30) == 1 and "wide" in told(net, "A", "B") and told(net, "B", "P").keys() == {"wide"}
    published(net, *[(5, 5)] * 20)
    left(net, "wide")
    subscribed(net, "A", wide="x < 40")  # under its own id; what it was goes on under another one
    assert ticked(net, 60) == 13 and len(told(net, "A", "B")) == 7
    assert all(not node.broker.outbound(SUBSCRIPTIONS, to).preserved for node, to in
               ((net.network.nodes["A"], "B"), (net.network.nodes["B"], "P")))  # fmt: skip


def test_after_a_restart_it_goes_on() -> None:
    net = leaves_for_good(Policy("exact", theta=0.9), 12, idle_seconds=1e9, replacements_per_second_max=1.0)
    left(net, "wide")
    assert ticked(net, 3) == 1 and len(told(net, "A", "B")) == 4
    net.network.crash("A", keep_store=True)
    net.network.restart("A")
    net.network.run()
    assert told(net, "A", "B").keys() == {"wide"}
    assert ticked(net, 2) == 1 and len(told(net, "A", "B")) in (3, 4)
    assert ticked(net, 30) == 12 and len(told(net, "A", "B")) == 6


def test_a_plan_counts_what_will_be_told_little_by_little() -> None:
    net = leaves_for_good(Policy("exact", theta=0.9), 12, idle_seconds=1e9, replacements_per_second_max=1.0)
    plan = dryrun.plan_unsubscription(net, "wide")
    assert {each.link: (each.forwarded, each.preserved) for each in plan.links} == {"A > B": (6, 0), "B > P": (12, 0)}
    own = plan_unsubscription(net.network.nodes["A"].broker, "at A", "wide", net.network.now)
    assert [(each.link, each.forwarded) for each in own.links] == [("B", 6)]


def test_a_preserved_one_that_another_takes_back_while_it_is_replaced_ends() -> None:
    """`high` is told in place of the first one, and covers the second one together with `low`, which came unchecked."""
    table = OutboundTable(SPACE, Policy("exact", "union", theta=0.5))
    wheres = {"first": "x BETWEEN 8 AND 50", "second": "x <= 10", "high": "x BETWEEN 9 AND 40", "least": "x < 5"}
    for id, where in wheres.items():
        table.offer(id, where, SPACE.where(where))
    assert table.preserve("first", {}, 0) and table.preserve("second", {}, 0)
    assert isinstance(table.active_set, ActiveSet)
    table.wheres["low"] = "x < 9"
    table.active_set.subscribe("low", SPACE.where("x < 9"), check=False)  # as with `covered_share_min`
    assert table.replace_preserved(5, is_idle=True) == 1 and table.preserved == {}
    assert table.active_set.active == ["high", "low"] and table.active_set.passive.keys() == {"least"}
    table.check_invariants()


def test_of_two_preserved_ones_that_hold_back_only_one_another_none_is_left() -> None:
    """After a restart the wider one covers the other, and what they stood for has gone."""
    table = OutboundTable(SPACE, Policy("pairwise", theta=0.5))
    for id, where in (("wide", "x < 50"), ("narrow", "x < 30")):
        table.preserve_again(id, where, SPACE.where(where), {})
    table.end_preserved()
    assert table.preserved == {} and table.forwarded() == {}


def test_why_a_neighbour_is_told_of_what_has_left() -> None:
    net = kept_at_b()
    broker = net.network.nodes["B"].broker
    assert "'A/at A/wide' has left, and is preserved at 'P' for the subscriptions that it covers: 'B/at B/b0', " in (
        why_sent(broker, "A/at A/wide", "P")
    )


def test_a_link_may_get_a_theta_of_its_own_while_a_broker_runs() -> None:
    broker = kept_at_b().network.nodes["B"].broker
    own = Settings(policy=CALM, links={"P": Policy("pairwise", True, theta=0.5)})
    assert broker.handle(Retune(own), OPERATOR, 0.0) == [] and broker.links["P"].policy.theta == 0.5
    other = Settings(policy=CALM, links={"P": Policy("exact", theta=0.5)})
    with pytest.raises(CallerError, match="not what it forwards"):
        broker.handle(Retune(other), OPERATOR, 0.0)


def test_incremental_needs_advertisements() -> None:
    for routing in ("subscriptions", "events"):
        with pytest.raises(CallerError, match=r"needs routing by advertisements.*the way to a publisher is known"):
            Settings(routing, Policy(theta=0.9))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Policy(theta=1.0), "theta is a share of events from 0 to below 1"),
        (lambda: Policy(None, theta=0.5), "nothing to preserve"),
        (lambda: Policy(merge=-0.1), "merge is the share that a merger may add"),
        (lambda: Settings(history_seconds=0.0), "history_seconds .0. is above 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, reason: str) -> None:
    with pytest.raises(CallerError, match=reason):
        make()


def test_a_client_may_not_bring_what_only_brokers_bring() -> None:
    net = overlay(chain("AB"), ["B"], CALM)
    subscribed(net, "A", s="x < 5")
    broker = net.network.nodes["A"].broker
    for message in (
        Unsubscribe(broker.links["at A"].last_seq_received + 1, "s", replacements={"t": "x < 2"}),
        Subscribe(broker.links["at A"].last_seq_received + 2, "t", "x < 9", retracts=("s",)),
    ):
        effect = broker.handle(message, "at A", 0.0)[0]
        assert isinstance(effect, Reject) and "a client" in effect.refused.reason
    assert broker.received_from(SUBSCRIPTIONS, "at A") == {"A/at A/s": "x < 5"}


def test_property_3_similarity_grows_toward_the_publisher() -> None:
    """phi at each broker of the way, by the statistics and by brute force over all events."""
    links, publishers, subscribers = congestion()
    net = Overlay(space_of(2), links, subscribers, publishers, Settings(policy=CALM), 3)
    rng = random.Random(3)
    made = covered(120, 29, rng, attributes=2)
    for each in made:
        net.subscribe(each.id, each.where)
    net.network.run()
    seen = list(events(400, rng, 2))
    for event in seen:
        net.publish(event)
    net.network.run()
    regions = {each.id: net.space.where(each.where) for each in made}
    ways = {id: {net.where[id], *(to for _, to in path(links, net.where[id], "E") or ())} for id in regions}
    for root in [each.id for each in made if each.is_root]:
        home = net.where[root]
        broker, own = net.network.nodes[home].broker, f"{home}/at {home}/{root}"
        # of all events, at each hop of the way to E: the share that somebody wants whose own way has joined by then
        way = [home, *(to for _, to in path(links, home, "E") or ())]
        wanted = [event for event in seen if regions[root].contains(event)]
        phis: list[float] = []
        for hops in range(len(way)):
            joined = [id for id in regions if id != root and ways[id] & set(way[: hops + 1])]
            real = sum(any(regions[id].contains(event) for id in joined) for event in wanted) / len(wanted)
            (seen_here,) = broker.similarity(own, hops, net.network.now).values()  # one advertisement covers the others
            assert seen_here == pytest.approx(real, abs=1e-9)
            phis.append(real)
        assert phis == sorted(phis)


# --- Merging ---------------------------------------------------------------------------------------------------------


def test_merging_tells_two_as_one_and_gives_back_the_rest() -> None:
    net = overlay(chain("ABC"), ["C"], Policy(merge=0.0))
    subscribed(net, "A", one="x < 10", two="x BETWEEN 10 AND 20", apart="y = 5")
    assert sorted(told(net, "A", "B").values()) == ["x <= 20", "y = 5"]
    assert all(id.startswith("B/~C/") for id in net.network.nodes["C"].broker.received_from(SUBSCRIPTIONS, "B"))
    left(net, "one")
    left_over = SPACE.where(" OR ".join(f"({where})" for where in told(net, "B", "C").values()))
    assert left_over == SPACE.where("x BETWEEN 10 AND 20 OR y = 5")
    left(net, "two", "apart")
    assert told(net, "A", "B") == told(net, "B", "C") == {}


def test_imperfect_merging_tells_more_and_the_last_hop_takes_it_out() -> None:
    net = overlay(chain("ABC"), ["C"], Policy(merge=0.5))
    subscribed(net, "A", one="x < 20 AND y < 50", two="x BETWEEN 10 AND 30 AND y < 60")
    (where,) = told(net, "B", "C").values()
    assert SPACE.where("x = 5 AND y = 55").is_within(SPACE.where(where))
    published(net, (5, 55), (25, 1))
    heard = net.network.observer
    assert isinstance(heard, Heard)
    assert [(client, ids) for _, client, ids, _, _ in heard.got] == [("at A", ("two",))]


def test_why_told_names_the_merger() -> None:
    net = overlay(chain("AB"), ["B"], Policy(merge=0.0))
    subscribed(net, "A", one="x < 10", two="x BETWEEN 10 AND 20")
    said = why_sent(net.network.nodes["A"].broker, "A/at A/one", "B")
    assert said == "'A/at A/one' was sent to 'B', merged with others as 'A/~B/0'"


@pytest.mark.parametrize(
    "policy", [CALM, Policy("exact", merge=0.2, packed=True, theta=0.5), Policy(merge=0.0)], ids=str
)
def test_policies_deliver_the_same_after_the_widest_have_left(policy: Policy) -> None:
    """Beside brute force, on the paper's overlay."""
    links, publishers, subscribers = congestion()
    heard = Heard()
    net = Overlay(space_of(2), links, subscribers, publishers, Settings(policy=policy), 1, observer=heard)
    rng = random.Random(1)
    made = covered(150, 29, rng, attributes=2)
    for each in made:
        net.subscribe(each.id, each.where)
    net.network.run()
    for event in events(150, rng, 2):
        net.publish(event)
    net.network.run()
    left(net, *(each.id for each in made if each.is_root))
    regions = {each.id: net.space.where(each.where) for each in made if not each.is_root}
    for event in events(100, rng, 2):
        heard.got.clear()
        net.publish(event)
        net.network.run()
        got = sorted(id for _, _, ids, _, _ in heard.got for id in ids)
        assert got == sorted(id for id, region in regions.items() if region.contains(event))


# --- Plans -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "policy", [Policy("exact", True), CALM, Policy("pairwise", packed=True), Policy(merge=0.0)], ids=str
)
def test_a_plan_is_what_then_happens(policy: Policy) -> None:
    leaves = ["B5", "B6", "B7", "B8", "B9", "B11"]
    net = Overlay(space_of(2), eleven(), leaves, ["B6", "B11"], Settings(policy=policy), 2)
    rng = random.Random(2)
    made = covered(80, 19, rng, attributes=2)
    for each in made:
        net.subscribe(each.id, each.where)
    net.network.run()
    for event in events(60, rng, 2):
        net.publish(event)
    net.network.run()
    for each in [each for each in made if each.is_root][:2] + made[:2]:
        if each.id not in net.where:
            continue
        home = net.where[each.id]
        trace = net.network.trace
        plan = dryrun.plan_unsubscription(net, each.id)
        local = plan_unsubscription(net.network.nodes[home].broker, f"at {home}", each.id, net.network.now)
        assert net.network.trace == trace, "nothing was done"
        before = totals(net)
        mine = {link.link: link for link in plan.links if link.link.startswith(f"{home} > ")}
        assert {f"{home} > {link.link}": link.messages for link in local.links} == {
            name: link.messages for name, link in mine.items()
        }
        left(net, each.id)
        after = totals(net)
        assert {link.link: (link.forwarded, link.withdrawn, link.messages) for link in plan.links if link.messages} == {
            name: tuple(b - a for a, b in zip(before[name], after[name], strict=True))
            for name in after
            if after[name] != before[name]
        }


def totals(net: Overlay) -> dict[str, tuple[int, int, int]]:
    return {
        f"{name} > {link.name}": (link.counts.entries_sent, link.counts.entries_withdrawn, link.counts.update_messages)
        for name, node in net.network.nodes.items()
        for link in node.broker.links.values()
    }


def test_a_plan_compares_policies_and_says_it_in_words() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)), (45, 1))
    loud = dryrun.plan_unsubscription(net, "wide", net.settings.tuned(packed=False, theta=None))
    calm = dryrun.plan_unsubscription(net, "wide")
    assert str(loud) == ("removing 'wide', pairwise retracting: 15 messages, 10 subscriptions forwarded on 5 links")
    assert str(calm) == (
        "removing 'wide', pairwise retracting, packed, incremental at 0.9: 2 messages, "
        "4 subscriptions forwarded on 2 links, preserved on 1 link with up to 5% false positives"
    )


def test_a_plan_of_a_subscription_and_of_another_policy() -> None:
    net = wide_on_a_chain()
    broker = net.network.nodes["B"].broker
    assert plan_subscription(broker, "at B", "b3", "x < 30", 0.0).links == ()
    assert plan_subscription(broker, "at B", "b3", "TRUE", 0.0).forwarded == 1
    assert str(plan_policy(broker, Policy(None), ["C"])) == (
        "another policy for 1 neighbour, none: 2 messages, 2 subscriptions forwarded on 1 link"
    )
    with pytest.raises(CallerError, match="no attribute 'z'"):
        plan_subscription(broker, "at B", "b3", "z < 30", 0.0)
    with pytest.raises(CallerError, match="no subscription 'x'"):
        plan_unsubscription(broker, "at B", "x", 0.0)
    with pytest.raises(CallerError, match="no link 'nowhere'"):
        plan_unsubscription(broker, "nowhere", "x", 0.0)
    with pytest.raises(CallerError, match="there is no subscription 'x' in this overlay"):
        dryrun.plan_unsubscription(net, "x")


def test_tuning_a_running_broker_changes_how_things_leave_and_nothing_else() -> None:
    broker = Broker("B1", SPACE, Settings(policy=Policy()))
    broker.handle(Retune(broker.settings.tuned(packed=True, theta=0.5)), OPERATOR, 0.0)
    assert str(broker.settings.policy) == "exact lazy, packed, incremental at 0.5"
    with pytest.raises(CallerError, match="not what it forwards: restart it"):
        broker.handle(Retune(Settings(policy=Policy("pairwise"))), OPERATOR, 0.0)


PLAN = ["plan", "--space", "price int not null 0..1000", "price < 500", "price < 20", "price BETWEEN 30 AND 60"]


def test_thatch_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--unsubscribe", "clause 1"]) == 0
    assert capsys.readouterr().out == (
        "removing 'clause 1', exact lazy: 3 messages, 2 subscriptions forwarded on 1 link\n"
        "removing 'clause 1', exact lazy, packed: 1 message, 2 subscriptions forwarded on 1 link\n"
    )
    assert main([*PLAN, "--to-cover", "none", "--json"]) == 0
    assert '"messages": 2' in capsys.readouterr().out


def test_thatch_plan_of_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--subscriptions", "30", "--degree", "9", "--events", "20"]
    assert main(["plan", "--scenario", "unsubscriptions", *sizes, "--cover", "pairwise", "--retract"]) == 0
    loud, packed, calm = capsys.readouterr().out.splitlines()
    assert loud.startswith("removing 'r0', pairwise retracting: ") and "packed: " in packed and "incremental" in calm
    assert main(["plan", "--scenario", "unsubscriptions", *sizes, "--cover", "pairwise", "--theta", "0"]) == 0
    assert "packed, incremental at 0: " in capsys.readouterr().out.splitlines()[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan"], "a plan is of clauses, with --space, or of a --scenario"),
        (PLAN, "what is to be planned?"),
        ([*PLAN, "--unsubscribe", "clause 9"], "no clause 'clause 9'; ids are FILE:LINE"),
        ([*PLAN, "--subscribe", "cost < 5"], "no attribute 'cost'"),
        ([*PLAN, "--theta", "0.5", "--subscribe", "price < 5"], "needs routing by advertisements"),
        (["plan", "--scenario", "nothing"], "no scenario 'nothing'"),
    ],
)
def test_thatch_plan_refuses_bad_input(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


# --- Events first ----------------------------------------------------------------------------------------------------


def test_events_do_not_overtake_the_space_that_they_are_read_in() -> None:
    """A slow broker joins an overlay whose space has grown, while events carry what is new."""
    settings, event = Settings("events"), {"kind": "c"}
    network = Network(Space.parse("kind enum('a','b')"), events_first=True)
    for name in "AB":
        network.add_broker(name, settings)
    network.join("A", "B")
    client = network.add_client("publisher")
    network.join("A", client.name)
    network.run()
    network.operate("A", Extend(0, Space.parse("kind enum('a','b','c')").to_json()))
    network.run()
    slow = network.add_broker("C", settings, lambda message, took, broker: 0.005)
    network.join("B", "C")
    for at in range(60):
        network.at(network.now + at / 1000, lambda: network.tell("publisher", client.publish("A", event)))
    network.run()
    assert network.hang_ups == [] and slow.links["B"].counts.events_in > 30


# --- Scenarios -------------------------------------------------------------------------------------------------------

SMALL = [
    "--subscriptions",
    "60",
    "--degree",
    "9",
    "--events",
    "40",
    "--unsubscriptions",
    "2",
    "--interval",
    "60",
    "--json",
]


@pytest.mark.parametrize("scenario", ["unsubscriptions", "complex", "clustered", "mobile", "mobile-all"])
def test_scenarios_run(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", scenario, *SMALL, "--cover", "pairwise", "--retract", "--packed", "--theta", "0.9"]) == 0
    assert '"published": 40' in capsys.readouterr().out


def test_workflows_are_made_of_processes_whose_activities_wait_for_one_another() -> None:
    engines = [f"E{at}" for at in range(24)]
    processes = draw_processes(engines, random.Random(1))
    assert [len([each for each in processes if len(each.engines) == size]) for size in (3, 10, 26)] == [80, 80, 40]
    assert all(len(set(each.engines)) == 1 for each in processes[:80])
    space = workflow_space()
    for process in processes[::20]:
        for _, engine, where in process.subscriptions():
            assert engine in process.engines and not space.where(where).is_empty
