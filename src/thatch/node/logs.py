"""Logs: a line that a person can read, or one JSON object a line."""

from __future__ import annotations

import logging
import sys
import time
from datetime import UTC, datetime

import msgspec


class Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(sep=" ", timespec="milliseconds")[:23]
        line = f"{at} {record.levelname.lower():7} {record.getMessage()}"
        return line if record.exc_info is None else f"{line}\n{self.formatException(record.exc_info)}"


class Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat()
        entry = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info is not None:
            entry["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry).decode()


class Seldom:
    """Logs a line at most once in so many seconds: of what peers can bring about as often as they like."""

    def __init__(self, log: logging.Logger, seconds: float) -> None:
        self._log, self._seconds = log, seconds
        self._next = 0.0

    def info(self, text: str, *values: object) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._seconds
            self._log.info(text, *values)


def begin(form: str) -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if form == "json" else Text())
    root = logging.getLogger("thatch")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False
