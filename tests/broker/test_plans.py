"""Plans: what would be sent, found out before it is."""

from __future__ import annotations

import random

import pytest

from helpers.overlays import CALM, SPACE, left, published, wide_on_a_chain
from thatch.broker import Broker, Policy, Settings, plan_policy, plan_subscription, plan_unsubscription
from thatch.errors import CallerError
from thatch.protocol.messages import OPERATOR, Retune
from thatch.sim import dryrun
from thatch.sim.overlay import Overlay
from thatch.sim.topology import eleven
from thatch.sim.workload import covered, events, space_of


@pytest.mark.long
@pytest.mark.soak(str(Policy("exact", True)))
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
