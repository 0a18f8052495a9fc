"""Incremental pruning: what leaves is preserved beyond the critical broker, and replaced little by little.

One example for each rule; random overlays with all of it are in sim/test_sim_seeds.py.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from helpers.overlays import (
    CALM,
    SPACE,
    Deliveries,
    forwarded,
    left,
    overlay,
    published,
    sent_to,
    subscribed,
    wide_on_a_chain,
)
from helpers.peers import neighbour
from thatch.broker import Policy, Settings, plan_unsubscription, similarity
from thatch.broker.inspect import why_sent
from thatch.broker.outbound import OutboundTable
from thatch.errors import CallerError
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import OPERATOR, Reject, Retune, Subscribe, Unsubscribe
from thatch.protocol.records import PreservedRecord
from thatch.sim import dryrun
from thatch.sim.overlay import Overlay
from thatch.sim.topology import chain, congestion, path
from thatch.sim.workload import covered, events, space_of


def test_incremental_keeps_what_leaves_beyond_the_critical_broker() -> None:
    """All events of `wide` are wanted at B, too, one hop away, so h = 2: it is taken back over two hops, and C tells
    it on for those that it holds back."""
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    at_d = sent_to(net, "D", "C")
    left(net, "wide")
    assert forwarded(net, "A", "B").keys() == {"a1", "a2"}
    assert forwarded(net, "B", "C").keys() == {"b1", "b2"}, "b1 and b2 hold a1 and a2"
    assert forwarded(net, "C", "D") == {"wide": "x < 50"} and at_d == []
    broker = net.network.nodes["C"].broker
    preserved = broker.links["D"].outbound.subscriptions
    assert list(preserved.preserved) == ["A/at A/wide"]
    assert preserved.active_set.dependents("A/at A/wide") == ["B/at B/b1", "B/at B/b2"]
    assert net.network.nodes["D"].broker.received_from(SUBSCRIPTIONS, "C") == {"A/at A/wide": "x < 50"}


def test_events_that_only_the_preserved_one_wants_end_at_the_critical_broker() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    seen = net.network.observer
    assert isinstance(seen, Deliveries)
    seen.got.clear()
    published(net, (45, 1), (5, 1))
    assert [(client, ids) for _, client, ids, _, _ in seen.got] == [("at B", ("b1",)), ("at A", ("a1",))]
    assert net.network.nodes["C"].broker.links["D"].counts.false_positives == 1


def test_without_history_nothing_is_taken_back_and_with_unlike_events_everything_is() -> None:
    net = wide_on_a_chain()
    left(net, "wide")
    assert forwarded(net, "A", "B").keys() == {"wide"}, "there is no false positive"
    net = wide_on_a_chain()
    published(net, *((45, at) for at in range(0, 100, 5)))
    left(net, "wide")
    assert forwarded(net, "E", "P").keys() == {"b1", "b2"}


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
    assert forwarded(net, "A", "B") == {}
    assert forwarded(net, "B", "C").keys() == {"c1", "c2"} and forwarded(net, "B", "D").keys() == {"wide"}


def test_a_subscription_that_holds_back_nobody_is_not_preserved() -> None:
    net = overlay(chain("ABC"), ["C"], CALM)
    subscribed(net, "A", alone="x < 50")
    left(net, "alone")
    assert forwarded(net, "A", "B") == forwarded(net, "B", "C") == {}


def test_a_preserved_one_is_withdrawn_when_nobody_is_left_that_it_stands_for() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    left(net, "b1")
    assert forwarded(net, "D", "E").keys() == {"wide"}
    left(net, "b2", "a1", "a2")
    assert all(forwarded(net, *link) == {} for link in chain("ABCDEP"))


def test_a_preserved_one_goes_on_covering_later_ones() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    received = sent_to(net, "D", "C")
    subscribed(net, "C", later="x BETWEEN 30 AND 45")
    assert received == []
    left(net, "b1", "b2", "a1", "a2")
    assert forwarded(net, "C", "D").keys() == {"wide"}, "it stands for the later one now"
    left(net, "later")
    assert forwarded(net, "C", "D") == {}


def test_a_wider_one_takes_a_preserved_one_back() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    subscribed(net, "B", all="TRUE")
    assert forwarded(net, "C", "D").keys() == {"all"}
    assert net.network.nodes["C"].broker.links["D"].outbound.subscriptions.preserved == {}


def test_a_preserved_one_that_comes_back_is_itself_again() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    received = sent_to(net, "D", "C")
    subscribed(net, "A", wide="x < 50")
    assert received == [] and net.network.nodes["C"].broker.links["D"].outbound.subscriptions.preserved == {}
    assert forwarded(net, "A", "B").keys() == {"wide"}


def test_a_preserved_one_whose_id_comes_back_otherwise_goes_on_as_another_incarnation() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    subscribed(net, "A", wide="x BETWEEN 45 AND 60")
    found = net.network.nodes["C"].broker.outbound(SUBSCRIPTIONS, "D").forwarded()
    assert found == {"~/1~A/at A/wide": "x < 50", "A/at A/wide": "x BETWEEN 45 AND 60"}
    left(net, "wide", "b1", "b2", "a1", "a2")
    assert all(forwarded(net, *link) == {} for link in chain("ABCDEP"))


def test_what_is_preserved_survives_a_restart() -> None:
    net = wide_on_a_chain()
    published(net, *((20, at) for at in range(0, 100, 5)))
    left(net, "wide")
    network = net.network
    store = list(network.nodes["C"].store)
    assert PreservedRecord(neighbour("D"), "A/at A/wide", "x < 50") in store
    received = sent_to(net, "D", "C")
    network.crash("C", keep_store=True)
    network.restart("C")
    network.run()
    assert forwarded(net, "C", "D") == {"wide": "x < 50"} and received == []
    left(net, "b1", "b2", "a1", "a2")
    assert all(forwarded(net, *link) == {} for link in chain("ABCDEP"))


def test_a_preserved_one_that_comes_to_where_it_began_stands_for_others_there_too() -> None:
    """A is joined elsewhere after `wide` has left it, and hears of `wide` from D, whom C tells it for c1 and c2."""
    net = overlay(chain("ABCD"), ["D"], CALM)
    network = net.network
    subscribed(net, "A", wide="x < 50")
    subscribed(net, "C", c1="x < 40 AND y < 50", c2="x < 40 AND y >= 50")
    left(net, "wide")
    assert forwarded(net, "C", "D") == {"wide": "x < 50"}
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
    assert isinstance(network.observer, Deliveries)
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
    assert forwarded(net, "B", "P").keys() == {"wide"}
    sizes = []
    for second in range(1, 31):
        net.network.at(net.network.now + 1.0, net.network.tick)
        net.network.run()
        sizes.append(len(forwarded(net, "B", "P")))
        net.network.nodes["B"].broker.check_invariants()
        if second < 9:
            assert sizes[-1] == 1, "not idle for long enough"
    assert sizes[-1] == 10 and "wide" not in forwarded(net, "B", "P")
    if policy == "sent":  # one a second
        assert all(after - before <= 1 for before, after in pairwise(sizes))


def kept_at_b(**settings: Any) -> Overlay:
    """A - B - P: `wide` has left A, and B tells it on for ten of its own."""
    net = overlay(chain("ABP"), ["P"], CALM, **settings)
    net.network.run(1e9)
    subscribed(net, "A", wide="x < 50")
    subscribed(net, "B", **{f"b{at}": f"x < 45 AND y BETWEEN {10 * at} AND {10 * at + 9}" for at in range(10)})
    left(net, "wide")
    assert forwarded(net, "B", "P").keys() == {"wide"}
    return net


def ticked(net: Overlay, seconds: int) -> int:
    """How many B tells P then."""
    for _ in range(seconds):
        net.network.at(net.network.now + 1.0, net.network.tick)
        net.network.run()
    return len(forwarded(net, "B", "P"))


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
def test_what_leaves_for_good_is_taken_back_hop_by_hop_while_what_it_hid_is_sent_little_by_little(
    cover: str, packed: bool
) -> None:
    net = leaves_for_good(
        Policy(cover, theta=0.9, packed=packed), 12, idle_seconds=1e9, replacements_per_second_max=2.0
    )
    left(net, "wide")
    assert forwarded(net, "A", "B").keys() == forwarded(net, "B", "P").keys() == {"wide"}
    told_by_a, told_by_b = [], []
    for _ in range(20):
        net.network.at(net.network.now + 0.5, net.network.tick)
        net.network.run()
        for node in net.network.nodes.values():
            node.broker.check_invariants()
        told_by_a.append(forwarded(net, "A", "B").keys())
        told_by_b.append(forwarded(net, "B", "P").keys())
        assert "wide" in told_by_b[-1] or "wide" not in told_by_a[-1], "the way is cut from its end"
        before = len(net.network.observer.got)  # type: ignore[attr-defined]
        published(net, (20, 3), (20, 4), (5, 5))
        assert [ids for _, _, ids, _, _ in net.network.observer.got[before:]] == [("s3",), ("s4",)]  # type: ignore[attr-defined]
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
        sizes.append(len(forwarded(net, "A", "B")))
        if second == 20:  # others come and go meanwhile
            subscribed(net, "A", other="x > 90")
    assert 6 <= sizes[-1] <= 12, "of 60 seconds, ten for each at B"
    ticked(net, 300)
    assert len(forwarded(net, "A", "B")) == 21 and len(forwarded(net, "B", "P")) == 41


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
        names = forwarded(net, "A", to).keys()
        assert names >= {f"s{at}" for at in range(20)} and "wide" not in names


def test_all_is_sent_at_once_when_nothing_is_to_be_replaced_any_more() -> None:
    net = leaves_for_good(Policy("exact", theta=0.9), 12, idle_seconds=1e9, replacements_per_second_max=1.0)
    left(net, "wide")
    ticked(net, 2)
    net.retune(Settings(policy=net.settings.policy, idle_seconds=1e9, replacements_per_second_max=0.0))
    net.network.run()
    assert forwarded(net, "B", "P").keys() == {f"s{at}" for at in range(12)}


def test_few_are_sent_at_once_and_with_a_maximum_of_0_all_are() -> None:
    for hidden, replaced in ((4, 2.0), (12, 0.0), (12, 6.0), (12, float("inf"))):
        net = leaves_for_good(
            Policy("exact", theta=0.9), hidden, idle_seconds=1e9, replacements_per_second_max=replaced
        )
        left(net, "wide")
        assert forwarded(net, "A", "B").keys() == {f"s{at}" for at in range(0, hidden, 2)}, (hidden, replaced)


def test_one_that_comes_back_while_it_is_taken_back_stays() -> None:
    net = leaves_for_good(Policy("exact", True, theta=0.9), 12, idle_seconds=1e9, replacements_per_second_max=1.0)
    left(net, "wide")
    assert ticked(net, 3) == 1 and len(forwarded(net, "A", "B")) == 4
    subscribed(net, "A", wide="x < 50")
    assert ticked(net, 30) == 1 and "wide" in forwarded(net, "A", "B") and forwarded(net, "B", "P").keys() == {"wide"}
    published(net, *[(5, 5)] * 20)
    left(net, "wide")
    subscribed(net, "A", wide="x < 40")  # under its own id; what it was goes on under another one
    assert ticked(net, 60) == 13 and len(forwarded(net, "A", "B")) == 7
    assert all(not node.broker.outbound(SUBSCRIPTIONS, to).preserved for node, to in
               ((net.network.nodes["A"], "B"), (net.network.nodes["B"], "P")))  # fmt: skip


def test_after_a_restart_it_goes_on() -> None:
    net = leaves_for_good(Policy("exact", theta=0.9), 12, idle_seconds=1e9, replacements_per_second_max=1.0)
    left(net, "wide")
    assert ticked(net, 3) == 1 and len(forwarded(net, "A", "B")) == 4
    net.network.crash("A", keep_store=True)
    net.network.restart("A")
    net.network.run()
    assert forwarded(net, "A", "B").keys() == {"wide"}
    assert ticked(net, 2) == 1 and len(forwarded(net, "A", "B")) in (3, 4)
    assert ticked(net, 30) == 12 and len(forwarded(net, "A", "B")) == 6


def test_a_plan_counts_what_will_be_sent_little_by_little() -> None:
    net = leaves_for_good(Policy("exact", theta=0.9), 12, idle_seconds=1e9, replacements_per_second_max=1.0)
    plan = dryrun.plan_unsubscription(net, "wide")
    assert {each.link: (each.forwarded, each.preserved) for each in plan.links} == {"A > B": (6, 0), "B > P": (12, 0)}
    own = plan_unsubscription(net.network.nodes["A"].broker, "at A", "wide", net.network.now)
    assert [(each.link, each.forwarded) for each in own.links] == [("B", 6)]


def test_a_preserved_one_that_another_takes_back_while_it_is_replaced_ends() -> None:
    """`high` is sent in place of the first one, and covers the second one together with `low`, which came unchecked."""
    table = OutboundTable(SPACE, Policy("exact", "union", theta=0.5))
    wheres = {"first": "x BETWEEN 8 AND 50", "second": "x <= 10", "high": "x BETWEEN 9 AND 40", "least": "x < 5"}
    for id, where in wheres.items():
        table.offer(id, where, SPACE.where(where))
    assert table.preserve("first", {}, 0) and table.preserve("second", {}, 0)
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


def test_why_a_neighbour_holds_what_has_left() -> None:
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
            Settings(routing, Policy(theta=0.9))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Policy(theta=1.0), "theta is a share of events from 0 to below 1"),
        (lambda: Policy(None, theta=0.5), "theta needs covering: with covering off nothing is held back"),
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
            (seen_here,) = similarity(broker, own, hops, net.network.now).values()  # one advertisement covers all
            assert seen_here == pytest.approx(real, abs=1e-9)
            phis.append(real)
        assert phis == sorted(phis)
