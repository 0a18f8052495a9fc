"""Subscriptions and advertisements as they come, change and leave: what is wrong with one is refused before anything
changes; what is taken is recorded, and followed up by forwarding.py."""

from __future__ import annotations

from collections.abc import Mapping

from thatch.broker.forwarding import Forwarding
from thatch.broker.growth import Growth
from thatch.broker.handling import Handling
from thatch.broker.link import Link
from thatch.broker.pace import Pace
from thatch.broker.placeholders import Placeholders
from thatch.broker.router import Router
from thatch.errors import CallerError, shown
from thatch.protocol.ids import ADVERTISEMENTS, ENTRY_NAMES, SUBSCRIPTIONS, is_of_broker, overlay_id
from thatch.protocol.messages import Accepted, Advertise, Refused, Replace, Subscribe, Tick, Unadvertise, Unsubscribe
from thatch.protocol.records import (
    Drop,
    PeerKey,
    PreservedKey,
    PreservedRecord,
    SubscriptionRecord,
    entry_key,
    entry_record,
)


class Intake:
    def __init__(
        self,
        name: str,
        forwarding: Forwarding,
        router: Router,
        growth: Growth,
        placeholders: Placeholders,
        handling: Handling,
    ) -> None:
        """`name`: of the broker."""
        self._name, self._forwarding, self._router, self._placeholders = name, forwarding, router, placeholders
        self._links, self._growth, self._handling = forwarding.links, growth, handling
        self._pace = Pace()
        self._expiries: dict[tuple[str, str, str], float] = {}  # (table, link, id)
        growth.drop_entries_by(self._drop_unreadable)

    # --- Messages -----------------------------------------------------------------------------------------------------

    def subscribe(self, message: Subscribe, link: str) -> None:
        if not message.retracts:
            self.put(message, link)
            return
        if self._links[link].is_client:
            raise CallerError(
                f"a client retracts nothing with a subscription: unsubscribe {shown(message.retracts[0])}",
                code="not_allowed",
            )
        self._exchange(link, dict.fromkeys(message.retracts), {message.id: message.where})

    def unsubscribe(self, message: Unsubscribe, link: str) -> None:
        if not (message.also or message.replacements or message.prune):
            self.drop(message, link)
            return
        if self._links[link].is_client:
            why = f"a client unsubscribes one id at a time, and sends nothing with it: {shown(message.id)}"
            raise CallerError(why, code="not_allowed")
        gone = {id: message.prune.get(id) for id in (message.id, *message.also)}
        self._exchange(link, gone, message.replacements)

    def put(self, message: Subscribe | Replace | Advertise, link: str) -> None:
        table = ADVERTISEMENTS if isinstance(message, Advertise) else SUBSCRIPTIONS
        source = self._links[link]
        expires = None if isinstance(message, Replace) else message.expires
        if isinstance(message, Replace) and source.is_client:
            own = overlay_id(self._name, link, message.id)
            held = self._forwarding.received.table(table).of_link(link).get(own)
            if held is None:
                raise CallerError(f"no subscription {shown(message.id)} to replace: subscribe it", code="unknown_id")
            expires = held.expires
        cells = message.cells if isinstance(message, Subscribe) and source.agrees else ()
        self.hold(table, source, message.id, message.where, expires, cells)
        if source.is_client:
            self._handling.send(link, Accepted(message.seq))

    def drop(self, message: Unsubscribe | Unadvertise, link: str) -> None:
        table = ADVERTISEMENTS if isinstance(message, Unadvertise) else SUBSCRIPTIONS
        source = self._links[link]
        id = self._own_id(table, source, message.id)
        if id is not None and self.remove(table, link, id) and source.is_client:
            self._handling.send(link, Accepted(message.seq))
        elif source.is_client:
            raise CallerError(f"no {ENTRY_NAMES[table]} {shown(message.id)}", code="unknown_id")

    def tick(self, message: Tick, link: str) -> None:
        """Leases end, and preserved subscriptions are replaced."""
        now = self._handling.now
        self._handling.note_ahead(message.ahead)
        for key in [key for key, expires in self._expiries.items() if expires <= now]:
            self.remove(*key)
        self._pace.replace_preserved(list(self._forwarding.brokers()), self._forwarding.settings, now)

    # --- What follows from them ---------------------------------------------------------------------------------------

    def hold(
        self, table: str, source: Link, id: str, where: str, expires: float | None, cells: tuple[int, ...] = ()
    ) -> None:
        """Take in what came over a link."""
        own, now = self._own_id(table, source, id), self._handling.now
        if own is None:
            return
        promised = now + self._handling.ahead
        if expires is not None and not expires > promised:
            raise CallerError(f"the lease of {shown(id)}, to {expires!r}, is over at {promised!r}", code="lease")
        region = self._growth.region(where)
        if source.is_client:
            self._growth.check_clause(where)
            self._forwarding.settings.limits.check(where, region)
        source.admission.note_interest()
        self._forwarding.put(table, source.name, own, where, region, expires, cells)
        self._pace.note_change(now)
        self.note_expiry(table, source.name, own, expires)
        self._handling.record(entry_record(table, source.peer, own, where, expires))

    def remove(self, table: str, link: str, id: str) -> bool:
        """An entry leaves. Whether it was there."""
        if not self._forwarding.drop(table, link, id, self._prune_of(table, link, id)):
            return False
        self._pace.note_change(self._handling.now)
        self._note_gone(table, self._links[link].peer, id)
        return True

    def _drop_unreadable(self, table: str, link: str, id: str, reason: str) -> None:
        """An entry whose clause means nothing in the space of the overlay. Its client is hung up on, and hears which
        when it comes again."""
        self.remove(table, link, id)
        source = self._links[link]
        if source.is_client and source.is_up:
            source.hang_up()
            self._handling.reject(link, Refused(0, "", reason, code="space"), close=True)

    def forget_link(self, name: str) -> None:
        """A link has gone for good, and all that came over it: a client's subscriptions as if it had withdrawn them."""
        link = self._links[name]
        if link.is_client:
            for id in list(self._forwarding.received.subscriptions.of_link(name)):
                self.remove(SUBSCRIPTIONS, name, id)
        for id in link.outbound.subscriptions.preserved:
            self._handling.record(Drop(PreservedKey(link.peer, id)))
        for table, id in self._forwarding.forget_link(name):
            self._note_gone(table, link.peer, id)

    def send_updates(self) -> None:
        """Send each neighbour the net change, and record what is preserved for it."""
        self._placeholders.follow()
        for link in self._forwarding.brokers():
            self._handling.send(link.name, *self._forwarding.drain_updates(link))
            for id, saved in link.outbound.subscriptions.take_unsaved().items():
                if saved is None:
                    self._handling.record(Drop(PreservedKey(link.peer, id)))
                else:
                    self._handling.record(PreservedRecord(link.peer, id, *saved))

    def note_expiry(self, table: str, link: str, id: str, expires: float | None) -> None:
        """How long a lease has to go is settled when it comes: if the clock is stepped later, that neither ends nor
        prolongs it."""
        if expires is None:
            self._expiries.pop((table, link, id), None)
        else:
            self._expiries[table, link, id] = expires - self._handling.ahead

    def _note_gone(self, table: str, peer: PeerKey, id: str) -> None:
        self._expiries.pop((table, peer.name, id), None)
        self._handling.record(Drop(entry_key(table, peer, id)))

    def _exchange(self, link: str, gone: Mapping[str, dict[str, int] | None], new: Mapping[str, str]) -> None:
        """Of what a neighbour sent, some leave and others come in their place."""
        regions = {id: (where, self._growth.region(where)) for id, where in new.items()}
        held = self._forwarding.received.subscriptions.of_link(link)
        leaving = {id: prune for id, prune in gone.items() if id in held}
        self._links[link].admission.note_interest()
        self._forwarding.exchange(link, leaving, regions)
        self._pace.note_change(self._handling.now)
        peer = self._links[link].peer
        for id, where in new.items():
            self.note_expiry(SUBSCRIPTIONS, link, id, None)
            self._handling.record(SubscriptionRecord(peer, id, where))
        for id in leaving:
            self._note_gone(SUBSCRIPTIONS, peer, id)

    def _prune_of(self, table: str, link: str, id: str) -> dict[str, int] | None:
        """How far a client's subscription is to be withdrawn; its history is not needed any longer."""
        received = self._forwarding.received.subscriptions
        entry = received.of_link(link).get(id) if table == SUBSCRIPTIONS else None
        if entry is None or not self._links[link].is_client:
            return None
        prune = self._forwarding.prune_of(entry, self._router.distances, self._handling.now)
        self._router.distances.forget(id)
        return prune

    def _own_id(self, table: str, source: Link, id: str) -> str | None:
        """The id by which the overlay knows it: a client's id with where it lives. None for an echo of our own
        advertisement, and for what only this broker says on the neighbour's behalf; a subscription of ours that comes
        back may be preserved there, and cover others."""
        if source.is_client:
            if not id:
                raise CallerError("an id must not be empty", code="id")
            return overlay_id(self._name, source.name, id)
        is_echo = table == ADVERTISEMENTS and is_of_broker(id, self._name)
        return None if is_echo or id.startswith(source.pending.prefix) else id

    def check_invariants(self) -> None:
        for table, link, id in self._expiries:
            assert id in self._forwarding.received.table(table).of_link(link)
