"""One neighbour of a broker: its session, what it was sent, and what has settled.

Its states are in link_states.py. What a neighbour should hold is kept up to date while its link is down. When the link
is back, the neighbour says what it holds (`Digest`), what differs is sent again, page by page (pages.py), and from then
on every change as it happens.

Settling. Everything sent over a link gets a number that only rises (`sent_total`), over all sessions. The neighbour
answers with the last one that has settled on its side. What came over link K has settled here when every *other* link
has settled all that was sent on it up to then; because the overlay is a tree no broker waits in a circle. Counting all
that was sent, not only what this message caused, makes one rule of many: a subscription that is held back waits for
those that cover it, an unsubscription for what it promoted.

Away. A neighbour that is not there for a long time is not waited for: what came over other links has then settled
*except* behind it. `excepted` is the mark for what a neighbour itself has settled with such exceptions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from thatch.broker.link_states import STEPS, LinkAction, LinkInput, LinkState
from thatch.broker.outbound import OutboundTables
from thatch.broker.pages import ReceivedPages, SentPages
from thatch.broker.pending import PendingAdvertisements
from thatch.broker.policy import Policy
from thatch.broker.waits import Missing, Waits, together
from thatch.errors import PeerError
from thatch.protocol.ids import event_prefix, placeholder_prefix
from thatch.protocol.messages import Hello, Sequenced, seq_of, session_of
from thatch.protocol.records import DURABLE_QUEUE, PeerKey
from thatch.protocol.versions import GROWTH_STEPS, LIMITS, VERSION_MAX, VERSION_MIN
from thatch.space.space import Space


class Admission:
    """How far a neighbour has come in. Its fields are for reading."""

    def __init__(self, is_new: bool) -> None:
        # A new one has compared nothing yet: nothing is offered to it, it has no record, and it counts for settling
        # only while it is connected. A bare one has never said what it wants: nothing can be kept for it.
        self.is_new = self.is_bare = is_new
        self.cycle = ""  # why it stays down: its link would close a cycle

    def admit(self) -> None:
        """It begins to compare what it holds: from now on it is a neighbour, whether it is there or away."""
        self.is_new = False

    def note_interest(self) -> None:
        """Something has come from it that events follow."""
        self.is_bare = False

    def note_cycle(self, reason: str) -> None:
        """It stays down until its link closes no cycle any more, or an operator decides; or, without a reason, it has
        come in."""
        self.cycle = reason


@dataclass(slots=True)
class Counts:
    """What went over a link, for inspection and metrics."""

    events_in: int = 0
    events_out: int = 0
    false_positives: int = 0  # events that came and that no subscription here or beyond wants
    events_lost: int = 0  # that should have gone out while the link was down
    entries_sent: int = 0  # subscriptions and advertisements
    entries_withdrawn: int = 0
    update_messages: int = 0  # that carried these

    def note_in(self, events: int = 1) -> None:
        self.events_in += events

    def note_out(self) -> None:
        self.events_out += 1

    def note_false_positive(self) -> None:
        self.false_positives += 1

    def note_lost(self) -> None:
        self.events_lost += 1

    def note_updates(self, messages: int, sent: int, withdrawn: int) -> None:
        self.update_messages += messages
        self.entries_sent += sent
        self.entries_withdrawn += withdrawn

    def note_all(self, other: Counts) -> None:
        """What went over another link counts here, too."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Link:
    """Its fields are for reading: its methods alone assign them."""

    def __init__(self, peer: PeerKey, space: Space, policy: Policy, owner: str) -> None:
        """`owner`: the broker that has this link."""
        self.peer, self.policy = peer, policy
        self.name, self.is_client = peer.name, peer.is_client
        self.prefix = event_prefix(self.name)  # of the ids of a client's events
        self.state = LinkState.DOWN
        # These follow from the state: events ask for them.
        self.is_up = self.is_met = self.is_listing = self.is_synced = False
        # The space of a neighbour that counts no steps, while it does not know ours: events go to it that it can read.
        self.behind: Space | None = None
        self.ahead: Space | None = None  # that of a neighbour that has opened more than this broker
        self.session = 0  # of what is sent
        self.digest_key = b""  # of the digest in this session
        self.version = VERSION_MIN  # of the protocol: what both sides speak
        self.members: tuple[str, ...] = ()  # brokers behind it
        self.members_version = VERSION_MIN  # what all of them speak, as far as is known
        self.admission = Admission(not self.is_client)
        self.stands_for = ""  # the lost neighbour in whose place it has come
        self.says_durable = peer.kind == DURABLE_QUEUE  # a durable subscription lives behind it
        self.is_durable = self.says_durable  # its events must survive crashes: also for what it may want
        self.peer_session = 0  # of what comes
        self.last_seq_received = 0  # in this session of the peer
        self.waiting = Waits()
        self.sent_count = 0  # in this session
        self.sent_total = 0
        self.settled = 0
        self.excepted = 0  # of `sent_total`: what has settled except behind some brokers
        self.is_away = False  # for so long that nobody waits for it
        self.is_there = False  # in this session, what it was sent at the beginning has settled, perhaps with exceptions
        self.pending = PendingAdvertisements(placeholder_prefix(owner, self.name))
        self.missing = Missing()  # brokers behind which something has not settled
        self._replaced_at = 0  # the first that was sent when preserved ones were last replaced
        self._synced_at = 0  # the count of `Synced` in this session
        self.sent_pages: SentPages | None = None  # while the neighbour is sent what differs
        self.received_pages = ReceivedPages()
        self._has_unsent = False  # something is counted in `sent_total` that `Synced` will settle
        self.announced: Hello | None = None  # how it was greeted last
        self.greeted_in = ""  # the space in which it was greeted first in this session
        self.outbound = OutboundTables(space, policy, owner, self.name)
        self.agrees = False  # on the partition into cells
        self.counts = Counts()

    # --- Its session --------------------------------------------------------------------------------------------------

    def action(self, input: LinkInput) -> LinkAction:
        """What an input does in the present state."""
        return STEPS[self.state][input].action

    def _step(self, input: LinkInput, action: LinkAction) -> None:
        """To the state that follows an input, with the action that its caller is about."""
        step = STEPS[self.state][input]
        assert step.action is action, f"{input.value} in state {self.state.value}: {step.action}, not {action}"
        self.state = step.next
        self.is_up = self.state is not LinkState.DOWN
        self.is_synced = self.state is LinkState.SYNCED
        self.is_listing = self.state is LinkState.LISTING
        self.is_met = self.is_synced or self.is_listing or self.state is LinkState.MET
        if self.state is LinkState.DOWN:
            self.is_there = False
            self.waiting.clear()
            if self.admission.is_new:  # nobody waits for it
                self.settled, self._has_unsent = self.sent_total, False

    def connect(self, session: int, digest_key: bytes) -> None:
        """The link is up: a session begins."""
        self._step(LinkInput.LINK_UP, LinkAction.CONNECT)
        self.agrees, self.greeted_in = False, ""
        self.session, self.sent_count, self._synced_at = session, 0, 0
        self.digest_key = digest_key
        self.sent_pages, self.received_pages = None, ReceivedPages()
        self.peer_session = self.last_seq_received = 0
        self.is_there = False
        self.waiting.clear()
        if self.admission.is_new:
            self.mark_unsent()

    def disconnect(self) -> None:
        """The link is down: the session has ended."""
        self._step(LinkInput.LINK_DOWN, LinkAction.END)

    def hang_up(self) -> None:
        """The peer broke a rule: the session ends from here."""
        self._step(LinkInput.FAULT, LinkAction.HANG_UP)

    def note_greeting(self, hello: Hello) -> None:
        """The peer is greeted so."""
        self.announced, self.greeted_in = hello, self.greeted_in or hello.space

    def meet(self, session: int, agrees: bool, space: Space | None, own: Space, version: int) -> None:
        """The peer has greeted, in a session of its own; it `agrees` on the partition into cells. The `space` of a
        neighbour may be behind our `own`, or ahead of it. Both sides speak this `version`."""
        self._step(LinkInput.HELLO, LinkAction.MEET)
        self.peer_session, self.last_seq_received = session, seq_of(session, 0)
        self.agrees, self.version = agrees, version
        is_behind = space is not None and version < GROWTH_STEPS and not space.extends(own)
        self.behind = space if is_behind else None
        self.ahead = None if space is None or own.extends(space) else space
        self.admission.note_cycle("")
        for table in self.outbound:
            table.set_limits(LIMITS[version])

    def takes(self, message: Sequenced) -> bool:
        """Whether a message is the next one of the peer's session; one that came before is ignored."""
        if session_of(message.seq) != self.peer_session or message.seq <= self.last_seq_received:
            return False
        if message.seq > self.last_seq_received + 1:
            raise PeerError(
                f"{message.seq - self.last_seq_received - 1} messages are missing before {type(message).__name__}",
                code="order",
            )
        self.last_seq_received = message.seq
        return True

    # --- What is known of the peer ------------------------------------------------------------------------------------

    def set_durable(self, is_durable: bool) -> bool:
        """What a neighbour says. Whether that is new."""
        is_new, self.says_durable = self.says_durable != is_durable, is_durable
        self.is_durable = is_durable or bool(self.pending.placeholders)
        return is_new

    def set_members(self, members: tuple[str, ...], version: int) -> None:
        """The brokers behind it, and the version that all of them speak."""
        self.members, self.members_version = members, max(VERSION_MIN, min(version, VERSION_MAX))

    def set_policy(self, policy: Policy) -> None:
        """Of how subscriptions leave; what is forwarded stays."""
        self.policy = policy

    def stand_for(self, lost: str) -> None:
        """It has come in the place of a neighbour that is lost; "": of none."""
        self.stands_for = lost

    def hears_from(self, source: str) -> bool:
        """Whether it is told what came over a link."""
        return source not in (self.name, self.stands_for)

    def end_agreement(self) -> None:
        """The partition into cells is of the space as it was."""
        self.agrees = False

    def is_ahead_of(self, space: Space) -> bool:
        """Whether the neighbour may send what cannot be read in this space."""
        if self.ahead is not None and space.extends(self.ahead):
            self.ahead = None
        return self.ahead is not None

    # --- What it is sent, and what has settled ------------------------------------------------------------------------

    def next_seq(self) -> int:
        """For a message that is sent now."""
        self.sent_count += 1
        self.sent_total += 1
        return seq_of(self.session, self.sent_count)

    def mark_unsent(self) -> None:
        """Something has to wait until the link is synced; however much it is, one number stands for it."""
        if not self._has_unsent:
            self._has_unsent = True
            self.sent_total += 1

    def begin_listing(self, pages: SentPages) -> None:
        """The neighbour has said what it holds: what differs is listed from now on."""
        self.behind = None  # it is told our space before the first page
        self._step(LinkInput.DIGEST, LinkAction.LIST)
        self.sent_pages = pages

    def sync(self) -> int:
        """All that differed has been sent. The seq of the `Synced` that says so: what settles it settles all that came
        before it, also while the link was down."""
        self._step(LinkInput.LISTED, LinkAction.SYNC)
        self.behind, self.sent_pages, self._has_unsent, self.is_away = None, None, False, False
        seq = self.next_seq()
        self._synced_at = self.sent_count
        return seq

    def settle(self, seq: int, missing: Missing | None = None) -> list[str]:
        """The neighbour says so; or, with what is `missing`, except behind these brokers: there, it holds what it must.
        Of an earlier session, or from before `Synced`, it means nothing. The advertisements that settle by that."""
        count = seq - seq_of(self.session, 0)
        if session_of(seq) != self.session or not self.is_synced or count < self._synced_at:
            return []
        if count > self.sent_count:
            raise PeerError(f"{self.name!r} says that message {count:,} has settled, of {self.sent_count:,} sent")
        self.is_there = True
        total = self.sent_total - (self.sent_count - count)
        if missing is None:
            self.settled = max(self.settled, total)
        elif total > self.excepted:
            self.excepted, self.missing = total, together([missing])
        return self.pending.settle(max(self.settled, self.excepted))

    def go_away(self) -> None:
        """It has not been synced for so long that nobody waits for it; if a session had begun, it ends."""
        if self.is_up:
            self.hang_up()
        self.is_away, self.missing = True, Missing((self.name,))

    @property
    def knows_all(self) -> bool:
        """Whether each side has said all that it has to say, and what was said here has settled. A link that is synced
        may not have heard yet what the neighbour advertises."""
        return self.is_synced and self.received_pages.is_whole and self.has_settled

    @property
    def has_settled(self) -> bool:
        """Whether all that was sent has settled."""
        return self.settled >= self.sent_total

    def replace_preserved(self, most: int, is_idle: bool) -> int:
        """As `OutboundTable.replace_preserved`; nothing more is sent before the neighbour has settled the last ones."""
        if (
            most <= 0
            or not self.outbound.subscriptions.preserved
            or self.settled < min(self._replaced_at, self.sent_total)
        ):
            return 0
        self._replaced_at = self.sent_total + 1
        return self.outbound.subscriptions.replace_preserved(most, is_idle)

    def check_invariants(self) -> None:
        assert self.settled <= self.sent_total and self.excepted <= self.sent_total
        assert all(total > max(self.settled, self.excepted) for total in self.pending.unsettled.values())
        assert not (self.is_synced and not self.is_met) and not (self.is_met and not self.is_up)
