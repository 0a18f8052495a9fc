"""Plans before acts: what would be sent if a subscription left, or came, or a link had another policy.

The act is done on a copy of the broker, so that a plan is what happens, not an estimate: the same engine, the same
active sets. Only the share of false positives is estimated, from the history that incremental pruning keeps. A plan is
of one broker and its own links; the simulator makes plans of a whole overlay (sim/dryrun.py).

One thing is shared with the copy: the strings of a planned clause become known to the space, like those of any clause
that is read. Imperfect merging weighs a set of strings by those that are known, and may merge otherwise from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass

from msgspec.structs import replace

from thatch.broker.broker import Broker
from thatch.broker.inspect import similarity
from thatch.broker.link import Link
from thatch.broker.outbound import OutboundTable
from thatch.broker.policy import Policy, Settings
from thatch.errors import CallerError, shown
from thatch.protocol.ids import SUBSCRIPTIONS, merger_prefix, overlay_id
from thatch.protocol.messages import (
    OPERATOR,
    Effect,
    Message,
    Reject,
    Replace,
    Retune,
    Send,
    Sequenced,
    Subscribe,
    Unsubscribe,
)


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """What a neighbour would be sent."""

    link: str
    forwarded: int  # subscriptions, new or with another region
    withdrawn: int
    messages: int
    preserved: int = 0  # that leave and would stay forwarded
    false_positives: float | None = None  # the share of its events that would come and that no subscription wants


@dataclass(frozen=True, slots=True)
class Plan:
    act: str
    policy: str
    links: tuple[LinkPlan, ...]  # only those over which something would be sent, or preserved

    @property
    def forwarded(self) -> int:
        """Subscriptions forwarded, on all links together."""
        return sum(each.forwarded for each in self.links)

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.links)

    def __str__(self) -> str:
        busy = [each for each in self.links if each.forwarded]
        kept = [each for each in self.links if each.preserved]
        text = f"{self.act}, {self.policy}: {_count(self.messages, 'message')}"
        if busy:
            text += f", {_count(self.forwarded, 'subscription')} forwarded on {_count(len(busy), 'link')}"
        if kept:
            text += f", preserved on {_count(len(kept), 'link')}"
            known = [each.false_positives for each in kept if each.false_positives is not None]
            if known:
                text += f" with up to {max(known):.0%} false positives"
        return text


def plan_unsubscription(broker: Broker, link: str, id: str, now: float, settings: Settings | None = None) -> Plan:
    """Of a subscription that came over a link, by the id that the one behind the link knows. `settings`: as if the
    broker were tuned otherwise.

    >>> from thatch import Space
    >>> from thatch.protocol.messages import Digest, Hello, LinkUp, seq_of
    >>> broker = Broker("B1", Space.parse("price int not null 0..1000"), Settings(routing="subscriptions"))
    >>> for name, is_client in (("ann", True), ("B2", False)):
    ...     hello = Hello(name, 7, broker.space.to_json(), is_client)
    ...     effects = broker.handle(LinkUp(1, is_client), name, 0.0) + broker.handle(hello, name, 0.0)
    >>> effects = broker.handle(Digest(seq_of(7, 1), 1, (0,), (0,)), "B2", 0.0)
    >>> for at, where in enumerate(["price < 500", "price < 20", "price BETWEEN 30 AND 40"]):
    ...     effects = broker.handle(Subscribe(seq_of(7, at + 1), f"s{at}", where), "ann", 0.0)
    >>> print(plan_unsubscription(broker, "ann", "s0", 0.0))
    removing 's0', exact lazy: 3 messages, 2 subscriptions forwarded on 1 link
    >>> print(plan_unsubscription(broker, "ann", "s0", 0.0, broker.settings.tuned(packed=True)))
    removing 's0', exact lazy, packed: 1 message, 2 subscriptions forwarded on 1 link
    """
    known = broker.received_from(SUBSCRIPTIONS, link)
    own = overlay_id(broker.name, link, id) if _link(broker, link).is_client else id
    if own not in known:
        raise CallerError(f"no subscription {shown(id)} came over link {shown(link)}")
    shares = similarity(broker, own, 0, now)
    false_positives = 1 - min(shares.values()) if shares else None
    return _planned(broker, f"removing {id!r}", Unsubscribe(0, id), link, now, settings, false_positives)


def plan_subscription(
    broker: Broker, link: str, id: str, where: str, now: float, settings: Settings | None = None
) -> Plan:
    """Of one that would come over a link, or of another region for one that has."""
    return _planned(broker, f"subscribing {id!r}", Subscribe(0, id, where), link, now, settings, None)


def plan_policy(broker: Broker, policy: Policy, links: Iterable[str] | None = None) -> Plan:
    """If neighbours (all, or these) had another policy: what they would be sent in addition, and what would be
    withdrawn."""
    names = [name for name, link in broker.links.items() if not link.is_client] if links is None else list(links)
    plans = []
    for name in names:
        link = _link(broker, name)
        if link.is_client:
            raise CallerError(f"{shown(name)} is a client: no subscription is forwarded to it")
        table = OutboundTable(broker.space, policy, merger_prefix(broker.name, name))
        present = link.outbound.subscriptions
        for id, where in present.wheres.items():
            if id not in present.preserved:
                table.offer(id, where, present.active_set.region(id))
        table.skip_updates()
        new, old = table.forwarded(), present.forwarded()
        sent = sum(old.get(id) != where for id, where in new.items())
        withdrawn = len(old.keys() - new.keys())
        if sent or withdrawn:
            plans.append(LinkPlan(name, sent, withdrawn, sent + withdrawn))
    return Plan(f"another policy for {_count(len(names), 'neighbour')}", str(policy), tuple(plans))


def copied(broker: Broker) -> Broker:
    """A broker that knows the same, and goes its own way. Regions, and what clauses mean, are shared."""
    other = deepcopy(broker, broker.shared())
    other.stop_tracing()
    return other


def sent_over(effects: Iterable[Effect]) -> dict[str, LinkPlan]:
    """By link, the subscriptions that effects would send to neighbours."""
    found: dict[str, LinkPlan] = {}
    for effect in effects:
        if not isinstance(effect, Send):
            continue
        sent, withdrawn = carried(effect.message)
        if sent or withdrawn:
            before = found.get(effect.link, LinkPlan(effect.link, 0, 0, 0))
            found[effect.link] = LinkPlan(
                effect.link, before.forwarded + sent, before.withdrawn + withdrawn, before.messages + 1
            )
    return found


def carried(message: Message) -> tuple[int, int]:
    """Subscriptions that a message sends, and that it withdraws."""
    if isinstance(message, Subscribe):
        return 1, len(message.retracts)
    if isinstance(message, Replace):
        return 1, 0
    if isinstance(message, Unsubscribe):
        return len(message.replacements), 1 + len(message.also)
    return 0, 0


def _planned(
    broker: Broker,
    act: str,
    message: Sequenced,
    link: str,
    now: float,
    settings: Settings | None,
    false_positives: float | None,
) -> Plan:
    source = _link(broker, link)
    if not source.is_met:
        raise CallerError(f"link {shown(link)} is down: nothing can come over it")
    other = copied(broker)
    other.handle(
        Retune(replace(settings or broker.settings, replacements_per_second_max=0.0)), OPERATOR, now
    )  # also what is sent later
    before = {name: set(each.outbound.subscriptions.preserved) for name, each in other.links.items()}
    numbered = type(message)(
        source.last_seq_received + 1, *(getattr(message, name) for name in message.__struct_fields__[1:])
    )
    effects = other.handle(numbered, link, now)
    for effect in effects:
        if isinstance(effect, Reject):
            raise CallerError(effect.refused.reason)
    plans = sent_over(effects)
    for name, each in other.links.items():
        kept = len(set(each.outbound.subscriptions.preserved) - before[name])
        if kept:
            sent = plans.get(name, LinkPlan(name, 0, 0, 0))
            plans[name] = LinkPlan(name, sent.forwarded, sent.withdrawn, sent.messages, kept, false_positives)
    plans.pop(link, None)
    return Plan(act, str(other.settings.policy), tuple(plans.values()))


def _link(broker: Broker, name: str) -> Link:
    if name not in broker.links:
        raise CallerError(f"broker {broker.name!r} has no link {shown(name)}")
    return broker.links[name]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
