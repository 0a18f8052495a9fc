"""What the choice of a strategy depends on: plain numbers and booleans, without Spark.

Some facts cost a Spark job, or a talk with the JVM, to find. They are None until the choice asks for them by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

INDEX_BYTES = 48  # of a subscription in addition to its bounds: ids, codes, tree


class JoinEstimate(NamedTuple):
    """What a join on cells is expected to look at, from samples of both tables."""

    candidates: float  # per event
    matches: float  # per event: what the index would look at
    cost: float  # nanoseconds, of all


class MissingFact(StrEnum):
    """A fact that the choice needs next: the name of a field of `Facts`."""

    IS_PLAIN_SCAN = "is_plain_scan"
    SUBSCRIPTIONS_GUESSED = "subscriptions_guessed"
    SUBSCRIPTIONS = "subscriptions"
    EVENTS_GUESSED = "events_guessed"
    JOIN = "join"


@dataclass(frozen=True)
class Facts:
    """What is known of a match before it is done."""

    asked: str  # the strategy that the caller names, or "auto"
    is_streaming: bool  # the events
    event_columns: int
    attributes: int
    limit_bytes: int  # that may be broadcast
    is_plain_scan: bool | None = None  # whether the events are Parquet files that a worker can read itself
    subscriptions_guessed: float | None = None  # from Spark's statistics; infinite where it has no idea
    subscriptions: int | None = None  # counted
    events_guessed: float | None = None  # from Spark's statistics
    join: JoinEstimate | None = None

    @property
    def subscription_bytes(self) -> int:
        """What one subscription adds to the index, about."""
        return 16 * self.attributes + INDEX_BYTES
