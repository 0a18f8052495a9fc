"""One neighbour of a broker: its session, what it was told, and what has settled.

    down --LinkUp--> greeting --Hello--> met --Digest--> synced
      ^-------------------LinkDown-----------------------/

Told is kept up to date while a link is down. When it is back, the neighbour says what it holds (`Digest`), what differs
is told again, and from then on every change as it happens. The two directions of a link are synced independently.

Settling. Everything told over a link gets a number that only rises (`posted`), over all sessions. The neighbour answers
with the last one that has settled on its side. What came over link K has settled here when every *other* link has
settled all that was posted on it up to then; because the overlay is a tree nobody waits in a circle. Counting all that
was posted, not only what this message caused, makes one rule of many: a subscription that is held back waits for those
that cover it, an unsubscription for what it promoted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from thatch.broker.outbound import ToldTable
from thatch.broker.policy import Policy
from thatch.broker.tables import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.errors import PeerError
from thatch.protocol.messages import Hello, seq_of, session_of
from thatch.space.space import Space


@dataclass(slots=True)
class Waiting:
    """A message that has been handled and has not settled: until what had been posted elsewhere has."""

    seq: int
    until: dict[str, int]  # link -> posted


@dataclass(slots=True)
class Counts:
    """Of messages over a link, for whoever looks at the overlay."""

    events_in: int = 0
    events_out: int = 0
    unwanted_in: int = 0  # events that came and that nobody here or beyond wants: forwarded in vain
    events_lost: int = 0  # that should have gone out while the link was down
    told: int = 0
    withdrawn: int = 0
    messages: int = 0  # that told or withdrew


class Link:
    def __init__(self, name: str, is_client: bool, space: Space, policy: Policy, owner: str) -> None:
        """`owner`: the broker of which it is a link."""
        self.name, self.is_client, self.policy = name, is_client, policy
        self.prefix = f"{name}:"  # of the ids of a client's events
        self.is_up = self.is_met = self.is_synced = False
        self.behind: Space | None = None  # the neighbour's space, while it does not know ours
        self.session = 0  # of what is sent
        self.members: tuple[str, ...] = ()  # brokers behind it
        self.is_durable = False  # somebody behind it is to get its events whatever crashes
        self.peer_session = 0  # of what comes
        self.heard = 0  # the seq that came last
        self.waiting: deque[Waiting] = deque()
        self.sent_count = 0  # in this session
        self.posted = 0
        self.settled = 0
        self._replaced_at = 0  # the first that was posted when preserved ones were replaced last
        self._synced_at = 0  # the count of `Synced` in this session
        self._owes = False  # something is posted that `Synced` will settle
        self.announced: Hello | None = None  # how it was greeted last
        self.subscriptions = ToldTable(space, policy, merged_as=f"{owner}/~{name}/")
        self.advertisements = ToldTable(space, policy)
        self.agrees = False  # on the partition into cells
        self.counts = Counts()

    def tables(self) -> tuple[tuple[str, ToldTable], tuple[str, ToldTable]]:
        return (SUBSCRIPTIONS, self.subscriptions), (ADVERTISEMENTS, self.advertisements)

    def table(self, name: str) -> ToldTable:
        return self.subscriptions if name == SUBSCRIPTIONS else self.advertisements

    def connect(self, session: int) -> None:
        self.is_up, self.is_met, self.is_synced, self.agrees = True, False, False, False
        self.session, self.sent_count, self._synced_at = session, 0, 0
        self.peer_session = self.heard = 0
        self.waiting.clear()

    def disconnect(self) -> None:
        self.is_up = self.is_met = self.is_synced = False
        self.waiting.clear()

    def next_seq(self) -> int:
        """For a message that is told now."""
        self.sent_count += 1
        self.posted += 1
        return seq_of(self.session, self.sent_count)

    def owe(self) -> None:
        """Something is to be told that waits until the link is synced; however much it is, one number stands for it."""
        if not self._owes:
            self._owes = True
            self.posted += 1

    def sync(self) -> int:
        """All that differed has been sent. The seq of the `Synced` that says so: what settles it, settles whatever
        was posted before it, also while the link was down."""
        self.is_synced, self.behind, self._owes = True, None, False
        for _, table in self.tables():
            table.sent, table.changed = table.all_told(), {}
        seq = self.next_seq()
        self._synced_at = self.sent_count
        return seq

    def settle(self, seq: int) -> None:
        """The neighbour says so. Of an earlier session, or from before `Synced`, it means nothing."""
        count = seq - seq_of(self.session, 0)
        if session_of(seq) != self.session or not self.is_synced or count < self._synced_at:
            return
        if count > self.sent_count:
            raise PeerError(f"{self.name!r} says that message {count:,} has settled, of {self.sent_count:,} sent")
        self.settled = max(self.settled, self.posted - (self.sent_count - count))

    def replace_preserved(self, most: int, is_idle: bool) -> int:
        """As `ToldTable.replace_preserved`; nothing more is told before the neighbour has settled the last ones."""
        if most <= 0 or not self.subscriptions.preserved or self.settled < min(self._replaced_at, self.posted):
            return 0
        self._replaced_at = self.posted + 1
        return self.subscriptions.replace_preserved(most, is_idle)

    def wait(self, seq: int, until: dict[str, int]) -> None:
        if self.waiting and self.waiting[-1].until == until:
            self.waiting[-1].seq = seq
        else:
            self.waiting.append(Waiting(seq, until))

    def take_settled(self, links: dict[str, Link]) -> int | None:
        """The last message from here that has settled by now, if there is a new one."""
        last = None
        while self.waiting:
            first = self.waiting[0]
            for name in [name for name, posted in first.until.items() if links[name].settled >= posted]:
                del first.until[name]
            if first.until:
                break
            last = first.seq
            self.waiting.popleft()
        return last
