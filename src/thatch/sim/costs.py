"""How long a broker is busy with a message: nothing, what the handling took on this machine, or what a paper measured.

The congestion paper's table II, in milliseconds a message: matching a subscription against advertisements 0.81 with
active covering, 1.6 with lazy or none; covering 12, 27 and 0; an unsubscription 1.4; an event 3.0, 6.2 and 7.9. A
packed message costs what it carries: the paper gives no times for packing, and says that matching gains nothing by it.

Its *complex engine*, "Siena-like", is not timed in the paper. Here covering costs 1 ms for each subscription that a
newcomer is compared with, the active ones of the link that has the most: in its figure 13 some 9,000 exposed
subscriptions, at about 1,000 roots, keep the core busy for 3 hours, and that fits.
"""

from __future__ import annotations

from collections.abc import Callable

from thatch.broker import Broker, Policy
from thatch.protocol.messages import (
    Advertise,
    Message,
    Page,
    Publish,
    Replace,
    Subscribe,
    Synced,
    Unadvertise,
    Unsubscribe,
)

Cost = Callable[[Message, float, Broker], float]  # of a message that took so many seconds to handle here: seconds
COMPARISON = 1e-3  # seconds, of the complex engine
UNSUBSCRIPTION = 1.4e-3


def free(message: Message, took: float, broker: Broker) -> float:
    return 0.0


def measured(message: Message, took: float, broker: Broker) -> float:
    return took


def congestion(policy: Policy) -> Cost:
    """Table II, by the policy of the broker."""
    column = _column(policy)
    subscription = ((0.81, 1.6, 1.6)[column] + (12.0, 27.0, 0.0)[column]) / 1e3
    return _charged(lambda broker: subscription, column)


def complex_engine(policy: Policy) -> Cost:
    column = _column(policy)
    matching = (0.81, 1.6, 1.6)[column] / 1e3

    def subscription(broker: Broker) -> float:
        sent = (len(link.outbound.subscriptions.sent) for link in broker.links.values() if not link.is_client)
        return matching + COMPARISON * max(sent, default=0)

    return _charged(subscription, column)


def _column(policy: Policy) -> int:
    return 2 if policy.cover is None else 0 if policy.retract or policy.graph else 1


def _charged(subscription: Callable[[Broker], float], column: int) -> Cost:
    event = (3.0, 6.2, 7.9)[column] / 1e3

    def cost(message: Message, took: float, broker: Broker) -> float:
        if isinstance(message, Publish):
            return event
        if isinstance(message, Subscribe):
            return subscription(broker) + UNSUBSCRIPTION * len(message.retracts)
        if isinstance(message, Replace | Advertise):
            return subscription(broker)
        if isinstance(message, Unsubscribe):
            return UNSUBSCRIPTION * (1 + len(message.also)) + len(message.replacements) * subscription(broker)
        if isinstance(message, Unadvertise):
            return UNSUBSCRIPTION
        if isinstance(message, Page):
            return (len(message.subscriptions) + len(message.advertisements)) * subscription(broker)
        if isinstance(message, Synced):
            listed = sum(map(len, message.subscriptions.values())) + sum(map(len, message.advertisements.values()))
            return listed * subscription(broker)
        return 0.0

    return cost
