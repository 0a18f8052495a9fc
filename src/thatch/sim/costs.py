"""How long a broker is busy with a message: nothing, what the handling took on this machine, or what a paper measured.

The congestion paper's table II, in milliseconds a message: matching a subscription against advertisements 0.81 with
active covering, 1.6 with lazy or none; covering 12, 27 and 0; an unsubscription 1.4; an event 3.0, 6.2 and 7.9.
"""

from __future__ import annotations

from collections.abc import Callable

from thatch.broker import Policy
from thatch.messages import Advertise, Message, Publish, Replace, Subscribe, Synced, Unadvertise, Unsubscribe

Cost = Callable[[Message, float], float]  # of a message that took so many seconds to handle here: seconds


def free(message: Message, took: float) -> float:
    return 0.0


def measured(message: Message, took: float) -> float:
    return took


def congestion(policy: Policy) -> Cost:
    """Table II, by the policy of the broker."""
    column = 2 if policy.cover is None else 0 if policy.retract or policy.graph else 1
    matching, covering, event = (0.81, 1.6, 1.6)[column], (12.0, 27.0, 0.0)[column], (3.0, 6.2, 7.9)[column]

    def cost(message: Message, took: float) -> float:
        if isinstance(message, Publish):
            return event / 1e3
        if isinstance(message, Subscribe | Replace | Advertise):
            return (matching + covering) / 1e3
        if isinstance(message, Unsubscribe | Unadvertise):
            return 1.4 / 1e3
        if isinstance(message, Synced):
            listed = sum(map(len, message.subscriptions.values())) + sum(map(len, message.advertisements.values()))
            return listed * (matching + covering) / 1e3
        return 0.0

    return cost
