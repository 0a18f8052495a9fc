"""What brokers say to one another, to their clients and to their driver. All frozen; codec.py writes them.

A clause travels as its text, never as coordinates: each broker compiles it in its own space, and again when the space
grows. Messages with a `seq` are sent in order over one link, each once: `seq` is the session of the link in its upper
bits and a count from 1 in the lower 32, so that a message that comes twice, or from before a cut, is known as such.
`Settled` answers the latest of them whose consequences are in place in the whole overlay behind the one who answers.

    Subscribe  ->            accepted: checked and on disk        settled: no matching event is missed from now on
               <- Accepted                              <- Settled
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from thatch.protocol.records import RecordChange
from thatch.protocol.versions import VERSION_MIN

SESSION_SHIFT = 32
SESSION_MAX = 2 ** (63 - SESSION_SHIFT) - 1
SESSION_EPOCH = 1_700_000_000  # sessions count seconds from here, so that they rise over restarts

# Whatever decodes a message refuses other numbers: stores, and readers in other languages, have 64 bits with a sign.
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
SessionNumber = Annotated[int, msgspec.Meta(ge=1, le=SESSION_MAX)]
CellNumber = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
DigestKey = Annotated[bytes, msgspec.Meta(max_length=64)]  # what BLAKE2b takes


def seq_of(session: int, count: int) -> int:
    return session << SESSION_SHIFT | count


def session_of(seq: int) -> int:
    return seq >> SESSION_SHIFT


def next_session(last: int, now: float) -> int:
    """The number of the session that follows another one of the same peer, or of an earlier life of it. A clock that is
    far ahead leaves room for more.

    >>> next_session(0, SESSION_EPOCH + 5.5), next_session(5, SESSION_EPOCH + 5.9), next_session(0, 1e12) < SESSION_MAX
    (5, 6, True)
    """
    return max(last + 1, min(int(now) - SESSION_EPOCH, SESSION_MAX // 2))


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Anything that `Broker.handle` takes. Fields that a reader does not know come last, and are ignored: a field is
    added only at the end, and only if a reader that ignores it does the same or something wider. What was added has an
    empty default (0, "", b"", (), {}), and is written only if it is not empty."""

    added: ClassVar[Mapping[str, int]] = {}  # fields that came later than the kind, with their version


class Sequenced(Message, frozen=True, array_like=True):
    """Sent over a link in order, and settled."""

    seq: Number


# --- Between brokers and clients, and between brokers ----------------------------------------------------------------


class Subscribe(Sequenced, frozen=True, tag="Subscribe", array_like=True):
    """I want these events. Again under a known id: another region, or a lease that goes on."""

    id: str
    where: str
    expires: float | None = None  # a lease: seconds since 1970
    retracts: tuple[str, ...] = ()  # ids that it takes back, in the same step (packed)
    cells: tuple[int, ...] = ()  # the ranges of its cells, flat, where both sides agree on a partition


class Replace(Sequenced, frozen=True, tag="Replace", array_like=True):
    """A known subscription wants other events: the new region is in place before the old one goes."""

    id: str
    where: str


class Unsubscribe(Sequenced, frozen=True, tag="Unsubscribe", array_like=True):
    """I want these events no longer. Between brokers it may bring more, all of it done in one step."""

    id: str
    also: tuple[str, ...] = ()  # other ids that leave with it (packed)
    replacements: dict[str, str] = {}  # id -> clause: what is to be known in their place (packed)
    prune: dict[str, dict[str, int]] = {}  # id -> advertisement -> hops that it is still to be taken back along
    # (incremental); of an id that is not in it, all the way


class Advertise(Sequenced, frozen=True, tag="Advertise", array_like=True):
    """I shall publish in this region."""

    id: str
    where: str
    expires: float | None = None


class Unadvertise(Sequenced, frozen=True, tag="Unadvertise", array_like=True):
    id: str


