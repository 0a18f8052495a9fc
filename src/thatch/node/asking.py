"""What an operator asks a broker over the Unix socket beside its store, what it answers, and the side of the one who
asks.

    {"command": "backup", "file": "/var/backups/B1"} ─▶
        ◀─ {"done": 128, "total": 4000} ◀─ … ◀─ {"answer": {…}}   or   {"error": "…", "code": "…"}

One request a connection; each message is a line of JSON. While it takes its time, lines say how far it is.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from thatch.errors import CallerError, Code, StoreError, Unavailable, code_of

SUFFIX = ".sock"
REQUEST_BYTES_MAX = 2**16
ANSWER_SECONDS = 60.0  # between two lines of an answer
ADDRESS_BYTES_MAX = 107  # of a Unix socket


class Status(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="command", tag="status"):
    """How the broker is."""


class Links(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="command", tag="links"):
    """Its neighbours, and what is kept for each."""


class Accept(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="command", tag="accept"):
    """A neighbour may come."""

    name: str


class Forget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="command", tag="forget"):
    """A neighbour goes for good, with what is kept for it: up to so many events, else nothing happens yet."""

    name: str
    discard: int | None = None


class Attach(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="command", tag="attach"):
    """A neighbour comes in the place of one that is lost for good."""

    name: str
    instead_of: str
    url: str = ""  # where it is dialled; else it dials


class MoveQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="command", tag="move-queue"):
    """A durable subscription lives at another broker from now on."""

    client: str
    id: str
    url: str  # of the client port


class Backup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="command", tag="backup"):
    """A copy of the store."""

    file: str  # a whole path
    overwrite: bool = False


Request = Status | Links | Accept | Forget | Attach | MoveQueue | Backup


class Progress(msgspec.Struct, frozen=True):
    done: int
    total: int


class Answer(msgspec.Struct, frozen=True):
    """The last line: an answer, or an error."""

    answer: Any = None
    error: str = ""
    code: str = "invalid"


def socket_beside(store: Path) -> Path:
    """`B1.thatch` has `B1.thatch.sock`."""
    return store.with_name(store.name + SUFFIX)


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """The address of a socket, also if its path is longer than an address may be."""
    if len(os.fsencode(path)) <= ADDRESS_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def ask(path: Path, request: Request, progress: Callable[[int, int], None]) -> Any:
    """The answer of the broker whose socket this is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            with address_of(path) as address:
                connection.connect(address)
            send(connection, msgspec.json.encode(request) + b"\n")
            with connection.makefile("rb") as lines:
                for line in lines:
                    if b'"done"' not in line[:8]:
                        return _answer_in(line)
                    step = msgspec.json.decode(line, type=Progress)
                    progress(step.done, step.total)
        except OSError as error:
            raise _unreachable(path, error) from None
        except msgspec.DecodeError:
            raise Unavailable(f"what answers at {path} is no broker of this version") from None
    raise Unavailable(f"the broker ended before it answered: {path}")


def send(connection: socket.socket, request: bytes) -> None:
    """A broker that serves enough others answers and hangs up before it has read: its answer is there all the same."""
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(request)


def _answer_in(line: bytes) -> Any:
    answer = msgspec.json.decode(line, type=Answer)
    if answer.error:
        code: Code = code_of(answer.code)
        raise CallerError(answer.error, code=code)
    return answer.answer


def _unreachable(path: Path, error: OSError) -> Exception:
    meant = socket_beside(path)
    hint = f" (did you mean {meant}?)" if meant.is_socket() else ""
    if isinstance(error, FileNotFoundError):
        return CallerError(f"{path}: no such socket{hint}; a broker that runs has one beside its store")
    if path.exists() and not path.is_socket():
        return CallerError(f"{path} is not a socket{hint or '; a broker that runs has one beside its store'}")
    if error.errno == errno.ECONNREFUSED:
        return Unavailable(f"{path}: no broker runs there now; its socket was left behind")
    if isinstance(error, PermissionError):
        return CallerError(f"{path}: only the user that the broker runs as may use its socket")
    if isinstance(error, TimeoutError):
        return Unavailable(f"{path}: the broker has not answered for {ANSWER_SECONDS:g} seconds")
    return StoreError(f"{path}: {(error.strerror or type(error).__name__).lower()}")
