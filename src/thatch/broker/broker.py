"""The broker. `handle(message or messages, link, now)` is the way in, effects are the way out.

The rule that keeps it clean: no input or output, no clock, no thread, no iteration over sets. Its driver (the simulator
or the node) delivers what comes over each link in order, and runs the effects in order.

    message -> check it -> received tables (tables.py) -> offers (forwarding.py) -> active sets (outbound.py) -> effects
    event   -> the router (router.py) -> effects

Each kind of message is handled by one part of the broker:

    subscriptions, advertisements, leases   intake.py         a session begins and ends   sessions.py
    what a peer holds is compared           resync.py          a space grows               growth.py
    what has settled        settling.py, placeholders.py       an event                    router.py
    what was on its way has come            flushing.py

A wrong message of a client is refused before anything changes. A wrong message of a neighbour is its fault: it gets the
reason, and the link is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast, overload

from thatch.broker.flushing import Flushing
from thatch.broker.forwarding import Forwarding
from thatch.broker.greetings import Greetings
from thatch.broker.growth import Growth
from thatch.broker.handling import Handling
from thatch.broker.image import Decision
from thatch.broker.intake import Intake
from thatch.broker.link import Link
from thatch.broker.link_states import INPUTS, LinkAction
from thatch.broker.outbound import OutboundTable
from thatch.broker.own_space import Compile, ReadSpace
from thatch.broker.pages import CHARACTERS_MAX
from thatch.broker.placeholders import Placeholders
from thatch.broker.policy import Settings
from thatch.broker.restore import LiveRecords, image_of
from thatch.broker.resync import Resync
from thatch.broker.router import Router
from thatch.broker.sessions import Sessions
from thatch.broker.settling import Settling
from thatch.broker.statistics import Distances
from thatch.broker.stories import BYTES_MAX, ENTRIES_MAX, Stories, StoryEntry
from thatch.broker.tables import ReceivedTables
from thatch.errors import CallerError, PeerError, ThatchError, shown
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, check_name
from thatch.protocol.messages import (
    OPERATOR,
    Accepted,
    Advertise,
    Attached,
    Away,
    Digest,
    Durable,
    Effect,
    Extend,
    Flush,
    Flushed,
    Grow,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Page,
    Persisted,
    Publish,
    Refused,
    Replace,
    Retune,
    Sequenced,
    Settled,
    SettledExcept,
    Subscribe,
    Synced,
    Tick,
    Unadvertise,
    UnknownKind,
    Unsubscribe,
)
from thatch.protocol.records import RecordChange
from thatch.space.space import Space


class Broker:
    """One broker of an acyclic overlay.

    >>> broker = Broker("B1", Space.parse("price double not null 0..1000"), Settings(routing="subscriptions"))
    >>> effects = broker.handle(LinkUp(session=1, is_client=True), "ann", now=0.0)
    >>> hello = Hello("ann", 7, broker.space.to_json(), is_client=True)
    >>> effects = broker.handle(hello, "ann", now=0.0)
    >>> persist, *sends = broker.handle(Subscribe(7 << 32 | 1, "cheap", "price < 20"), "ann", now=0.0)
    >>> print(persist.records[0])
    SubscriptionRecord(peer=PeerKey(kind='client', name='ann'), id='B1/ann/cheap', where='price < 20', expires=None)
    >>> for send in sends:
    ...     print(send.link, send.message)
    ann Accepted(seq=30064771073)
    ann Settled(seq=30064771073)
    >>> broker.handle(Publish("ann:1", {"price": 5.0}), "ann", now=0.0)[0].ids
    ('cheap',)
    """

    def __init__(
        self,
        name: str,
        space: Space,
        settings: Settings | None = None,
        compile: Compile | None = None,
        read_space: ReadSpace = Space.from_json,
        page_characters: int = CHARACTERS_MAX,
    ) -> None:
        """`compile` makes a region of a clause, `read_space` a space of its JSON: brokers in one process may share the
        work. `page_characters`: of what a neighbour is sent in one message when they compare what it holds."""
        check_name(name)
        self.name = name
        settings = settings or Settings()
        self._stories: Stories | None = None
        self._handling = handling = Handling()
        self._forwarding = forwarding = Forwarding(space, settings)
        self._links, self.counts_of_gone = forwarding.links, forwarding.counts_of_gone
        self._router = Router(space, settings, forwarding)
        self._settling = Settling(forwarding, handling)
        self._flushing = Flushing(forwarding, handling)
        self._growth = growth = Growth(name, self._router, forwarding, self._settling, handling, compile, read_space)
        greetings = Greetings(name, forwarding, growth, handling)
        placeholders = Placeholders(forwarding, greetings, handling)
        self._intake = intake = Intake(name, forwarding, self._router, growth, placeholders, handling)
        self._resync = resync = Resync(name, forwarding, growth, intake, handling, page_characters)
        self._sessions = Sessions(
            name, forwarding, self._settling, self._flushing, growth, greetings, intake, resync, handling
        )
        self._handlers: dict[type, Callable[[Any, str], None]] = {
            Subscribe: intake.subscribe, Replace: intake.put, Advertise: intake.put,
            Unsubscribe: intake.unsubscribe, Unadvertise: intake.drop, Tick: intake.tick,
            Settled: placeholders.settle, SettledExcept: placeholders.settle_except, Away: placeholders.go_away,
            Flush: self._flushing.flush, Flushed: self._flushing.note, Durable: greetings.take_durable,
            Extend: growth.extend, Grow: growth.grow, Digest: resync.answer, Accepted: resync.accepted,
            Page: resync.take_page, Synced: resync.apply, Hello: self._sessions.hello,
            LinkUp: self._sessions.link_up, LinkDown: self._sessions.link_down, Refused: self._sessions.refused,
            Persisted: handling.note_persisted, Retune: self._retune, Attached: self._sessions.attach,
        }  # fmt: skip

    @classmethod
    def restored(
        cls,
        name: str,
        space: Space,
        records: Iterable[RecordChange],
        settings: Settings | None = None,
        compile: Compile | None = None,
        read_space: ReadSpace = Space.from_json,
        image: bytes | None = None,
        decided: Mapping[str, Decision] | None = None,
        page_characters: int = CHARACTERS_MAX,
    ) -> Broker:
        """As it was, from all its records in order. Its links are down; what it forwards is decided again, or known,
        and compared with what each neighbour holds when the link is up.

        `image`: what it knew at an earlier moment (image.py). `decided`: what was decided elsewhere about
        subscriptions, by the ids of the records. On each link one stays passive if all that its certificate names is
        active there; others are decided as when they come. Neither is used if the space has grown since: clauses
        then mean more."""
        live = LiveRecords(records, space, read_space)
        broker = cls(name, live.space, settings, compile, read_space, page_characters)
        known = live.known(image, decided)
        live.load(broker._growth, broker._sessions, broker._intake, broker._forwarding, known)
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
        if self._stories is not None:
            return self._handle_traced(message, link, now, self._stories)
        if type(message) is Publish and link != OPERATOR:
            effects: list[Effect] = []
            self._router.publish(message, link, now, effects)
            return effects
        if not isinstance(message, Message):
            return self._handle_all(message, link, now)
        self._handling.begin(now)
        if link == OPERATOR:
            if not isinstance(message, Extend | Tick | Persisted | Retune | Attached):
                raise CallerError(f"an operator has no {type(message).__name__}: it comes over a link")
        elif self._is_ignored(message, link):
            return []
        numbered = message if isinstance(message, Sequenced) and link != OPERATOR else None
        try:
            if numbered is not None and not self._links[link].takes(numbered):
                return []
            handler = self._handlers.get(type(message))
            if handler is None:
                raise _untaken(message)
            if numbered is None or self._sessions.admit(link):
                handler(message, link)
        except (PeerError, CallerError) as error:
            self._blame(message, link, error)
        self._intake.send_updates()
        if numbered is not None:
            self._settling.wait(numbered.seq, link)
        self._flushing.answer()
        self._settling.answer()
        self._growth.open_if_settled()
        return self._handling.take_effects()

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
                found.append([*self._handling.take_effects(), error])
        return found

    def _handle_traced(
        self, message: Message | Sequence[Message], link: str, now: float, stories: Stories
    ) -> list[Effect] | list[list[Effect | Exception]]:
        """As `handle`, each message by itself, and noted when it is done."""
        lists: list[list[Effect | Exception]] = []
        self._stories = None
        try:
            for each in [message] if isinstance(message, Message) else message:
                source = self._links.get(link)
                state = None if source is None else source.state
                (effects,) = self._handle_all([each], link, now)
                stories.note(each, link, state, effects, now, self.space)
                lists.append(effects)
        finally:
            self._stories = stories
        if not isinstance(message, Message):
            return lists
        alone: list[Effect] = []
        for effect in lists[0]:
            if isinstance(effect, Exception):
                raise effect
            alone.append(effect)
        return alone

    def _is_ignored(self, message: Message, link: str) -> bool:
        """Whether a message comes over an unknown link, or in a state in which it means nothing."""
        source, input = self._links.get(link), INPUTS.get(type(message))
        if source is None:
            return not isinstance(message, LinkUp)
        return input is not None and source.action(input) is LinkAction.IGNORE

    def _blame(self, message: Message, link: str, error: ThatchError) -> None:
        """A client's mistake is refused; one of a neighbour, or of the protocol, ends the session; the driver's own is
        raised."""
        source = self._links.get(link)
        if source is None or isinstance(message, LinkUp | LinkDown):
            raise error
        table = ADVERTISEMENTS if isinstance(message, Advertise | Unadvertise) else SUBSCRIPTIONS
        refused = Refused(getattr(message, "seq", 0), getattr(message, "id", ""), str(error), table, error.code)
        close = isinstance(error, PeerError) or not source.is_client
        self._handling.reject(link, refused, close)
        if close:
            source.hang_up()

    def _retune(self, message: Retune, link: str) -> None:
        settings = message.settings
        if link != OPERATOR or not isinstance(settings, Settings):
            raise PeerError("only the operator can retune a broker, with Settings")
        if not settings.sends_same_as(self.settings):
            raise CallerError(
                "a running broker can change how subscriptions leave (packed, theta), not what it forwards: restart it"
            )
        self._router.tune(settings)
        self._forwarding.retune(settings)

    # --- Stories ------------------------------------------------------------------------------------------------------

    def start_tracing(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        """Keep what is done about each message from now on, and why, up to these bounds (stories.py)."""
        self._stories = Stories(self.name, self._forwarding, entries_max, bytes_max)

    def stop_tracing(self) -> None:
        """Forget all stories."""
        self._stories = None

    def story(self, id: str) -> list[StoryEntry]:
        """What was done about a subscription or an advertisement (by the id that the overlay knows: `B1/ann/cheap`), an
        event or a link, and why, in order, since tracing was started.

        Raises:
            CallerError: Tracing is off.
        """
        if self._stories is None:
            raise CallerError(f"broker {self.name!r} is not traced: start_tracing() first")
        return self._stories.story(id)

    # --- Inspection: inspect.py has more ------------------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        return self._forwarding.settings

    @property
    def space(self) -> Space:
        return self._router.space

    @property
    def open_space(self) -> Space:
        """What events may carry; behind `space` while that spreads."""
        return self._router.open_space

    @property
    def page_characters(self) -> int:
        """Of what a neighbour is sent in one message when they compare what it holds."""
        return self._resync.page_characters

    @property
    def open_step(self) -> int:
        """How many steps of growing the space have opened."""
        return self._growth.open_step

    def check_clause(self, where: str) -> None:
        """Raise if a client cannot use a clause, or not yet."""
        self._growth.check_clause(where)

    @property
    def persisted(self) -> int:
        """The number of the last records that are on disk."""
        return self._handling.persisted

    @property
    def links(self) -> Mapping[str, Link]:
        return self._links

    @property
    def received(self) -> ReceivedTables:
        """What came over all links."""
        return self._forwarding.received

    @property
    def distances(self) -> Distances:
        """Of the subscriptions of its clients: what incremental pruning goes by."""
        return self._router.distances

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
        return self._growth.shared()

    def image(self) -> bytes:
        """What was worked out so far, for the next start (image.py)."""
        return image_of(self.space, self._forwarding)

    def check_invariants(self) -> None:
        self._forwarding.check_invariants()
        self._intake.check_invariants()
        for link in self._links.values():
            link.check_invariants()


def _untaken(message: Message) -> PeerError:
    if isinstance(message, UnknownKind):
        return PeerError(f"{shown(message.kind)} is not a kind of message that this broker knows", code="kind")
    return PeerError(f"a broker takes no {type(message).__name__}")


def _events_from(messages: Sequence[Message], start: int) -> list[Publish]:
    """The events that follow one another from a place on."""
    events: list[Publish] = []
    for message in messages[start:]:
        if type(message) is not Publish:
            break
        events.append(message)
    return events
