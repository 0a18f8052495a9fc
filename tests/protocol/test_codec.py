"""Messages as bytes: what is written is read back the same, and whatever else comes is the peer's fault, never ours."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from helpers.strategies import examples, texts, values_of
from thatch import Space
from thatch.errors import EventError, PeerError
from thatch.protocol import codec
from thatch.protocol.codec import Codec
from thatch.protocol.messages import (
    Accepted,
    Advertise,
    Digest,
    Durable,
    Extend,
    Flush,
    Flushed,
    Grow,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Persisted,
    Publish,
    Refused,
    Replace,
    Settled,
    SettledExcept,
    Subscribe,
    Synced,
    Tick,
    Unadvertise,
    Unsubscribe,
)

SPACE = Space.parse(
    "truth bool, count int, price decimal(9,2), weight double, day date, moment timestamp,"
    " kind enum('a', 'b', 'é'), name string, total decimal(38,10)"
)
CODEC = Codec(SPACE)
PUBLISH = b"\x93\xa7Publish\xa1e\x81\xa5count"  # an event whose `count` is what follows

numbers, sessions = st.integers(0, 2**63 - 1), st.integers(1, 2**31 - 1)
leases = st.none() | st.floats(allow_nan=False)
listings = st.dictionaries(numbers, st.dictionaries(texts, st.tuples(texts, leases), max_size=3), max_size=3)
hashes = st.lists(st.integers(0, 2**64 - 1), max_size=4).map(tuple)
events = st.fixed_dictionaries({}, optional={each.name: values_of(each) for each in SPACE})
MESSAGES: dict[type[Message], tuple[st.SearchStrategy[Any], ...]] = {
    Subscribe: (numbers, texts, texts, leases),
    Replace: (numbers, texts, texts),
    Unsubscribe: (numbers, texts),
    Advertise: (numbers, texts, texts, leases),
    Unadvertise: (numbers, texts),
    Extend: (numbers, texts, st.booleans()),
    Digest: (numbers, numbers, hashes, hashes, st.binary(max_size=64), hashes, hashes),
    Synced: (numbers, numbers, listings, listings),
    Flush: (numbers,),
    Publish: (texts, events, st.binary(max_size=9)),
    Hello: (
        texts,
        sessions,
        texts,
        st.booleans(),
        numbers,
        st.lists(texts, max_size=3).map(tuple),
        st.booleans(),
        texts,
        numbers,
        numbers,
        st.dictionaries(texts, numbers | texts | st.lists(texts), max_size=2),
    ),
    Accepted: (numbers,),
    Settled: (numbers,),
    Flushed: (numbers,),
    Grow: (numbers, numbers, texts, texts, st.booleans()),
    SettledExcept: (numbers, st.lists(texts).map(tuple), numbers, texts),
    Durable: (numbers, st.booleans()),
    Refused: (numbers, texts, texts, texts, texts),
}
messages = st.one_of([st.builds(kind, *fields) for kind, fields in MESSAGES.items()])
EXAMPLES: dict[type[Message], Message] = {
    Subscribe: Subscribe(1, "s", "count < 5", 60.0),
    Replace: Replace(1, "s", "count < 6"),
    Unsubscribe: Unsubscribe(1, "s"),
    Advertise: Advertise(1, "a", "TRUE", None),
    Unadvertise: Unadvertise(1, "a"),
    Extend: Extend(1, "{}", True),
    Digest: Digest(1, 2, (3, 4), (5, 6)),
    Synced: Synced(1, 2, {0: {"s": ("count < 5", 60.0)}}, {1: {}}),
    Flush: Flush(1),
    Publish: Publish("e", {"count": 1, "price": Decimal("1.50"), "day": date(2024, 2, 29)}, b"\x00\xff"),
    Hello: Hello("B1", 1, SPACE.to_json(), False, 1, ("B1", "B2")),
    Accepted: Accepted(1),
    Settled: Settled(1),
    Flushed: Flushed(1),
    Grow: Grow(1, 2, "B1", "{}", True),
    SettledExcept: SettledExcept(1, ("B2",), 3),
    Durable: Durable(1, True),
    Refused: Refused(1, "s", "because", "subscriptions"),
}
LATER: dict[str, Any] = {
    "version_max": 3, "members_version": 3, "capabilities": {"digest": "none"}, "code": "clause",
    "key": b"k", "subscription_counts": (1,), "advertisement_counts": (2,),
}  # fmt: skip
kinds = pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)


def same(one: Any, other: Any) -> bool:
    """Equal, of one type, and NaN is itself."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return type(one) is type(other) and (one == other or (one != one and other != other))


