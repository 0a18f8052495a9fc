"""What nodes and clients say in addition to the messages of the broker, and frames: many messages in one.

A frame is a MessagePack array of messages. It is put together from messages that are bytes already, so that an event
for fifty subscribers is encoded once. A message is an array, too: its tag, then its fields.

A tag is never used for another kind. Its first letter says what a reader does that does not know it: a kind with a
small letter may be ignored, and is skipped; it is never numbered. A kind with a capital must be understood: the message
is refused with its sequence number (its first field, if that is a number), and the session ends.

    client  Hello, Subscribe, …, Publish, DurableSubscribe ▶ node     events by number: `Published` says how many of
            ◀ Event, DurableEvent, Published, Accepted …              this connection are dealt with
            Ack ▶                                                     up to this number of a durable subscription
    node    Hello, Resume, Forward, Forward … ▶ node                  `Received`: up to this number, and on disk
            ◀ Received                                                if it has to be
            Returned ▶                                                to a node that began again in the past
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Annotated, ClassVar, cast, get_args

import msgspec
from msgspec import field

from thatch.errors import PeerError
from thatch.protocol.codec import BYTES_MAX, Codec, OnTheWire, encode
from thatch.protocol.messages import Message, Number, Publish, UnknownKind
from thatch.protocol.versions import LIMITS, VERSION_MIN
from thatch.space.space import Space

StoreId = Annotated[str, msgspec.Meta(max_length=64)]  # also of a life of a store
Ordinal = Annotated[int, msgspec.Meta(ge=0, le=2**23 - 1)]  # of a life: the upper bits of its numbers
Label = Annotated[str, msgspec.Meta(max_length=1024)]  # the name of a broker, or of a durable subscription
Instant = Annotated[float, msgspec.Meta(ge=0.0, le=253_402_300_799.0)]  # seconds since 1970, to the year 9999


class NodeMessage(Message, frozen=True, array_like=True):
    """A message that the node itself takes or sends, not its broker."""


# --- Between a client and its node -----------------------------------------------------------------------------------


class Event(NodeMessage, frozen=True, tag="Event", array_like=True):
    """An event, and which plain subscriptions of the client want it."""

    ids: tuple[str, ...]
    event: Publish


class DurableSubscribe(NodeMessage, frozen=True, tag="Keep", array_like=True):
    """A durable subscription: its events are kept while the client is away, up to a limit. Said again after every
    reconnection: from then on its events come. The answers are `DurableStatus`."""

    id: str
    where: str
    bytes_max: Number
    seconds_max: float


class DurableCancel(NodeMessage, frozen=True, tag="Unkeep", array_like=True):
    """A durable subscription is no longer wanted, and what is kept for it neither."""

    id: str


class DurableStatus(NodeMessage, frozen=True, tag="Standing", array_like=True):
    """How a durable subscription stands: "accepted" (on disk), "settled", "gone", or "refused" for a reason."""

    added: ClassVar[Mapping[str, int]] = {"code": 3, "url": 5}

    id: str
    where: str
    state: str
    reason: str = ""
    code: str = ""  # of the reason: errors.py has them all
    url: str = ""  # where it is now, if it was moved


class DurableEvent(NodeMessage, frozen=True, tag="Kept", array_like=True):
    """An event of a durable subscription. Numbers rise, with gaps."""

    id: str
    number: Number
    event: Publish


class Ack(NodeMessage, frozen=True, tag="Done", array_like=True):
    """The events of a durable subscription up to this number need not be kept any longer."""

    added: ClassVar[Mapping[str, int]] = {"life": 4}

    id: str
    number: Number
    life: str = ""  # of the node, in the session in which the event came


class Published(NodeMessage, frozen=True, tag="Published", array_like=True):
    """So many events of this connection have been dealt with: routed, on disk if they have to be, or refused."""

    count: Number


class Notice(NodeMessage, frozen=True, tag="Notice", array_like=True):
    """Something was lost. `id` is a durable subscription whose limit was hit, or empty for plain ones."""

    id: str
    count: Number  # of events
    reason: str


class Lost(NodeMessage, frozen=True, tag="lost", array_like=True):
    """Among the events of a durable subscription some are missing, which a limit has cost: at most so many. It has a
    number, and is acknowledged, as an event."""

    id: str
    number: Number
    count: Number
    since: Instant  # when the first of them came to the sender
    until: Instant  # when the last one did
    sender: Label  # the broker whose limit it was; empty: several
    receiver: Label  # what it had kept them for: a neighbour, or a durable subscription


# --- Between nodes ---------------------------------------------------------------------------------------------------


class Resume(NodeMessage, frozen=True, tag="Resume", array_like=True):
    """After Hello: which store I am, its lives, and up to which number I hold what came from each of yours. `of` and
    `received` say the latter for version 3: up to a number of your store `of`."""

    added: ClassVar[Mapping[str, int]] = dict.fromkeys(
        ("lives", "restored", "holds", "known", "confirmed", "asks", "since", "until"), 4
    )

    store: StoreId
    of: StoreId
    received: Number
    lives: dict[Ordinal, StoreId] = field(default_factory=dict)  # by ordinal: what numbers have in their upper bits
    restored: tuple[StoreId, ...] = ()  # marks of my restores: each admits me once
    holds: dict[StoreId, Number] = field(
        default_factory=dict
    )  # by life of yours: up to which number it is on disk here
    known: StoreId = ""  # your last life that is on disk here
    confirmed: dict[StoreId, Number] = field(default_factory=dict)  # by life of mine: up to which number it is on yours
    asks: StoreId = ""  # a life of mine that began in the past: return the interest that it may not know
    since: Instant = 0.0  # it knows nothing of what happened from here
    until: Instant = 0.0  # to here: seconds since 1970


class Forward(NodeMessage, frozen=True, tag="Forward", array_like=True):
    number: Number
    event: Publish


class Gap(NodeMessage, frozen=True, tag="gap", array_like=True):
    """Among the events before this number some are missing, which a limit has cost. It is acknowledged as an event."""

    number: Number
    count: Number
    since: Instant
    until: Instant
    sender: Label
    receiver: Label


class Received(NodeMessage, frozen=True, tag="Received", array_like=True):
    """I hold what came up to this number."""

    added: ClassVar[Mapping[str, int]] = {"committed": 4}

    number: Number
    committed: Number = 0  # up to which it is on disk, whatever crashes


class Returned(NodeMessage, frozen=True, tag="Returned", array_like=True):
    """Interest that came from you, before you began again in the past: `id` and clause of subscriptions of your own
    durable clients. Sent before any event, if you have asked."""

    subscriptions: dict[str, str]
    life: str = ""  # that has asked; empty: more follows


class Refill(NodeMessage, frozen=True, tag="R", array_like=True):
    """What a durable subscription of this client kept at another broker, from which it was moved here: event by event,
    and then none. It comes before all that is kept here. `Published` counts it."""

    id: str
    place: Number  # 1, 2, … and from 1 again
    event: Publish | Gap | None = None

    @property
    def name(self) -> str:
        """What a refusal calls it."""
        return f"{self.id} {self.place}"


FromClient = OnTheWire | DurableSubscribe | DurableCancel | Ack | Refill
FromNode = OnTheWire | Event | DurableEvent | DurableStatus | Published | Notice | Lost
FromNeighbour = OnTheWire | Resume | Forward | Gap | Received | Returned

FRAME_MAX = LIMITS[VERSION_MIN].client_frame_bytes_max
EVENT_MAX = LIMITS[VERSION_MIN].event_bytes_max
TAG_SIZE_MAX = 64  # characters

# Why a WebSocket is closed: codes of RFC 6455, and one of our own.
CLOSED_FOR_GOING, CLOSED_FOR_FAULT, CLOSED_FOR_SIZE, CLOSED_FOR_ANOTHER = 1001, 1008, 1009, 4001


class Frames:
    """Reads frames of one kind of peer, in a space."""

    def __init__(
        self,
        space: Space,
        kind: object,
        bytes_max: int = BYTES_MAX,
        skipped: Callable[[str], None] = lambda tag: None,
    ) -> None:
        """`skipped` is called with the tag of each message that is skipped."""
        self._codec = Codec(space)
        self._decoder: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(
            cast("type[list[Message]]", list[kind])  # type: ignore[valid-type]
        )
        self._one: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(cast("type[Message]", kind))
        self._tags = frozenset(each.__struct_config__.tag for each in get_args(kind))
        self._bytes_max, self._skipped = bytes_max, skipped

    def decode(self, data: bytes) -> list[Message]:
        """The messages of a frame; those of unknown kinds are skipped, or an `UnknownKind` stands in their place. Bytes
        that are no frame of this protocol are the peer's fault."""
        if len(data) > self._bytes_max:
            raise PeerError(f"a frame of {len(data):,} bytes; at most {self._bytes_max:,} are read", code="limit")
        try:
            try:
                messages = self._decoder.decode(data)
            except msgspec.ValidationError:
                messages = [each for part in _PARTS.decode(data) if (each := self._known(part)) is not None]
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise PeerError(f"not a frame of this protocol ({len(data):,} bytes)") from error
        return [self._typed(each) for each in messages] if self._codec.has_texts else messages

    def _known(self, part: msgspec.Raw) -> Message | None:
        """A message; None if it is skipped."""
        try:
            return self._one.decode(part)
        except msgspec.ValidationError:
            tag, *fields = _PARTS.decode(part) or [msgspec.Raw(b"\xc0")]
            name = _TAG.decode(tag)
            if name in self._tags:
                raise
            if is_ignorable(name):
                self._skipped(name)
                return None
            return UnknownKind(_number(fields[0]) if fields else 0, name)

    def _typed(self, message: Message) -> Message:
        if isinstance(message, Publish):
            return self._codec.typed(message)
        if isinstance(message, Event | DurableEvent | Forward | Refill) and isinstance(message.event, Publish):
            return msgspec.structs.replace(message, event=self._codec.typed(message.event))
        return message


