"""The broker. `handle(message or messages, link, now)` is the way in, effects are the way out.

The rule that keeps it clean: no input or output, no clock, no thread, no iteration over sets. Its driver (the simulator
or the node) delivers what comes over each link in order, and runs the effects in order.

    message -> check it -> received tables (tables.py) -> offers (forwarding.py) -> active sets (outbound.py) -> effects
    event   -> the router (router.py) -> effects

A wrong message of a client is refused before anything changes. A wrong message of a neighbour is its fault: it gets the
reason, and the link is closed.

Longer than 600 lines, because every message that a broker takes is handled here, next to the others that it must agree
with about order and records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast, overload

from thatch.broker.forwarding import Forwarding
from thatch.broker.image import Decision, Known, read_image, write_image
from thatch.broker.link import Link, Waiting
from thatch.broker.outbound import OutboundTable
from thatch.broker.pace import AT_ONCE, Pace
from thatch.broker.policy import Settings
from thatch.broker.router import Router
from thatch.broker.tables import Entry, ReceivedTables
from thatch.errors import CallerError, PeerError, ThatchError, shown
from thatch.protocol.digest import bucket_of, differing, digest, digest_size
from thatch.protocol.ids import (
    ADVERTISEMENTS,
    ENTRY_NAMES,
    SUBSCRIPTIONS,
    check_name,
    client_id,
    is_of_broker,
    overlay_id,
)
from thatch.protocol.messages import (
    PROTOCOL,
    Accepted,
    Advertise,
    Digest,
    Drop,
    Effect,
    Extend,
    Flush,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Persist,
    Persisted,
    Publish,
    Put,
    Record,
    Refused,
    Reject,
    Replace,
    Retune,
    Send,
    Sequenced,
    Settled,
    Subscribe,
    Synced,
    Tick,
    Unadvertise,
    Unsubscribe,
    session_of,
)
from thatch.region.region import Region
from thatch.space.space import Space

OPERATOR = ""  # the link of the driver
PRESERVED = "preserved"  # the table of records of subscriptions that have left and stay forwarded
LEAVING = "leaving"  # and of how far each is still to be withdrawn, as JSON
Compile = Callable[[str, Space], Region]


class Broker:
    """One broker of an acyclic overlay.

    >>> broker = Broker("B1", Space.parse("price double not null 0..1000"), Settings(routing="subscriptions"))
    >>> effects = broker.handle(LinkUp(session=1, is_client=True), "ann", now=0.0)
    >>> hello = Hello("ann", 7, broker.space.to_json(), is_client=True)
    >>> effects = broker.handle(hello, "ann", now=0.0)
    >>> persist, *sends = broker.handle(Subscribe(7 << 32 | 1, "cheap", "price < 20"), "ann", now=0.0)
    >>> print(persist.records[0])
    Put(table='subscriptions', link='ann', id='B1/ann/cheap', where='price < 20', expires=None)
    >>> for send in sends:
    ...     print(send)
    Send(link='ann', message=Accepted(seq=30064771073))
    Send(link='ann', message=Settled(seq=30064771073))
    >>> broker.handle(Publish("ann:1", {"price": 5.0}), "ann", now=0.0)[0].ids
    ('cheap',)
    """

    def __init__(
        self,
        name: str,
        space: Space,
        settings: Settings | None = None,
        compile: Compile | None = None,
        read_space: Callable[[str], Space] = Space.from_json,
    ) -> None:
        """`compile` makes a region of a clause, `read_space` a space of its JSON: brokers in one process may share the
        work."""
        check_name(name)
        self.name, self.settings = name, settings or Settings()
        self._space_text = space.to_json()
        self.persisted = 0  # the last number that is on disk
        self._compile, self._read_space = compile or _compiled, read_space
        self._forwarding = Forwarding(space, self.settings)
        self._links = self._forwarding.links
        self._router = Router(space, self.settings, self._forwarding)
        self._opening: Waiting | None = None  # an `Extend` of the operator that has not settled
        self._persists = 0
        self._pace = Pace()
        self._expiries: dict[tuple[str, str, str], float] = {}  # (table, link, id)
        self._records: list[Record] = []
        self._effects: list[Effect] = []
        self._handlers: dict[type, Callable[[Any, str], None]] = {
            Subscribe: self._subscribe, Replace: self._put, Advertise: self._put,
            Unsubscribe: self._unsubscribe, Unadvertise: self._drop,
            Flush: self._flush, Hello: self._hello, Digest: self._digest, Synced: self._synced, Extend: self._extend,
            Settled: self._settled, LinkUp: self._link_up, LinkDown: self._link_down, Tick: self._tick,
            Persisted: self._persisted, Refused: self._refused, Retune: self._retune,
        }  # fmt: skip

    @classmethod
    def restored(
        cls,
        name: str,
        space: Space,
        records: Iterable[Record],
        settings: Settings | None = None,
        compile: Compile | None = None,
        read_space: Callable[[str], Space] = Space.from_json,
        image: bytes | None = None,
        decided: Mapping[str, Decision] | None = None,
    ) -> Broker:
        """As it was, from all its records in order. Its links are down; what it forwards is decided again, or known,
        and compared with what each neighbour holds when the link is up.

        `image`: what it knew at an earlier moment (image.py). `decided`: what was decided elsewhere about
        subscriptions, by the ids of the records. On each link one stays passive if all that its certificate names is
        active there; others are decided as when they come. Neither is used if the space has grown since: clauses
        then mean more."""
        kept: dict[tuple[str, str, str], Put] = {}
        for record in records:
            key = record.table, record.link, record.id
            kept.pop(key, None)
            if isinstance(record, Put):
                kept[key] = record
        grown, opened = kept.pop(("space", "", "grown"), None), kept.pop(("space", "", "opened"), None)
        broker = cls(name, space if grown is None else read_space(grown.where), settings, compile, read_space)
        if grown is not None and (opened is None or opened.where != grown.where):
            broker._router.open_space = space if opened is None else read_space(opened.where)
        for put in kept.values():
            if put.table == "links":
                kind, _, durable = put.where.partition(" ")
                link = broker._new_link(put.id, kind == "client")
                link.is_durable = bool(durable)
                broker._forwarding.add_link(link)
        known = Known() if image is None else read_image(image, broker.space)
        if decided is not None and broker.space == space:
            known.decided = decided
        entries: dict[str, list[Entry]] = {SUBSCRIPTIONS: [], ADVERTISEMENTS: []}
        for put in kept.values():
            if put.table == PRESERVED and put.link in broker._links:
                hops_left = kept.get((LEAVING, put.link, put.id))
                broker._links[put.link].outbound.subscriptions.preserve_again(
                    put.id,
                    put.where,
                    broker._region(put.where),
                    {} if hops_left is None else json.loads(hops_left.where),
                )
        for put in kept.values():
            if put.table not in entries:
                continue
            region = known.regions.get(put.where)
            if region is None:
                region = broker._region(put.where)
            peer_id = client_id(put.id) if broker._links[put.link].is_client else put.id
            into = entries[put.table]
            into.append(Entry(len(into), put.link, put.id, peer_id, put.where, region, put.expires))
            broker._note_expiry((put.table, put.link, put.id), put.expires)
        broker._forwarding.load(entries, known)
        for link in broker._forwarding.brokers():
            broker._forwarding.drain_updates(link)  # nothing to send
            link.mark_unsent()  # and nothing of it has settled before the link is synced
        return broker

    # --- The way in -------------------------------------------------------------------------------------------------

    @overload
    def handle(self, message: Message, link: str, now: float) -> list[Effect]: ...

    @overload
    def handle(self, message: Sequence[Message], link: str, now: float) -> list[list[Effect | Exception]]: ...

    def handle(
        self, message: Message | Sequence[Message], link: str, now: float
    ) -> list[Effect] | list[list[Effect | Exception]]:
        """What to do about a message that came over a link (or from the driver: `OPERATOR`) at a time.

        For several messages, one list for each, as from one after the other; events among them are looked up together.
        The list of a message that fails ends with its error, after what it brought about before, and the other lists
        stand: nothing that was recorded or is to be sent is lost with it. A message alone raises its error."""
        self._effects, self._records, self._now = [], [], now
        if type(message) is Publish and link != OPERATOR:
            self._router.publish(message, link, now, self._effects)
            return self._effects
        if not isinstance(message, Message):
            return self._handle_all(message, link, now)
        if link == OPERATOR and not isinstance(message, Extend | Tick | Persisted | Retune):
            raise CallerError(f"an operator has no {type(message).__name__}: it comes over a link")
        if link != OPERATOR and link not in self._links and not isinstance(message, LinkUp):
            return []
        try:
            if isinstance(message, Sequenced) and link != OPERATOR and not self._is_next(message, link):
                return []
            handler = self._handlers.get(type(message))
            if handler is None:
                raise PeerError(f"a broker takes no {type(message).__name__}")
            handler(message, link)
        except (PeerError, CallerError) as error:
            self._blame(message, link, error)
        self._send_updates()
        if isinstance(message, Sequenced) and link != OPERATOR:
            self._wait(message.seq, link)
        self._answer()
        return self._take_effects()

    def _handle_all(self, messages: Sequence[Message], link: str, now: float) -> list[list[Effect | Exception]]:
        found: list[list[Effect | Exception]] = []
        while len(found) < len(messages):
            events = _events_from(messages, len(found)) if link != OPERATOR else []
            if events:
                effects, errors = self._router.publish_all(events, link, now)
                each = cast(list[list[Effect | Exception]], effects)
                for at, error in errors.items():
                    each[at].append(error)
                found += each
                continue
            try:
                found.append([*self.handle(messages[len(found)], link, now)])
            except Exception as error:
                found.append([*self._take_effects(), error])
        return found

    def _take_effects(self) -> list[Effect]:
        """The effects of the message so far, its records first."""
        if not self._records:
            return self._effects
        self._persists += 1
        return [Persist(self._persists, tuple(self._records)), *self._effects]

    def _is_next(self, message: Sequenced, link: str) -> bool:
        """Whether a message is the next one of its session; one that came before is ignored."""
        source = self._links.get(link)
        if source is None or not source.is_met or session_of(message.seq) != source.peer_session:
            return False
        if message.seq <= source.last_seq_received:
            return False
        if message.seq > source.last_seq_received + 1:
            raise PeerError(
                f"{message.seq - source.last_seq_received - 1} messages are missing before {type(message).__name__}"
            )
        source.last_seq_received = message.seq
        return True

    def _blame(self, message: Message, link: str, error: ThatchError) -> None:
        """A client's mistake is refused; one of a neighbour, or of the protocol, ends the session; the driver's own is
        raised."""
        source = self._links.get(link)
        if source is None or isinstance(message, LinkUp | LinkDown):
            raise error
        table = ADVERTISEMENTS if isinstance(message, Advertise | Unadvertise) else SUBSCRIPTIONS
        refused = Refused(getattr(message, "seq", 0), getattr(message, "id", ""), str(error), table)
        close = isinstance(error, PeerError) or not source.is_client
        self._effects.append(Reject(link, refused, close))
        if close:
            source.disconnect()

    def _send_updates(self) -> None:
        """Send each neighbour the net change, and record what is preserved for it."""
        for link in self._forwarding.brokers():
            self._effects += [Send(link.name, message) for message in self._forwarding.drain_updates(link)]
            for id, saved in link.outbound.subscriptions.take_unsaved().items():
                where, hops_left = saved or (None, {})
                self._keep(PRESERVED, link.name, id, where)
                self._keep(LEAVING, link.name, id, json.dumps(hops_left) if hops_left else None)

    def _keep(self, table: str, link: str, id: str, where: str | None) -> None:
        self._records.append(Drop(table, link, id) if where is None else Put(table, link, id, where))

    def _wait(self, seq: int, link: str) -> None:
        source = self._links.get(link)
        if source is not None and source.is_met:
            source.wait(seq, self._unsettled(link))

    def _unsettled(self, but: str) -> dict[str, int]:
        brokers = self._forwarding.brokers()
        return {each.name: each.sent_total for each in brokers if each.name != but and each.sent_total > each.settled}

    def _answer(self) -> None:
        """Send `Settled` for what has settled by now."""
        for link in self._links.values():
            if link.waiting:
                seq = link.take_settled(self._links)
                if seq is not None:
                    self._effects.append(Send(link.name, Settled(seq)))
        if self._opening is not None and all(
            self._links[name].settled >= sent_total for name, sent_total in self._opening.until.items()
        ):
            self._opening = None
            self._open()

    # --- Subscriptions and advertisements ---------------------------------------------------------------------------

    def _subscribe(self, message: Subscribe, link: str) -> None:
        if not message.retracts:
            self._put(message, link)
            return
        if self._links[link].is_client:
            raise CallerError(
                f"a client retracts nothing with a subscription: unsubscribe {shown(message.retracts[0])}"
            )
        self._exchange(link, dict.fromkeys(message.retracts), {message.id: message.where})

    def _unsubscribe(self, message: Unsubscribe, link: str) -> None:
        if not (message.also or message.replacements or message.prune):
            self._drop(message, link)
            return
        if self._links[link].is_client:
            raise CallerError(f"a client unsubscribes one id at a time, and sends nothing with it: {shown(message.id)}")
        gone = {id: message.prune.get(id) for id in (message.id, *message.also)}
        self._exchange(link, gone, message.replacements)

    def _exchange(self, link: str, gone: Mapping[str, dict[str, int] | None], new: Mapping[str, str]) -> None:
        """Of what a neighbour sent, some leave and others come in their place."""
        regions = {id: (where, self._region(where)) for id, where in new.items()}
        held = self.received.subscriptions.of_link(link)
        leaving = {id: prune for id, prune in gone.items() if id in held}
        self._forwarding.exchange(link, leaving, regions)
        self._pace.note_change(self._now)
        for id, where in new.items():
            self._note_expiry((SUBSCRIPTIONS, link, id), None)
            self._records.append(Put(SUBSCRIPTIONS, link, id, where))
        for id in leaving:
            self._expiries.pop((SUBSCRIPTIONS, link, id), None)
            self._records.append(Drop(SUBSCRIPTIONS, link, id))

    def _put(self, message: Subscribe | Replace | Advertise, link: str) -> None:
        table = ADVERTISEMENTS if isinstance(message, Advertise) else SUBSCRIPTIONS
        source = self._links[link]
        expires = None if isinstance(message, Replace) else message.expires
        if isinstance(message, Replace) and source.is_client:
            held = self.received.table(table).of_link(link).get(overlay_id(self.name, link, message.id))
            if held is None:
                raise CallerError(f"no subscription {shown(message.id)} to replace: subscribe it")
            expires = held.expires
        cells = message.cells if isinstance(message, Subscribe) and source.agrees else ()
        self._hold(table, source, message.id, message.where, expires, cells)
        if source.is_client:
            self._effects.append(Send(link, Accepted(message.seq)))

    def _hold(
        self, table: str, source: Link, id: str, where: str, expires: float | None, cells: tuple[int, ...] = ()
    ) -> None:
        own = self._own_id(table, source, id)
        if own is None:
            return
        if expires is not None and not expires > self._now:
            raise CallerError(f"the lease of {shown(id)}, to {expires!r}, is over at {self._now!r}")
        self._forwarding.put(table, source.name, own, where, self._region(where), expires, cells)
        self._pace.note_change(self._now)
        self._note_expiry((table, source.name, own), expires)
        self._records.append(Put(table, source.name, own, where, expires))

    def _drop(self, message: Unsubscribe | Unadvertise, link: str) -> None:
        table = ADVERTISEMENTS if isinstance(message, Unadvertise) else SUBSCRIPTIONS
        source = self._links[link]
        id = self._own_id(table, source, message.id)
        if id is not None and self._remove(table, link, id) and source.is_client:
            self._effects.append(Send(link, Accepted(message.seq)))
        elif source.is_client:
            raise CallerError(f"no {ENTRY_NAMES[table]} {shown(message.id)}")

    def _remove(self, table: str, link: str, id: str) -> bool:
        if not self._forwarding.drop(table, link, id, self._prune_of(table, link, id)):
            return False
        self._pace.note_change(self._now)
        self._expiries.pop((table, link, id), None)
        self._records.append(Drop(table, link, id))
        return True

    def _prune_of(self, table: str, link: str, id: str) -> dict[str, int] | None:
        """How far a client's subscription is to be withdrawn; its history is not needed any longer."""
        entry = self.received.subscriptions.of_link(link).get(id) if table == SUBSCRIPTIONS else None
        if entry is None or not self._links[link].is_client:
            return None
        prune = self._forwarding.prune_of(entry, self._router.distances, self._now)
        self._router.distances.forget(id)
        return prune

    def _own_id(self, table: str, source: Link, id: str) -> str | None:
        """The id by which the overlay knows it: a client's id with where it lives. None for an echo of our own
        advertisement; a subscription of ours that comes back may be preserved there, and cover others."""
        if source.is_client:
            if not id:
                raise CallerError("an id must not be empty")
            return overlay_id(self.name, source.name, id)
        is_echo = table == ADVERTISEMENTS and is_of_broker(id, self.name)
        return None if is_echo else id

    def _space_of(self, text: str) -> Space:
        """The space of a text, which is most often our own."""
        return self.space if text == self._space_text else self._read_space(text)

    def _region(self, where: str) -> Region:
        return self._compile(where, self.space)

    def _note_expiry(self, key: tuple[str, str, str], expires: float | None) -> None:
        if expires is None:
            self._expiries.pop(key, None)
        else:
            self._expiries[key] = expires

    def _retune(self, message: Retune, link: str) -> None:
        settings = message.settings
        if link != OPERATOR or not isinstance(settings, Settings):
            raise PeerError("only the operator can retune a broker, with Settings")
        if not settings.sends_same_as(self.settings):
            raise CallerError(
                "a running broker can change how subscriptions leave (packed, theta), not what it forwards: restart it"
            )
        self.settings = self._forwarding.settings = settings
        self._router.tune(settings)
        for each in self._links.values():
            each.policy = settings.policy_of(each.name)
        for each in self._forwarding.brokers() if not settings.replacements_per_second_max else ():
            each.outbound.subscriptions.replace_preserved(int(AT_ONCE), is_idle=False)

    def _tick(self, _: Tick, link: str) -> None:
        for key in [key for key, expires in self._expiries.items() if expires <= self._now]:
            self._remove(*key)
        self._pace.replace_preserved(list(self._forwarding.brokers()), self.settings, self._now)

    # --- Links ------------------------------------------------------------------------------------------------------

    def _new_link(self, name: str, is_client: bool) -> Link:
        return Link(name, is_client, self.space, self.settings.policy_of(name), self.name)

    def _link_up(self, message: LinkUp, name: str) -> None:
        check_name(name)
        link = self._links.get(name)
        if link is not None and link.is_client != message.is_client:
            raise CallerError(f"link {name!r} was a {'client' if link.is_client else 'broker'}: forget it first")
        last = 0 if link is None else link.session
        if message.session <= last:
            raise CallerError(f"the session numbers of link {name!r} must rise: {message.session} came after {last}")
        if link is None:
            link = self._new_link(name, message.is_client)
            link.is_durable = message.durable
            self._forwarding.add_link(link)
            self._keep_link(link)
        elif link.is_client and link.is_durable != message.durable:
            link.is_durable = message.durable
            self._keep_link(link)
        link.connect(message.session)
        self._greet(link)
        if link.is_client and link.is_durable:
            self._announce()

    def _keep_link(self, link: Link) -> None:
        kind = "client" if link.is_client else "broker"
        self._records.append(Put("links", "", link.name, f"{kind} durable" if link.is_durable else kind))

    def _link_down(self, message: LinkDown, name: str) -> None:
        link = self._links.get(name)
        if link is None:
            return
        link.disconnect()
        if message.forget:
            self._forget(name)

    def _forget(self, name: str) -> None:
        if self._links[name].is_client:
            for id in list(self.received.subscriptions.of_link(name)):
                self._remove(SUBSCRIPTIONS, name, id)
        for id in self._links[name].outbound.subscriptions.preserved:
            self._records += [Drop(PRESERVED, name, id), Drop(LEAVING, name, id)]
        for table, id in self._forwarding.forget_link(name):
            self._expiries.pop((table, name, id), None)
            self._records.append(Drop(table, name, id))
        self._records.append(Drop("links", "", name))
        for waiting in (each for link in self._links.values() for each in link.waiting):
            waiting.until.pop(name, None)  # a new link of this name would count from the start
        if self._opening is not None:
            self._opening.until.pop(name, None)
        self._announce()

    def _members_except_behind(self, link: Link) -> tuple[str, ...]:
        """The brokers on this side of a link, also those behind others that are cut and will return."""
        if link.is_client:
            return ()
        others = [each for each in self._forwarding.brokers() if each is not link]
        return (self.name, *(name for each in others for name in each.members))

    def _greet(self, link: Link) -> None:
        durable = any(each.is_durable for each in self._links.values() if each is not link) and not link.is_client
        members, partition = self._members_except_behind(link), self._partition()
        hello = Hello(self.name, link.session, self._space_text, members=members, durable=durable, partition=partition)
        link.announced = hello
        self._effects.append(Send(link.name, hello))

    def _announce(self) -> None:
        """Greet the neighbours again to which the greeting says something new."""
        durable = [link.name for link in self._links.values() if link.is_durable]
        for link in self._forwarding.brokers():
            now = self._members_except_behind(link), durable not in ([], [link.name])
            if link.is_up and (link.announced is None or now != (link.announced.members, link.announced.durable)):
                self._greet(link)

    def _partition(self) -> str:
        return "" if self._forwarding.cells is None else self._forwarding.cells.id

    def _hello(self, message: Hello, name: str) -> None:
        link = self._links.get(name)
        if link is None or not link.is_up or message.session < link.peer_session:
            return
        if link.is_met and message.session > link.peer_session:
            raise PeerError(f"{name!r} begins session {message.session} within session {link.peer_session}")
        if message.name != name:
            raise PeerError(f"link {name!r}: the peer calls itself {message.name!r}")
        if message.is_client != link.is_client:
            kinds = ("a client", "a broker") if message.is_client else ("a broker", "a client")
            raise PeerError(f"link {name!r}: the peer says that it is {kinds[0]}, and not {kinds[1]}")
        if message.version != PROTOCOL:
            raise PeerError(f"{name!r} speaks version {message.version} of the protocol, this broker {PROTOCOL}")
        space = self._space_of(message.space)
        if not self.space.extends(space) and (link.is_client or not space.extends(self.space)):
            raise PeerError(f"{name!r} uses another space: {space}; this broker uses {self.space}")
        if not link.is_client and self._closes_cycle(message, link):
            return
        if not link.is_met:
            link.is_met, link.peer_session, link.last_seq_received = True, message.session, message.session << 32
            link.agrees = not link.is_client and message.partition != "" and message.partition == self._partition()
            link.behind = None if link.is_client or space.extends(self.space) else space
            self._send_digest(link)
        if not link.is_client and link.is_durable != message.durable:
            link.is_durable = message.durable
            self._keep_link(link)
        if not link.is_client:
            link.members = message.members
            self._announce()

    def _closes_cycle(self, message: Hello, link: Link) -> bool:
        """A broker on both sides of a link closes a cycle. Of the two links the younger one goes, and is forgotten.
        Whether that is this one."""
        for name in message.members:
            rivals = [each for each in self._forwarding.brokers() if each is not link and name in each.members]
            if name != self.name and not rivals:
                continue
            order = list(self._links)
            younger = max([link, *rivals], key=lambda each: order.index(each.name))
            reached = f"by link {rivals[0].name!r}" if rivals else "here"
            reason = f"broker {name!r} is reached {reached} already: link {younger.name!r} would close a cycle"
            self._effects.append(Reject(younger.name, Refused(0, "", reason), close=True))
            younger.disconnect()
            self._forget(younger.name)
            return younger is link
        return False

    def _refused(self, message: Refused, name: str) -> None:
        """A neighbour refuses the link; the driver hears it from the endpoint."""

    # --- Resynchronisation ------------------------------------------------------------------------------------------

    def _send_digest(self, link: Link) -> None:
        subscriptions = self.received.subscriptions.of_link(link.name)
        advertisements = self.received.advertisements.of_link(link.name)
        size = digest_size(len(subscriptions) + len(advertisements))
        hashes = (digest(_as_the_peer_knows_them(each), size) for each in (subscriptions, advertisements))
        self._effects.append(Send(link.name, Digest(link.next_seq(), size, *hashes)))

    def _digest(self, message: Digest, name: str) -> None:
        """Send a neighbour what it does not hold, and what to hold no longer."""
        link = self._links[name]
        if link.is_client or link.is_synced:
            raise PeerError(f"{name!r} sent a digest that was not asked for")
        is_open = self.open_space is self.space
        self._effects.append(Send(name, Extend(link.next_seq(), self._space_text, is_open)))
        theirs = message.subscriptions, message.advertisements
        listings = [
            differing({id: (where, None) for id, where in table.forwarded().items()}, hashes, message.size)
            for table, hashes in zip(link.outbound, theirs, strict=True)
        ]
        self._effects.append(Send(name, Synced(link.sync(), message.size, *listings)))

    def _synced(self, message: Synced, name: str) -> None:
        link = self._links[name]
        if message.size < 1:
            raise PeerError(f"a listing has at least 1 bucket, not {message.size}")
        for table, buckets in ((SUBSCRIPTIONS, message.subscriptions), (ADVERTISEMENTS, message.advertisements)):
            listed = {id: held for bucket in buckets.values() for id, held in bucket.items()}
            for id, (where, expires) in listed.items():
                try:
                    self._hold(table, link, id, where, expires)
                except CallerError as error:
                    if not link.is_client:
                        raise
                    self._effects.append(Reject(name, Refused(message.seq, id, str(error), table)))
                    if id:
                        self._remove(table, name, overlay_id(self.name, name, id))  # the client forgets it too
            for entry in list(self.received.table(table).of_link(name).values()) if buckets else ():
                if entry.peer_id not in listed and bucket_of(entry.peer_id, message.size) in buckets:
                    self._remove(table, name, entry.id)
        if link.is_client:
            self._effects.append(Send(name, Accepted(message.seq)))

    def _flush(self, message: Flush, name: str) -> None:
        self._spread(name, Flush)

    def _settled(self, message: Settled, name: str) -> None:
        link = self._links.get(name)
        if link is not None and link.is_met:
            link.settle(message.seq)

    def _persisted(self, message: Persisted, link: str) -> None:
        if not self.persisted <= message.number <= self._persists:
            raise CallerError(f"records {message.number} are not between {self.persisted} and {self._persists}")
        self.persisted = message.number

    # --- A space that grows -----------------------------------------------------------------------------------------

    def _extend(self, message: Extend, link: str) -> None:
        space = self._space_of(message.space)
        source = self._links.get(link)
        if source is not None and source.is_client:
            raise CallerError("a client cannot extend the space: only the operator can")
        if not space.extends(self.space):
            if self.space.extends(space):  # we are ahead, and have said so, or shall when the link is synced
                return
            rule = "nullable attributes, or values of enums, may be added at the end"
            raise CallerError(f"{space} does not extend {self.space}: {rule}")
        moved, opens = space != self.space, message.opened and self.open_space is not self.space
        if moved:
            self._move(space)
        if message.opened and (moved or opens):
            self._set_open()
        if moved or opens:
            self._spread_space(link, message.opened)
        if link == OPERATOR:
            self._opening = Waiting(0, self._unsettled(OPERATOR))

    def _move(self, space: Space) -> None:
        wheres = dict.fromkeys(entry.where for table in self.received for entry in table)
        for link in self._forwarding.brokers():
            for outbound in link.outbound:
                wheres.update(dict.fromkeys(outbound.wheres.values()))
        self._forwarding.move(space, {where: self._compile(where, space) for where in wheres})
        for link in self._forwarding.brokers():
            if not link.is_synced and link.behind is None:  # else `Extend` comes before what is new
                link.behind = self.space
        self._router.space, self._space_text = space, space.to_json()
        self._records.append(Put("space", "", "grown", self._space_text))

    def _spread(self, but: str, make: Callable[[int], Message]) -> None:
        """To every neighbour but one; to those that are not synced, something to wait for."""
        for link in self._forwarding.brokers():
            if link.name == but:
                continue
            if link.is_synced:
                self._effects.append(Send(link.name, make(link.next_seq())))
            else:
                link.mark_unsent()

    def _spread_space(self, but: str, opened: bool) -> None:
        self._spread(but, lambda seq: Extend(seq, self._space_text, opened))

    def _open(self) -> None:
        """Everybody has compiled its clauses again: events may carry what is new."""
        self._set_open()
        self._spread_space(OPERATOR, opened=True)

    def _set_open(self) -> None:
        self._router.open_space = self.space
        self._records.append(Put("space", "", "opened", self._space_text))

    # --- Inspection -----------------------------------------------------------------------------------------------

    @property
    def space(self) -> Space:
        return self._router.space

    @property
    def open_space(self) -> Space:
        """What events may carry; behind `space` while that spreads."""
        return self._router.open_space

    @property
    def links(self) -> Mapping[str, Link]:
        return self._links

    @property
    def received(self) -> ReceivedTables:
        """What came over all links."""
        return self._forwarding.received

    def table_size(self) -> int:
        """How many subscriptions came over all links."""
        return len(self.received.subscriptions)

    def received_from(self, table: str, link: str) -> dict[str, str]:
        """What came over a link, as ids and clauses."""
        return {id: entry.where for id, entry in self.received.table(table).of_link(link).items()}

    def outbound(self, table: str, link: str) -> OutboundTable:
        """What was sent over a link, of subscriptions or of advertisements."""
        return self._links[link].outbound.table(table)

    def shared(self) -> dict[int, Any]:
        """What a copy has in common with this broker, for `copy.deepcopy`: what clauses mean, and coordinates."""
        meaning = [self.space, self.open_space, self._compile, self._read_space]
        meaning += [owner for each in (self._compile, self._read_space) if (owner := getattr(each, "__self__", None))]
        meaning += [self.space.label_codes, self.open_space.label_codes]
        return {id(each): each for each in meaning}

    def image(self) -> bytes:
        """What was worked out so far, for the next start (image.py)."""
        regions = {entry.where: entry.region for table in self.received for entry in table}
        decisions = {
            link.name: {name: table.decisions() for name, table in link.outbound.items()}
            for link in self._forwarding.brokers()
        }
        return write_image(self.space, regions, decisions)

    def similarity(self, id: str, hops: int, now: float) -> dict[str, float]:
        """Of a client's subscription, toward each advertisement: the share of its events that somebody else wants at
        the broker so many hops away, or nearer (the congestion paper's phi there). By the events of the window."""
        found = {
            each.id: self._router.distances.similarity(id, each.id, hops, now)
            for entry in self.received.subscriptions.of_id(id).values()
            for each in self.received.advertisements.meeting(entry.region)
        }
        return {id: share for id, share in found.items() if share is not None}

    def check_invariants(self) -> None:
        self._forwarding.check_invariants()
        for key in self._expiries:
            assert key[2] in self.received.table(key[0]).of_link(key[1])
        for link in self._links.values():
            assert link.settled <= link.sent_total
            assert not (link.is_synced and not link.is_met) and not (link.is_met and not link.is_up)


def _events_from(messages: Sequence[Message], start: int) -> list[Publish]:
    """The events that follow one another from a place on."""
    events: list[Publish] = []
    for message in messages[start:]:
        if type(message) is not Publish:
            break
        events.append(message)
    return events


def _as_the_peer_knows_them(entries: Mapping[str, Entry]) -> list[tuple[str, str, float | None]]:
    """Ids, clauses and leases, under the ids that the peer uses."""
    return [(entry.peer_id, entry.where, entry.expires) for entry in entries.values()]


def _compiled(where: str, space: Space) -> Region:
    return space.where(where)
