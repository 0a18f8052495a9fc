"""Merging as a policy: two subscriptions are forwarded as one."""

from __future__ import annotations

import random

import pytest

from helpers.overlays import CALM, SPACE, Deliveries, forwarded, left, overlay, published, subscribed
from thatch.broker import Policy, Settings
from thatch.broker.inspect import why_sent
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.sim.overlay import Overlay
from thatch.sim.topology import chain, congestion
from thatch.sim.workload import covered, events, space_of


def test_merging_forwards_two_as_one_and_gives_back_the_rest() -> None:
    net = overlay(chain("ABC"), ["C"], Policy(merge=0.0))
    subscribed(net, "A", one="x < 10", two="x BETWEEN 10 AND 20", apart="y = 5")
    assert sorted(forwarded(net, "A", "B").values()) == ["x <= 20", "y = 5"]
    assert all(id.startswith("B/~C/") for id in net.network.nodes["C"].broker.received_from(SUBSCRIPTIONS, "B"))
    left(net, "one")
    left_over = SPACE.where(" OR ".join(f"({where})" for where in forwarded(net, "B", "C").values()))
    assert left_over == SPACE.where("x BETWEEN 10 AND 20 OR y = 5")
    left(net, "two", "apart")
    assert forwarded(net, "A", "B") == forwarded(net, "B", "C") == {}


def test_imperfect_merging_forwards_more_and_the_last_hop_takes_it_out() -> None:
    net = overlay(chain("ABC"), ["C"], Policy(merge=0.5))
    subscribed(net, "A", one="x < 20 AND y < 50", two="x BETWEEN 10 AND 30 AND y < 60")
    (where,) = forwarded(net, "B", "C").values()
    assert SPACE.where("x = 5 AND y = 55").is_within(SPACE.where(where))
    published(net, (5, 55), (25, 1))
    seen = net.network.observer
    assert isinstance(seen, Deliveries)
    assert [(client, ids) for _, client, ids, _, _ in seen.got] == [("at A", ("two",))]


def test_why_forwarded_names_the_merger() -> None:
    net = overlay(chain("AB"), ["B"], Policy(merge=0.0))
    subscribed(net, "A", one="x < 10", two="x BETWEEN 10 AND 20")
    said = why_sent(net.network.nodes["A"].broker, "A/at A/one", "B")
    assert said == "'A/at A/one' was sent to 'B', merged with others as 'A/~B/0'"


@pytest.mark.long
@pytest.mark.soak(str(Policy(merge=0.0)))
@pytest.mark.parametrize(
    "policy", [CALM, Policy("exact", merge=0.2, packed=True, theta=0.5), Policy(merge=0.0)], ids=str
)
def test_policies_deliver_the_same_after_the_widest_have_left(policy: Policy) -> None:
    """Compared with brute force, on the paper's overlay."""
    links, publishers, subscribers = congestion()
    seen = Deliveries()
    net = Overlay(space_of(2), links, subscribers, publishers, Settings(policy=policy), 1, observer=seen)
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
        seen.got.clear()
        net.publish(event)
        net.network.run()
        got = sorted(id for _, _, ids, _, _ in seen.got for id in ids)
        assert got == sorted(id for id, region in regions.items() if region.contains(event))
