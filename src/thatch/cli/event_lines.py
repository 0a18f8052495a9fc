"""Events that are typed: of arguments, or of lines of standard input as they come."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from thatch.cli.terminal import is_terminal
from thatch.errors import CallerError
from thatch.space.json_values import read_json

CHUNK_BYTES = 2**18
LINE_BYTES_MAX = 2**25  # more than any event has


class GivenEvent(NamedTuple):
    """An event, and where it was given."""

    place: str
    event: dict[str, Any]


async def of_arguments(given: Sequence[GivenEvent]) -> AsyncIterator[GivenEvent]:
    for each in given:
        yield each


def read_event(text: str | bytes, place: str) -> GivenEvent:
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            raise CallerError(f"{place}: not UTF-8 text: {error.reason} at byte {error.start + 1}") from None
    return GivenEvent(place, read_json(text, place))


class EventLines:
    """A thread waits for lines, so that those that are there go out, and Ctrl-C is heard, while others are awaited."""

    def __init__(self, file: Any) -> None:
        """Waits for the first line: a mistake in it is said before a broker is looked for."""
        if is_terminal(file):
            print("events, an object in JSON a line; Ctrl-D ends", file=sys.stderr, flush=True)
        self._read_chunk = _reader(file)
        self._lines: deque[tuple[int, bytes]] = deque()  # with their numbers
        self._number, self._rest, self._is_over = 0, b"", False
        while not self._lines and not self._is_over:
            self._take(self._read_chunk())
        for number, line in list(self._lines)[:1]:
            read_event(line, f"line {number}")

    async def __aiter__(self) -> AsyncIterator[GivenEvent]:
        while True:
            while self._lines:
                number, line = self._lines.popleft()
                yield read_event(line, f"line {number}")
            if self._is_over:
                return
            self._take(await _in_thread(self._read_chunk))

    def _take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if not chunk:
            self._is_over = True
            lines.append(self._rest)
        if len(self._rest) > LINE_BYTES_MAX:
            raise CallerError(f"line {self._number + 1}: longer than {LINE_BYTES_MAX:,} bytes")
        for line in lines:
            self._number += 1
            if line.strip():
                self._lines.append((self._number, line.rstrip(b"\r")))


def _reader(file: Any) -> Callable[[], bytes]:
    """Reads what is there, at least a byte unless the file has ended."""
    try:
        descriptor = file.fileno()
    except OSError:  # no file of the system
        text = getattr(file, "buffer", file).read()
        parts = iter([text if isinstance(text, bytes) else text.encode()])
        return lambda: next(parts, b"")
    return lambda: os.read(descriptor, CHUNK_BYTES)


async def _in_thread(read: Callable[[], bytes]) -> bytes:
    """In a thread that ends with the program, even if it still waits then."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def set_outcome(data: bytes, error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(data)
        else:
            done.set_exception(error)

    def work() -> None:
        data, failure = b"", None
        try:
            data = read()
        except Exception as error:
            failure = error
        try:
            loop.call_soon_threadsafe(set_outcome, data, failure)
        except RuntimeError:  # the loop has ended
            return

    threading.Thread(target=work, name="thatch input", daemon=True).start()
    return await done
