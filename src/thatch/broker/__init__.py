"""The broker: a pure state machine. It does no input or output, reads no clock, starts no thread, iterates over no set.

In reading order:

    cells         matching by cell numbers, between brokers that agree on a partition
    policy        how a broker forwards: settings of one mechanism
    tables        what came over links: entries, and an index over all of them
    image         what a broker has worked out, kept for its next start
    outbound      what one neighbour was sent: covered, merged, preserved
    statistics    how far from its subscriber an event parts from those of others: what pruning goes by
    link          one neighbour: its session, what it was sent, what has settled
    forwarding    what each neighbour needs to know, and the net change to send
    pace          how fast preserved subscriptions are replaced
    router        the way of events: what may be published, and where it goes
    broker        `Broker.handle`: a message in, effects out
    inspect       why something was forwarded, or was not
    dryrun        plans before acts: what would be sent, found out on a copy
    client_state  a client: what it wants at one broker, or at two while it moves
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thatch.broker.broker import Broker
    from thatch.broker.cells import Cells
    from thatch.broker.client_state import ClientState
    from thatch.broker.dryrun import Plan, plan_policy, plan_subscription, plan_unsubscription
    from thatch.broker.inspect import why_forwarded, why_sent
    from thatch.broker.policy import Policy, Settings

__all__ = [
    "Broker",
    "Cells",
    "ClientState",
    "Plan",
    "Policy",
    "Settings",
    "plan_policy",
    "plan_subscription",
    "plan_unsubscription",
    "why_forwarded",
    "why_sent",
]
_MODULES = {
    "Broker": "broker",
    "Cells": "cells",
    "ClientState": "client_state",
    "Plan": "dryrun",
    "Policy": "policy",
    "Settings": "policy",
    "plan_policy": "dryrun",
    "plan_subscription": "dryrun",
    "plan_unsubscription": "dryrun",
    "why_forwarded": "inspect",
    "why_sent": "inspect",
}


def __getattr__(name: str) -> Any:
    """Loaded when it is first asked for: a client needs its own state, and neither the broker nor the compiler."""
    if name in _MODULES:
        return getattr(import_module(f"thatch.broker.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'thatch.broker' has no attribute {name!r}")
