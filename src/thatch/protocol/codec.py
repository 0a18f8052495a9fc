"""Messages as bytes: MessagePack, by msgspec. Frames on the wire are made of them, and events in the store are.

Values of events keep their types: what MessagePack does not have (decimals, dates, times without a zone, ints of more
than 64 bits) is written as text, and read back as the type of the attribute that it belongs to.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np

from thatch.errors import CallerError, EventError, PeerError, shown
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
    Message,
    Page,
    Publish,
    Refused,
    Replace,
    Settled,
    SettledExcept,
    Subscribe,
    Synced,
    Unadvertise,
    Unsubscribe,
)
from thatch.protocol.versions import LIMITS, VERSION_MIN
from thatch.space.axis import DateAxis, TimestampAxis, TimestampNtzAxis
from thatch.space.decimals import DecimalAxis
from thatch.space.json_values import readable
from thatch.space.space import Space

BYTES_MAX = LIMITS[VERSION_MIN].frame_bytes_max

OnTheWire = (
    Subscribe | Replace | Unsubscribe | Advertise | Unadvertise | Extend | Grow | Digest | Page | Synced | Flush
    | Publish | Hello | Accepted | Settled | SettledExcept | Flushed | Refused | Durable
)  # fmt: skip


def _plain(value: Any) -> Any:
    """What NumPy and pandas have for Python's own types."""
    if isinstance(value, np.datetime64):  # a day is a date; what is finer, a time
        return value.item() if value.dtype == "datetime64[D]" else value.astype("datetime64[us]").item()
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, datetime):
        return datetime.fromisoformat(value.isoformat())
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_decoder = msgspec.msgpack.Decoder(OnTheWire)


def encode(message: Message) -> bytes:
    try:
        if type(message) is Publish or not message.added:  # an event, most often: nothing more is asked of it
            return _encoder.encode(message)
        return _encoder.encode(_short(message))
    except OverflowError:  # an int beyond the 64 bits of MessagePack, which a decimal attribute may have
        return _encoder.encode(_without_long_ints(message))


def check_event(event: Mapping[Any, Any]) -> None:
    """Refuse what MessagePack has no place for, or a broker would hang up for, with the attribute that has it."""
    for name, value in event.items():
        if not isinstance(name, str):
            raise CallerError(f"names of attributes are texts, not {shown(name)}", code="event")
        if isinstance(value, dict | list | tuple | set | frozenset):
            raise EventError(name, value, "is not a value of an attribute")
        try:
            encode(Publish("", {name: value}))
        except UnicodeError:
            raise CallerError(f"attribute {name!r}: the text is not valid Unicode", code="event") from None
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise EventError(name, value, "is not a value of an attribute") from None


def _short(message: Message) -> list[Any]:
    """A message as an array, without the fields at its end that were added to its kind and are empty."""
    fields = message.__struct_fields__
    end = len(fields)
    while end and fields[end - 1] in message.added and not getattr(message, fields[end - 1]):
        end -= 1
    return [message.__struct_config__.tag, *(getattr(message, field) for field in fields[:end])]


def rigid(message: Message) -> Message:
    """A message as a reader of version 2 takes it: without what was added since."""
    return msgspec.structs.replace(message, **{name: _EMPTY[type(getattr(message, name))] for name in message.added})


_EMPTY: dict[type, Any] = {int: 0, float: 0.0, str: "", bytes: b"", tuple: (), dict: {}}


def _without_long_ints(message: Message) -> Message:
    if isinstance(message, Publish):
        event = {
            name: Decimal(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value
            for name, value in message.event.items()
        }
        return msgspec.structs.replace(message, event=event)
    held = getattr(message, "event", None)
    return msgspec.structs.replace(message, event=_without_long_ints(held)) if isinstance(held, Publish) else message


class Codec:
    """Reads what was written, in a space: its attributes tell what a text in an event stands for."""

    def __init__(self, space: Space, bytes_max: int = BYTES_MAX) -> None:
        self.space, self.bytes_max = space, bytes_max
        self._readers = {
            attribute.name: reader
            for attribute in space.attributes
            for axis, reader in _READERS.items()
            if isinstance(attribute.axis, axis)
        }

    def decode(self, data: bytes) -> Message:
        """Bytes that are no message of this protocol are the peer's fault."""
        if len(data) > self.bytes_max:
            raise PeerError(f"a message of {len(data):,} bytes; at most {self.bytes_max:,} are read")
        try:
            message = _decoder.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise PeerError(f"not a message of this protocol ({len(data):,} bytes)") from error
        return self.typed(message) if self.has_texts and isinstance(message, Publish) else message

    @property
    def has_texts(self) -> bool:
        """Whether values of this space may have been written as text."""
        return bool(self._readers)

    def typed(self, message: Publish) -> Publish:
        """An event with its values as the attributes have them."""
        event = dict(message.event)
        for name, value in message.event.items():
            index = self.space.index(name)
            reader = None if index is None else self._readers.get(self.space.attributes[index].name)
            if reader is None or not isinstance(value, str):
                continue
            with suppress(ValueError, InvalidOperation):  # else it stays a text, which the space refuses by name
                event[name] = reader(value)
        return msgspec.structs.replace(message, event=event)


_READERS: dict[type, Any] = {
    DecimalAxis: Decimal,
    TimestampAxis: datetime.fromisoformat,
    TimestampNtzAxis: datetime.fromisoformat,
    DateAxis: date.fromisoformat,
}


def event_json(event: Publish) -> bytes:
    """An event for people."""
    shown: dict[str, Any] = {"id": event.id, "event": {name: readable(value) for name, value in event.event.items()}}
    if event.payload:
        try:
            shown["payload"] = event.payload.decode()
        except UnicodeDecodeError:
            shown["payload_base64"] = base64.b64encode(event.payload).decode()
    return msgspec.json.encode(shown)