class Extend(Sequenced, frozen=True, tag="Extend", array_like=True):
    """The space has grown: a nullable attribute more, or values at the end of an enum. Everyone compiles its clauses
    again; when that has settled it is said again with `opened`, and from then on events may carry what is new."""

    space: str  # JSON
    opened: bool = False


class Grow(Sequenced, frozen=True, tag="G", array_like=True):
    """A step by which the space grows: proposed by a broker, or opened, for events and clauses. Of two proposals of one
    step that of the lower name wins. Instead of `Extend`, between brokers that count steps."""

    step: Number
    origin: str  # the broker that proposed it
    space: str  # JSON
    opened: bool = False


class Digest(Sequenced, frozen=True, tag="Digest", array_like=True):
    """What I hold of what you sent me, hashed into `size` buckets a table. The answer is `Synced`."""

    added: ClassVar[Mapping[str, int]] = {"key": 4, "subscription_counts": 4, "advertisement_counts": 4}

    size: Number
    subscriptions: tuple[int, ...]
    advertisements: tuple[int, ...]
    key: DigestKey = b""  # of the hashes
    subscription_counts: tuple[int, ...] = ()  # entries of each bucket, if there is a key
    advertisement_counts: tuple[int, ...] = ()


Listing = dict[int, dict[str, tuple[str, float | None]]]  # bucket -> id -> clause, lease


class Page(Sequenced, frozen=True, tag="P", array_like=True):
    """Of what differed, a part: hold this, too. What an id had stays in force beside it, and nothing goes, until
    `Synced`, which is the last page. The next one is sent when `Accepted` has answered this one."""

    subscriptions: dict[str, str] = {}  # id -> clause
    advertisements: dict[str, str] = {}


class Synced(Sequenced, frozen=True, tag="Synced", array_like=True):
    """In these buckets, which differed, hold exactly this and what pages have listed. What goes or narrows does so in
    one step, so that nothing is missed half-way."""

    size: Number
    subscriptions: Listing = {}
    advertisements: Listing = {}


class Durable(Sequenced, frozen=True, tag="D", array_like=True):
    """Whether somebody on this side of the link is to get its events whatever crashes. A subscription that follows has
    not settled before every broker on the way knows it."""

    is_durable: bool


class Flush(Sequenced, frozen=True, tag="Flush", array_like=True):
    """Every event that was on its way when this was sent is to arrive before the answer, which is `Flushed`."""


class Publish(Message, frozen=True, tag="Publish", array_like=True):
    """An event: values by attribute, and a payload that nobody but the subscriber reads. Its id begins with the name
    of its publisher and a colon, so that nobody can pass an event off as a copy of another's."""

    id: str
    event: dict[str, Any]
    payload: bytes = b""
    distance: Number = 0  # hops since the last broker at which more than one subscription wanted it (incremental)
    count: Number = 0  # such brokers so far
    cell: CellNumber = -1  # its number, where both sides agree on a partition


class Hello(Message, frozen=True, tag="Hello", array_like=True):
    """The first word on a link, and again whenever `members`, `durable` or `members_version` changes."""

    added: ClassVar[Mapping[str, int]] = {"version_max": 3, "members_version": 3, "capabilities": 3}

    name: str
    session: SessionNumber
    space: str  # JSON
    is_client: bool = False
    version: Number = VERSION_MIN  # the lowest that it speaks
    members: tuple[str, ...] = ()  # the brokers on this side of the link: one on both sides would close a cycle
    durable: bool = False  # somebody on this side is to get its events whatever crashes
    partition: str = ""  # the id of the partition into cells, if there is one
    version_max: Number = 0  # the highest that it speaks; 0: only `version`
    members_version: Number = 0  # the highest that all `members` speak: what every hop must keep needs them all
    capabilities: dict[str, Any] = {}  # by name; versions.py has those that are known


class Accepted(Message, frozen=True, tag="Accepted", array_like=True):
    """Checked and on disk."""

    seq: Number


