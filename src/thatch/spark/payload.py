"""An error of Thatch as a payload: text at the end of a message that crosses Spark, and the same error again.

    attribute 'price': 2000.0 is outside the domain 0.0..1000.0 of double
    [thatch-error 5d41402abc4b2a76:7b2274797065…:323030302e30:]

After the mark and a token stand three parts in hex: the error as JSON; and for errors that the JVM raises, whose JSON
is written before the value is known, the value, and the value as people read it if that differs. Hex has no character
that a session or a stack trace would change. The last payload of a text counts, so no text before it can hide it. The
driver draws the token when it starts, so no value of an event can pass for an error. A payload is of bounded size: long
texts in an error are cut.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from thatch.errors import CallerError, EventError, ThatchError, shown
from thatch.spark.text import case_sql, text_sql

TOKEN = secrets.token_hex(8)  # of this driver
MESSAGE_MAX = 4000  # characters of a message
TEXT_MAX = 500  # characters of a text that an error has as a field
DEPTH_MAX = 2  # of tuples in tuples
ITEMS_MAX = 8  # of a tuple that an error has as a field
SHOWN_MAX = 80  # characters of a value within a message, as `errors.shown` has it
END = "]"


def _mark(token: str) -> str:
    return f"[thatch-error {token}:"


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


# Out


def payload_of(error: ThatchError, token: str = TOKEN) -> str:
    """The payload of an error that Python raises."""
    arguments: list[Any] | None = None
    if type(error).__reduce__ is not BaseException.__reduce__:  # it has fields, and says how it is made of them
        arguments = [_data(each) for each in error.__reduce__()[1]]
    return f"{_head(type(error), [cut(str(error), MESSAGE_MAX)], arguments, token)}::{END}"


def with_payload(error: ThatchError, token: str = TOKEN) -> ThatchError:
    """The same error with its payload as a note, which stands below the message in a traceback. The message is cut to
    what may cross Spark, and has no character that UTF-8 has not."""
    payload = payload_of(error, token)
    text = cut(cut(str(error), MESSAGE_MAX).encode("utf-8", "backslashreplace").decode(), MESSAGE_MAX)
    if text != str(error):
        error.args = (text,)
    error.add_note(payload)
    return error


def raised_text(error: ThatchError) -> str:
    """The text of an error that the JVM raises: its message, and its payload."""
    return f"{error}\n{payload_of(error)}"


class EventProblem(NamedTuple):
    """What is wrong with a value of an event, as SQL: the text of an `EventError` that the JVM makes."""

    attribute: str
    rule: str  # follows the value
    kind: str = "null"  # the value's type in Spark
    value: str = ""  # SQL of that type
    quote: str = ""  # around the value, for people
    shown: str = ""  # SQL of the value as people read it, if that is not its text, cut

    @property
    def message(self) -> str:
        """SQL of the sentence for people."""
        before, *after = self._sentence
        return f"concat({text_sql(before)}, {self._shown}, {text_sql(after[0])})" if after else text_sql(before)

    @property
    def carried(self) -> str:
        """SQL of the sentence, followed by the payload."""
        value = None if self.kind == "null" else {"value": self.kind}
        head = "\n" + _head(EventError, self._sentence, [self.attribute, value, self.rule, None], TOKEN)
        if self.kind == "null":
            return f"concat({self.message}, {text_sql(f'{head}::{END}')})"
        parts = [self.message, text_sql(f"{head}:"), f"hex({self._bounded})"]
        parts += [f"':{END}'"] if self._shown == self._bounded else ["':'", f"hex({self._shown})", f"'{END}'"]
        return f"concat({', '.join(parts)})"

    @property
    def _sentence(self) -> list[str]:
        place = f"attribute {self.attribute!r}: "
        return [place + self.rule] if self.kind == "null" else [place + self.quote, f"{self.quote} {self.rule}"]

    @property
    def _shown(self) -> str:
        if self.shown or self.kind != "string":
            return self.shown or f"CAST({self.value} AS STRING)"
        long = (f"length({self.value}) > {SHOWN_MAX}", f"concat(substring({self.value}, 1, {SHOWN_MAX - 3}), '...')")
        return case_sql(long, otherwise=self.value)

    @property
    def _bounded(self) -> str:
        """The value as text that says it exactly, or the beginning of a long one."""
        if self.kind == "string":
            return f"substring({self.value}, 1, {TEXT_MAX})"
        if self.kind == "timestamp":
            return f"CAST(unix_micros({self.value}) AS STRING)"
        return f"CAST({f'CAST({self.value} AS DOUBLE)' if self.kind == 'float' else self.value} AS STRING)"


def _head(kind: type, message: Sequence[str], arguments: Sequence[Any] | None, token: str) -> str:
    """The beginning of a payload. The message has two parts if a value stands between them."""
    data = {"type": kind.__name__, "message": message, "arguments": arguments}
    return _mark(token) + json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass").hex()


def _data(value: Any, depth: int = 0) -> Any:
    """A field of an error as JSON has it. What JSON has no type for is an object with the name of its type; what is
    nested deep is text."""
    if isinstance(value, str):
        return cut(value, TEXT_MAX)
    if value is None or isinstance(value, bool) or (isinstance(value, int) and value.bit_length() <= 1024):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return {"bytes": value[:TEXT_MAX].hex()}
    if isinstance(value, tuple | list) and depth < DEPTH_MAX:
        return {"tuple": [_data(each, depth + 1) for each in value[:ITEMS_MAX]]}
    if isinstance(value, Decimal) and len(str(value)) <= TEXT_MAX:
        return {"decimal": str(value)}
    for kind in (datetime, date, time):  # a datetime is a date
        if isinstance(value, kind):
            return {kind.__name__: value.isoformat()}
    is_scalar = hasattr(value, "item") and getattr(value, "size", 1) == 1  # of NumPy's
    return _data(value.item(), DEPTH_MAX) if is_scalar else shown(value, TEXT_MAX)


# In


def error_in(text: str, token: str = TOKEN) -> ThatchError | None:
    """The error whose payload a text has last, or None if it has none."""
    start = text.rfind(_mark(token))
    end = text.find(END, start)
    if start < 0 or end < 0:
        return None
    try:
        whole, value, people = map(bytes.fromhex, text[start + len(_mark(token)) : end].split(":"))
        data = json.loads(whole.decode("utf-8", "surrogatepass"))
        said = (people or value).decode("utf-8", "replace")
        message = said.join(data["message"])
        arguments = data["arguments"]
        if arguments is not None:
            arguments = [_field(each, value.decode("utf-8", "replace"), said) for each in arguments]
        return _made(str(data["type"]), message, arguments)
    except (ValueError, ArithmeticError, KeyError, TypeError):  # no payload of ours
        return None


def _made(name: str, message: str, arguments: list[Any] | None) -> ThatchError:
    kind = {each.__name__: each for each in _types(ThatchError)}.get(name)
    if kind is None:  # a worker has another version
        return CallerError(message)
    error = kind(message) if arguments is None else kind(*arguments)
    error.args = (message,)
    return error


def _types(kind: type[ThatchError]) -> Iterator[type[ThatchError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _types(each)


READERS: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.fromhex,
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
}
SPARK_READERS: dict[str, Callable[[str], Any]] = {
    "bigint": int,
    "double": float,
    "float": float,
    "boolean": "true".__eq__,
    "date": date.fromisoformat,
    "timestamp": lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(micros)),
    "timestamp_ntz": datetime.fromisoformat,
    "string": str,
}


def _field(data: Any, value: str, said: str) -> Any:
    """A field as it was; `value` is the one that the JVM has written."""
    if not isinstance(data, dict):
        return data
    ((kind, own),) = data.items()
    if kind == "tuple":
        return tuple(_field(each, value, said) for each in own)
    if kind != "value":
        return READERS[kind](own)
    try:
        return SPARK_READERS[own](value) if own in SPARK_READERS else Decimal(value)
    except (ValueError, ArithmeticError):  # a year that Python has not
        return said