def read_back(value: Any, attribute: str) -> Any:
    message = CODEC.decode(codec.encode(Publish("e", {attribute: value})))
    assert isinstance(message, Publish)
    return message.event[attribute]


# --- There and back --------------------------------------------------------------------------------------------------


@examples(300)
@given(messages)
def test_what_is_written_is_read_back(message: Message) -> None:
    found = CODEC.decode(codec.encode(message))
    assert type(found) is type(message)
    for field in message.__struct_fields__:
        assert same(getattr(message, field), getattr(found, field)), field


@examples(200)
@given(events)
def test_an_event_has_the_same_point_when_it_arrives(event: dict[str, Any]) -> None:
    found = CODEC.decode(codec.encode(Publish("e", event)))
    assert isinstance(found, Publish)
    assert SPACE.encode(found.event) == SPACE.encode(event)


@examples(100)
@given(st.datetimes(timezones=st.none() | st.just(timezone(timedelta(hours=5, minutes=45)))))
def test_a_timestamp_with_or_without_a_zone_stays_the_same_moment(moment: datetime) -> None:
    if moment.tzinfo is not None and moment.replace(tzinfo=None) < datetime(1, 1, 2):
        return  # before the first year in UTC: no value of a timestamp
    found = read_back(moment, "moment")
    assert found == moment and (found.tzinfo is None) == (moment.tzinfo is None)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("count", np.int8(-3)),
        ("count", np.uint32(7)),
        ("weight", np.float32(0.1)),
        ("weight", np.float64("nan")),
        ("weight", np.float64("-inf")),
        ("truth", np.bool_(True)),
        ("name", np.str_("é😀")),
        ("day", np.datetime64("2024-02-29")),
        ("moment", np.datetime64("2024-02-29T12:30:00.000001")),
    ],
)
def test_numpy_scalars_are_sent_as_the_values_that_they_hold(attribute: str, value: Any) -> None:
    assert SPACE.encode({attribute: read_back(value, attribute)}) == SPACE.encode({attribute: value})


def test_a_numpy_moment_in_nanoseconds_is_sent_as_a_moment() -> None:
    for unit in ("s", "ms", "us", "ns"):
        moment = np.datetime64("2024-02-29T12:30:00", unit)
        assert read_back(moment, "moment") == datetime(2024, 2, 29, 12, 30)
        assert SPACE.encode({"moment": moment}) == SPACE.encode({"moment": read_back(moment, "moment")})


def test_a_numpy_day_is_sent_as_a_date() -> None:
    found = read_back(np.datetime64("2024-02-29", "D"), "day")
    assert type(found) is date and found == date(2024, 2, 29)


def test_values_that_other_encodings_lose() -> None:
    """NaN, the infinities, negative zero, NULL, trailing zeros of a decimal, and strings of any Unicode."""
    for number in (math.inf, -math.inf, math.nan, -0.0, 5e-324):
        assert repr(read_back(number, "weight")) == repr(number)
    assert read_back(None, "count") is None
    assert str(read_back(Decimal("1.50"), "price")) == "1.50"
    for text in ("", "\0", "\ud7ff\ue000", "\U0010ffff", "NaN", "2024-02-29", "1.5"):
        assert read_back(text, "name") == text
    assert read_back(datetime(2024, 2, 29, tzinfo=UTC), "moment") == datetime(2024, 2, 29, tzinfo=UTC)


def test_names_of_attributes_are_found_in_any_case() -> None:
    found = CODEC.decode(codec.encode(Publish("e", {"PRICE": Decimal("1.5"), "Day": date(2024, 1, 1)})))
    assert isinstance(found, Publish) and found.event == {"PRICE": Decimal("1.5"), "Day": date(2024, 1, 1)}


def test_what_cannot_be_sent_is_the_callers_fault() -> None:
    with pytest.raises(TypeError, match="a value of type object cannot be sent"):
        codec.encode(Publish("e", {"name": object()}))


def test_a_message_has_the_same_bytes_every_time() -> None:
    """The wire format is part of the protocol: whoever changes it raises `VERSION_MAX`."""
    assert (
        codec.encode(Subscribe(7 << 32 | 1, "s", "x < 5"))
        == b"\x97\xa9Subscribe\xcf\0\0\0\x07\0\0\0\x01\xa1s\xa5x < 5\xc0\x90\x90"
    )


# --- Whatever else comes ---------------------------------------------------------------------------------------------