class Settled(Message, frozen=True, tag="Settled", array_like=True):
    """This and all before it have settled."""

    seq: Number


class Flushed(Message, frozen=True, tag="F", array_like=True):
    """Every event that was on its way when this `Flush` was sent has arrived. It travels behind these events, and
    behind every message that was said before it."""

    seq: Number


class SettledExcept(Message, frozen=True, tag="except", array_like=True):
    """This and all before it have settled, except behind some brokers that are away. Events that they may want are kept
    for them. `Settled` follows when it has settled behind them, too. It says nothing about a `Flush`."""

    seq: Number  # 0 if it is about a durable subscription
    brokers: tuple[str, ...] = ()  # the nearest one of each part that is missing, some of them
    others: Number = 0  # how many more there are
    id: str = ""  # of the durable subscription


class Refused(Message, frozen=True, tag="Refused", array_like=True):
    """What you said is refused, and nothing was changed. `seq` is 0 for an event, which `id` names; `table` says of
    which kind the id is. With the code "history", `id` is the store of the one who refuses."""

    added: ClassVar[Mapping[str, int]] = {"code": 3}

    seq: Number
    id: str
    reason: str
    table: str = ""
    code: str = ""  # for programs: errors.py has them all


class UnknownKind(Message, frozen=True, tag="?", array_like=True):
    """In place of a message that must be understood and is of a kind that this side does not know. It never travels."""

    seq: int  # 0 if it has none
    kind: str


# --- From the driver -------------------------------------------------------------------------------------------------

OPERATOR = ""  # the link of the driver


class LinkUp(Message, frozen=True, tag="LinkUp", array_like=True):
    """The link is connected. Sessions of one broker only rise, also over its restarts."""

    added: ClassVar[Mapping[str, int]] = {"key": 4}

    session: int
    is_client: bool = False
    durable: bool = False  # a client whose events are kept until it has them
    key: DigestKey = b""  # of the digest of this session, which nobody can guess


class LinkDown(Message, frozen=True, tag="LinkDown", array_like=True):
    """The link is cut. `forget`: for good, and whatever came over it is withdrawn."""

    forget: bool = False


class Attached(Message, frozen=True, tag="Attached", array_like=True):
    """An operator has a neighbour come in the place of one that is lost, from now on; "" ends that."""

    link: str
    instead_of: str


class Retune(Message, frozen=True, tag="Retune", array_like=True):
    """Other settings from now on, of those that change nothing of what was sent: packing, theta and its history."""

    settings: Any  # broker.Settings; the driver's own, it never travels


class Away(Message, frozen=True, tag="Away", array_like=True):
    """The neighbour has been away for so long that nobody waits for it any more."""


class Tick(Message, frozen=True, tag="Tick", array_like=True):
    """Time passes: leases end."""

    added: ClassVar[Mapping[str, int]] = {"ahead": 5}

    ahead: float = 0.0  # the clock by which leases are promised, of the one whose `now` comes with messages


class Persisted(Message, frozen=True, tag="Persisted", array_like=True):
    """The records of `Persist` up to this number are on disk."""

    number: int


# --- What the driver is asked to do, in this order -------------------------------------------------------------------


class Send(msgspec.Struct, frozen=True):
    link: str
    message: Message
    suspected: bool = False  # an event that nobody has asked for yet: of what is kept it goes first


class Deliver(msgspec.Struct, frozen=True):
    """To a client: an event, and which of its subscriptions want it."""

    link: str
    event: Publish
    ids: tuple[str, ...]


class Persist(msgspec.Struct, frozen=True):
    """Keep these records. A barrier: what follows waits until they are on disk."""

    number: int
    records: tuple[RecordChange, ...]


class Reject(msgspec.Struct, frozen=True):
    """The peer on a link broke a rule: tell it why, and hang up if `close`."""

    link: str
    refused: Refused
    close: bool = False


Effect = Send | Deliver | Persist | Reject
