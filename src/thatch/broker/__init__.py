"""The broker: a pure state machine. It does no input or output, reads no clock, starts no thread, iterates over no set.

In reading order:

    cells         matching by cell numbers, between brokers that agree on a partition
    policy        how a broker forwards: settings of one mechanism
    tables        what came over links: entries, and an index over all of them
    image         what a broker has worked out, kept for its next start
    fitting       clauses that a neighbour can take
    pages         what differs between two sides of a link, a part at a time
    mergers       several subscriptions forwarded as one, under ids of the link's own
    outbound      what one neighbour was sent: covered, merged, preserved
    statistics    how far from its subscriber an event parts from those of others: what pruning goes by
    waits         what waits for links to settle, and what is said meanwhile
    pending       advertisements that have not settled over a link
    link_states   the states of a link: what each input does in each of them
    link          one neighbour: its session, what it was sent, what has settled
    pace          how fast preserved subscriptions are replaced
    forwarding    what each neighbour needs to know, and the net change to send
    router        the way of events: what may be published, and where it goes
    handling      what the present message has brought about: effects and records
    settling      what waits for others to settle, and the answers to it
    flushing      events that are on their way: when they have come, and the answers to `Flush`
    own_space     the space, what clauses mean in it, and what of it has opened
    growth        how the space grows
    greetings     what neighbours are told about this side of their links
    placeholders  what is kept for a neighbour that is away and may want it
    intake        subscriptions and advertisements come, change and leave
    resync        a peer says what it holds, and is sent what differs
    sessions      links come up, greet, are met, go down
    restore       a broker as it was, from its records
    reasons       why a neighbour was sent something, or was not
    stories       what was done about an id, and why, in order, while tracing is on
    broker        `Broker.handle`: messages in, effects out
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
    from thatch.broker.inspect import similarity, why_forwarded, why_sent
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
    "similarity",
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
    "similarity": "inspect",
    "why_forwarded": "inspect",
    "why_sent": "inspect",
}


def __getattr__(name: str) -> Any:
    """Loaded when it is first asked for: a client needs its own state, and neither the broker nor the compiler."""
    if name in _MODULES:
        return getattr(import_module(f"thatch.broker.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'thatch.broker' has no attribute {name!r}")