@examples(300)
@given(st.binary(max_size=40))
def test_garbage_is_the_peers_fault(data: bytes) -> None:
    with pytest.raises(PeerError, match="not a message of this protocol"):
        CODEC.decode(data)


@kinds
def test_every_truncated_message_is_the_peers_fault(kind: type[Message]) -> None:
    whole = codec.encode(EXAMPLES[kind])
    assert CODEC.decode(whole) == EXAMPLES[kind]
    for size in range(len(whole)):
        with pytest.raises(PeerError):
            CODEC.decode(whole[:size])
    with pytest.raises(PeerError):
        CODEC.decode(whole + b"\0")


@kinds
def test_a_changed_byte_gives_a_message_or_is_the_peers_fault(kind: type[Message]) -> None:
    whole = codec.encode(EXAMPLES[kind])
    for at in range(min(len(whole), 80)):
        for byte in (0x00, 0x7F, 0x80, 0x91, 0xC0, 0xC1, 0xC7, 0xCF, 0xDB, 0xDD, 0xDF, 0xFF):
            try:
                found = CODEC.decode(whole[:at] + bytes([byte]) + whole[at + 1 :])
            except PeerError:
                continue
            assert isinstance(found, Message)


@kinds
def test_fields_that_are_not_known_are_ignored_at_the_end(kind: type[Message]) -> None:
    whole = codec.encode(replace(EXAMPLES[kind], **{name: LATER[name] for name in kind.added}))
    fields = msgspec.msgpack.decode(whole)
    assert len(fields) == len(kind.__struct_fields__) + 1
    assert codec.encode(CODEC.decode(msgspec.msgpack.encode([*fields, 1, {"more": [2]}]))) == whole
    for deep in (b"\x91" * 200_000, b"\x81\xa1a" * 200_000, b"\xdd\xff\xff\xff\xff"):
        with pytest.raises(PeerError):
            CODEC.decode(bytes([0x90 + len(fields) + 1]) + whole[1:] + deep)


@kinds
def test_fields_of_another_type_are_refused(kind: type[Message]) -> None:
    """What a handler reads has the type that it is written with: `handle` need not ask."""
    fields = msgspec.msgpack.decode(codec.encode(EXAMPLES[kind]))
    wrongs: tuple[Any, ...] = ([[]], {1: 2})
    for at in range(1, len(fields)):
        for wrong in wrongs:
            with pytest.raises(PeerError):
                CODEC.decode(msgspec.msgpack.encode([*fields[:at], wrong, *fields[at + 1 :]]))


@pytest.mark.parametrize(
    "deep",
    [b"\x91" * 200_000, b"\x81\xa1a" * 200_000, b"\xdd\xff\xff\xff\xff" * 10, b"\xdf\xff\xff\xff\xff", b"\x81\x80\x01"],
    ids=["lists", "maps", "a list longer than memory", "a map longer than memory", "a map as a key"],
)
def test_deep_and_hollow_input_is_the_peers_fault(deep: bytes) -> None:
    with pytest.raises(PeerError):
        CODEC.decode(PUBLISH + deep)


@pytest.mark.parametrize(
    "message", [LinkUp(1), LinkDown(True), Tick(), Persisted(1)], ids=lambda each: type(each).__name__
)
def test_what_only_the_driver_says_is_not_taken_from_a_wire(message: Message) -> None:
    with pytest.raises(PeerError, match="not a message of this protocol") as caught:
        CODEC.decode(codec.encode(message))
    assert "Invalid value" in str(caught.value.__cause__)


def test_a_message_that_is_too_long_is_not_read() -> None:
    with pytest.raises(PeerError, match="a message of 11 bytes; at most 10 are read"):
        Codec(SPACE, bytes_max=10).decode(b"\0" * 11)


@pytest.mark.parametrize(
    ("attribute", "text"),
    [("price", "x"), ("price", "1e99999999999999999999"), ("day", "2024-13-01"), ("moment", ""), ("moment", "12:30")],
)
def test_a_text_that_is_no_value_of_its_attribute_stays_one_and_is_refused_by_name(attribute: str, text: str) -> None:
    """By the space: what is wrong with an event is its publisher's mistake, and no reason to hang up on it."""
    assert read_back(text, attribute) == text
    with pytest.raises(EventError, match=f"attribute '{attribute}'"):
        SPACE.encode({attribute: read_back(text, attribute)})


def test_attributes_that_the_space_lacks_are_read_as_they_are() -> None:
    """They are refused, or passed on, by the broker."""
    assert read_back("2024-01-01", "unknown") == "2024-01-01"