_PARTS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_TAG = msgspec.msgpack.Decoder(Annotated[str, msgspec.Meta(min_length=1, max_length=TAG_SIZE_MAX)])
_NUMBER = msgspec.msgpack.Decoder(int)


def is_ignorable(tag: str) -> bool:
    """Whether a reader that does not know a kind skips it."""
    return "a" <= tag[:1] <= "z"


def _number(field: msgspec.Raw) -> int:
    """A sequence number; 0 if a field is none."""
    try:
        return max(0, _NUMBER.decode(field))
    except msgspec.ValidationError:
        return 0


def frame(messages: Iterable[bytes]) -> bytes:
    """Encoded messages as one frame."""
    parts = list(messages)
    return b"\xdd" + len(parts).to_bytes(4, "big") + b"".join(parts)


@lru_cache(65_536)
def _head_of_event(ids: tuple[str, ...]) -> bytes:
    return encode(Event(ids, around(b"")))


def encoded_event(ids: tuple[str, ...], event: bytes) -> bytes:
    """An `Event` around an event that is encoded already; which ids stand before it, is encoded once."""
    return _head_of_event(ids) + event


def encoded_forward(number: int, event: bytes) -> bytes:
    """A `Forward` around an event that is encoded already."""
    return _FORWARD + number.to_bytes(8, "big") + event


def is_gap(entry: bytes) -> bool:
    """Whether an encoded entry of a stream is a `Gap`, and no event."""
    return entry.startswith(_GAP, 1)


def decoded_gap(entry: bytes) -> Gap:
    return _GAPS.decode(entry)


def around(event: bytes) -> Publish:
    """An event that is encoded already, to be put into a message that is about to be."""
    return cast(Publish, msgspec.Raw(event))


_GAP, _GAPS = encode(Gap(0, 0, 0.0, 0.0, "", ""))[1:5], msgspec.msgpack.Decoder(Gap)
_FORWARD = encode(Forward(2**63, around(b"")))[:-8]  # up to the number, which takes eight bytes
