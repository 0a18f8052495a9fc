"""What is kept for a neighbour that is away, and may want it. Nobody waits for such a neighbour: publishers go on, and
it has not said what it wants of what they advertised meanwhile.

    publisher ── advertises ─▶ B1 ── ✂ ── B2      B1 holds a subscription to all of it on behalf of B2: a placeholder,
              ◀─ placeholder ──   (keeps events)  forwarded to publishers like any other; what comes is kept for B2
              ◀─ "settled except B2" ──
    publisher ── events ─────▶ B1 ── events ─▶ B2 returns, hears of the advertisement and says what it wants
              ◀─ B2 wants … ──                    then the placeholder goes
              ◀─ "settled" ──

A placeholder stands for an advertisement that has not settled over a link. It is a record among the subscriptions that
came over the link, with an id of its own, so that it lasts over restarts; neither side of the link compares it.
"""

from __future__ import annotations

from collections.abc import Iterable

from thatch.broker.forwarding import Forwarding
from thatch.broker.greetings import Greetings
from thatch.broker.handling import Handling
from thatch.broker.link import Link
from thatch.broker.waits import Missing
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import Away, Refused, Settled, SettledExcept
from thatch.protocol.records import Drop, SubscriptionKey, SubscriptionRecord


class Placeholders:
    def __init__(self, forwarding: Forwarding, greetings: Greetings, handling: Handling) -> None:
        self._forwarding, self._links = forwarding, forwarding.links
        self._greetings, self._handling = greetings, handling

    # --- Messages -----------------------------------------------------------------------------------------------------

    def go_away(self, message: Away, name: str) -> None:
        """Nobody waits for a neighbour any more that has not been synced for a long time."""
        link = self._links[name]
        if link.is_client or link.is_synced:
            return
        if link.is_up:
            reason = "nothing was said that tells what this broker's neighbour holds: come again"
            self._handling.reject(name, Refused(0, "", reason, code="protocol"), close=True)
        link.go_away()
        self._hold(link, list(link.pending.unsettled))

    def settle(self, message: Settled, name: str) -> None:
        self._release(self._links[name], self._links[name].settle(message.seq))

    def settle_except(self, message: SettledExcept, name: str) -> None:
        """What is behind those brokers, the neighbour keeps events for."""
        self._release(
            self._links[name], self._links[name].settle(message.seq, Missing(message.brokers, message.others))
        )

    # --- What follows from them ---------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Advertisements that neighbours are to be told of have come, changed or gone."""
        for link in self._forwarding.brokers():
            if link.is_away or link.pending.placeholders:
                changed = link.outbound.advertisements.changed
                self._hold(link, [id for id in changed if link.is_away or id in link.pending.placeholders])

    def _hold(self, link: Link, advertisements: Iterable[str]) -> None:
        """A placeholder for each, as it is now."""
        offered, was_durable = link.outbound.advertisements, link.is_durable
        for advertisement in advertisements:
            where, id = offered.wheres.get(advertisement), link.pending.prefix + advertisement
            if where is None:
                self._drop(link, advertisement)
                continue
            held = self._forwarding.received.subscriptions.of_link(link.name).get(id)
            if held is None or held.where != where:
                region = offered.active_set.region(advertisement)
                self._forwarding.put(SUBSCRIPTIONS, link.name, id, where, region, None)
                self._handling.record(SubscriptionRecord(link.peer, id, where))
            link.pending.put_placeholder(advertisement)
            link.set_durable(link.says_durable)
        if link.is_durable != was_durable:
            self._greetings.announce()

    def _release(self, link: Link, advertisements: Iterable[str]) -> None:
        """These have settled: what the neighbour wants of them is known."""
        was_durable = link.is_durable
        for advertisement in advertisements if link.pending.unsettled else list(link.pending.placeholders):
            self._drop(link, advertisement)
        if link.is_durable != was_durable:
            self._greetings.announce()

    def _drop(self, link: Link, advertisement: str) -> None:
        id = link.pending.placeholders.get(advertisement)
        if id is not None:
            self._forwarding.drop(SUBSCRIPTIONS, link.name, id)
            link.pending.drop_placeholder(advertisement)
            link.set_durable(link.says_durable)
            self._handling.record(Drop(SubscriptionKey(link.peer, id)))
