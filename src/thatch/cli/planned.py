"""`thatch plan`: what would be sent if a subscription left, or came, or the policy changed. Nothing is done.

Of clauses in files: one broker, whose client has them all, and one neighbour that would get them. Of a scenario of the
simulator: its overlay as it is when all is loaded and its events have come, under its own policy and others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from thatch.broker import Broker, Plan, Policy, Settings, plan_policy, plan_subscription, plan_unsubscription
from thatch.errors import NAMES_LISTED, CallerError, shown, suggestion, unknown
from thatch.protocol.messages import Digest, Hello, LinkUp, Reject, Subscribe, seq_of
from thatch.sim import dryrun
from thatch.sim.record import Recorder
from thatch.sim.scenarios import SCENARIOS, Options
from thatch.space.space import Space

CLIENT, NEIGHBOUR, SESSION = "subscribers", "neighbour", 1
NEW = "new"  # the id of a subscription that would come
THETA = 0.9  # of the incremental plan that is always shown


@dataclass(frozen=True, slots=True)
class Act:
    """What is planned: one of these three."""

    unsubscribe: str | None = None  # an id
    subscribe: str | None = None  # a clause
    to: Policy | None = None


def plan_of_clauses(clauses: Iterable[tuple[str, str]], space: Space, policy: Policy, act: Act) -> list[Plan]:
    """Plans for a broker that has these clauses, given with their ids."""
    broker = Broker("broker", space, Settings("subscriptions", policy))
    for name, is_client in ((CLIENT, True), (NEIGHBOUR, False)):
        broker.handle(LinkUp(SESSION, is_client), name, 0.0)
        broker.handle(Hello(name, SESSION, space.to_json(), is_client), name, 0.0)
    broker.handle(Digest(seq_of(SESSION, 1), 1, (0,), (0,)), NEIGHBOUR, 0.0)
    known: dict[str, None] = {}
    for count, (id, where) in enumerate(clauses, 1):
        known[id] = None
        for effect in broker.handle(Subscribe(seq_of(SESSION, count), id, where), CLIENT, 0.0):
            if isinstance(effect, Reject):
                raise CallerError(f"{id}: {effect.refused.reason}")
    if act.to is not None:
        return [plan_policy(broker, act.to)]
    variants = [None, *([broker.settings.tuned(packed=True)] if not policy.packed else [])]
    if act.subscribe is not None:
        return [plan_subscription(broker, CLIENT, NEW, act.subscribe, 0.0, each) for each in variants]
    if act.unsubscribe not in known:
        some = ", ".join(map(repr, islice(known, NAMES_LISTED))) + (", …" if len(known) > NAMES_LISTED else "")
        raise CallerError(
            f"no clause {act.unsubscribe!r}; ids are those of files, FILE:LINE in text, or 'clause N': {some}"
        )
    return [plan_unsubscription(broker, CLIENT, act.unsubscribe, 0.0, each) for each in variants]


def plan_of_scenario(name: str, options: Options, act: Act, run: Callable[[Any], None]) -> list[Plan]:
    """`run`: runs a network to its end."""
    if name not in SCENARIOS:
        raise CallerError(unknown("scenario", name, SCENARIOS))
    if act.to is not None:
        raise CallerError("--to-cover plans for clauses: give --space and clauses instead of --scenario")
    policy = options.policy
    history = options.routing == "advertisements" and policy.cover is not None
    if history and policy.theta is None:  # so that there is a history to judge by
        options = replace(options, policy=_tuned(policy, theta=THETA))
    net = SCENARIOS[name].build(replace(options, unsubscriptions=0), Recorder(10.0))
    run(net.network)
    own = net.settings.tuned(packed=policy.packed, theta=policy.theta)
    variants = [own, own.tuned(packed=True, theta=None)]
    if history:
        variants.append(own.tuned(packed=True, theta=THETA if policy.theta is None else policy.theta))
    seen = {str(each.policy): each for each in variants}.values()
    if act.unsubscribe is not None and act.unsubscribe not in net.where:
        close = suggestion(act.unsubscribe, net.where)
        some = ", ".join(map(repr, islice(net.where, NAMES_LISTED)))
        raise CallerError(f"no subscription {shown(act.unsubscribe)}{close}; there are {some}, …")
    if act.subscribe is not None:
        where = net.subscriber_brokers[0]
        return [dryrun.plan_subscription(net, where, NEW, act.subscribe, each) for each in seen]
    return [dryrun.plan_unsubscription(net, act.unsubscribe or _first(net.where), each) for each in seen]


def _tuned(policy: Policy, **fields: Any) -> Policy:
    return Settings(policy=policy).tuned(**fields).policy


def _first(ids: Iterable[str]) -> str:
    """The first root that a workload made, or the first subscription."""
    made = list(ids)
    return "r0" if "r0" in made else made[0]


def as_json(plans: Iterable[Plan]) -> list[dict[str, Any]]:
    return [asdict(each) | {"messages": each.messages, "forwarded": each.forwarded} for each in plans]
