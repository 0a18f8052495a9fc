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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from thatch.broker.policy import Policy, Worth
from thatch.broker.tables import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.cover import Change, RelationGraph, Told
from thatch.errors import PeerError
from thatch.messages import seq_of, session_of
from thatch.region import Region
from thatch.space import Space


class Decision(NamedTuple):
    """What was decided elsewhere about a subscription, by its clause: `thatch.spark.reduce` does so of millions."""

    where: str
    certificate: tuple[str, ...] | None  # None: it is told


class ToldTable:
    """Of one table: what a neighbour is to know, as the policy tells it."""

    def __init__(self, space: Space, policy: Policy) -> None:
        self.told: Told | RelationGraph = policy.told(space)
        self.wheres: dict[str, str] = {}  # of all that it is to know, told or held back
        self.sent: dict[str, str] = {}  # what the neighbour holds, as far as it was sent
        self.changed: dict[str, None] = {}  # ids to look at when the message has been handled
        self.aliases: dict[str, tuple[str, ...]] = {}  # the ids that an id is offered under, where it is not one
        self.decided: Mapping[str, Decision] = {}  # while a broker is constructed
        self._worth = Worth(policy.pays_from)

    def offer(self, id: str, where: str | None, region: Region | None) -> None:
        """The neighbour is to know an id with this region; None: it is not to know it."""
        held = self.wheres.get(id)
        if where == held:
            return
        if where is None or region is None:
            del self.wheres[id]
            change = self.told.unsubscribe(id)
        else:
            self.wheres[id] = where
            change = self.told.replace(id, region) if held is not None else self._subscribe(id, region)
        self._note(change)
        self.changed[id] = None

    def offer_all(self, id: str, wanted: dict[str, tuple[str, Region]]) -> None:
        """The neighbour is to know an id under these ids, with these regions, and under no other."""
        for each in self.aliases.pop(id, (id,)):
            if each not in wanted:
                self.offer(each, None, None)
        for each, (where, region) in wanted.items():
            self.offer(each, where, region)
        if len(wanted) > 1:
            self.aliases[id] = tuple(wanted)

    def _subscribe(self, id: str, region: Region) -> Change:
        if isinstance(self.told, Told):
            known = self.decided.get(id)
            if known is not None and known.where == self.wheres[id]:
                if known.certificate is None:
                    return self.told.subscribe(id, region, check=False)
                if all(map(self._is_told_as_decided, known.certificate)):
                    return self.told.hold(id, region, known.certificate)
            check = self._worth.next()
            change = self.told.subscribe(id, region, check, witness=False)
            if not check:
                return change
        else:
            change = self.told.subscribe(id, region)
        self._worth.saw(not change.forward)
        return change

    def _is_told_as_decided(self, id: str) -> bool:
        """Whether one that a certificate names is told here, with the clause that it had then."""
        known = self.decided.get(id)
        return known is not None and known.where == self.wheres.get(id) and self.told.is_active(id)

    def _note(self, change: Change) -> None:
        self.changed.update(dict.fromkeys(change.forward))
        self.changed.update(dict.fromkeys(change.withdraw))

    def net(self) -> tuple[list[tuple[str, str, str | None]], list[str]]:
        """What to send: (id, where, where before) to tell, ids to withdraw. Nothing that came and went since then."""
        tell, withdraw = [], []
        for id in self.changed:
            now, before = self.told_where(id), self.sent.get(id)
            if now is not None and now != before:
                tell.append((id, now, before))
                self.sent[id] = now
            elif now is None and before is not None:
                withdraw.append(id)
                del self.sent[id]
        self.changed = {}
        return tell, withdraw

    def told_where(self, id: str) -> str | None:
        return self.wheres[id] if id in self.wheres and self.told.is_active(id) else None

    def all_told(self) -> dict[str, str]:
        return {id: self.wheres[id] for id in self.told.active}

    def move(self, space: Space, regions: dict[str, Region]) -> None:
        """Into another space: what is no longer proven to be covered is told."""
        self.told, change = self.told.recompiled(space, {id: regions[where] for id, where in self.wheres.items()})
        self._note(change)

    def check_invariants(self) -> None:
        self.told.check_invariants()
        assert len(self.told) == len(self.wheres) and all(id in self.told for id in self.wheres)


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


class Link:
    def __init__(self, name: str, is_client: bool, space: Space, policy: Policy) -> None:
        self.name, self.is_client, self.policy = name, is_client, policy
        self.is_up = self.is_met = self.is_synced = False
        self.behind: Space | None = None  # the neighbour's space, while it does not know ours
        self.session = 0  # of what is sent
        self.members: tuple[str, ...] = ()  # brokers behind it
        self.peer_session = 0  # of what comes
        self.heard = 0  # the seq that came last
        self.waiting: deque[Waiting] = deque()
        self.sent_count = 0  # in this session
        self.posted = 0
        self.settled = 0
        self._synced_at = 0  # the count of `Synced` in this session
        self._owes = False  # something is posted that `Synced` will settle
        self.announced: tuple[str, ...] = ()  # the members that it was told of
        self.subscriptions = ToldTable(space, policy)
        self.advertisements = ToldTable(space, policy)
        self.counts = Counts()

    def tables(self) -> tuple[tuple[str, ToldTable], tuple[str, ToldTable]]:
        return (SUBSCRIPTIONS, self.subscriptions), (ADVERTISEMENTS, self.advertisements)

    def table(self, name: str) -> ToldTable:
        return self.subscriptions if name == SUBSCRIPTIONS else self.advertisements

    def connect(self, session: int) -> None:
        self.is_up, self.is_met, self.is_synced = True, False, False
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
