"""Which strategy a match takes, and why: a function of the facts, without Spark.

`choose` gives a choice, or the name of the fact that it needs next, or raises what is wrong with the call. Whoever
gathers facts asks again with that one; so a fact that no choice depends on is never looked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from thatch.errors import CallerError, shown
from thatch.spark.matching.facts import Facts, MissingFact

STRATEGIES = ("auto", "native", "arrow", "files")

# What `arrow` costs, in nanoseconds: an event's way to a worker and back, each of its values, and a subscription's way
# into the index. Below SAMPLING there is nothing to be won by looking for something better.
ARROW_EVENT, ARROW_VALUE, ARROW_SUBSCRIPTION, SAMPLING = 300.0, 40.0, 4000.0, 1e9


class Choice(NamedTuple):
    """A strategy, and why."""

    strategy: str
    reason: str


@dataclass
class MatchPlan:
    """How a match will be done."""

    strategy: str
    reason: str
    subscriptions: int
    index_bytes: int  # of the index, about
    limit_bytes: int  # that may be broadcast
    estimates: dict[str, float] = field(default_factory=dict)  # candidates per event, by strategy
    keys: list[str] = field(default_factory=list)  # of `native`, in words

    def __str__(self) -> str:
        lines = [f"strategy: {self.strategy}", f"because: {self.reason}"]
        lines.append(
            f"subscriptions: {self.subscriptions:,}; an index of about {self.index_bytes / 1e6:,.1f} MB, of "
            f"{self.limit_bytes / 1e6:,.0f} MB that may be broadcast"
        )
        for strategy, candidates in self.estimates.items():
            lines.append(f"candidates per event, {strategy}: {candidates:,.1f}")
        if self.keys:
            lines.append("keys of native: " + "; ".join(self.keys))
        return "\n".join(lines)


def check_strategy(strategy: str) -> None:
    if strategy not in STRATEGIES:
        raise CallerError(f"strategy is one of {', '.join(map(repr, STRATEGIES))}, not {shown(strategy)}")


def choose(facts: Facts) -> Choice | MissingFact:
    """A strategy and why, or the fact that the choice needs next.

    Raises:
        CallerError: the strategy that was asked for cannot match these tables.
    """
    if facts.is_streaming:
        return _for_stream(facts)
    if facts.asked == "files" and not facts.is_plain_scan:
        if facts.is_plain_scan is None:
            return MissingFact.IS_PLAIN_SCAN
        raise CallerError(
            "strategy 'files' needs events that are a plain scan of Parquet files on a disk that every executor "
            "has: give a path, or take strategy='arrow'"
        )
    if facts.asked == "native":
        return Choice("native", "it was asked for")
    too_large = is_index_too_large(facts)
    if isinstance(too_large, MissingFact):
        return too_large
    if too_large:
        return _without_index(facts)
    return _by_cost(facts) if facts.asked == "auto" else Choice(facts.asked, "it was asked for")


def is_index_too_large(facts: Facts) -> bool | MissingFact:
    """Whether the index is too large to broadcast. Subscriptions are counted only where Spark's guess is near."""
    if facts.subscriptions_guessed is None:
        return MissingFact.SUBSCRIPTIONS_GUESSED
    if 4 * facts.subscriptions_guessed * facts.subscription_bytes < facts.limit_bytes:
        return False
    if facts.subscriptions is None:
        return MissingFact.SUBSCRIPTIONS
    return facts.subscriptions * facts.subscription_bytes > facts.limit_bytes


def _for_stream(facts: Facts) -> Choice | MissingFact:
    too_large = is_index_too_large(facts) if facts.asked in ("auto", "arrow") else True
    if isinstance(too_large, MissingFact):
        return too_large
    if too_large:
        raise CallerError(
            "a stream of events is matched by strategy 'arrow', with subscriptions that fit into a broadcast"
        )
    return Choice("arrow", "it was asked for" if facts.asked == "arrow" else "a stream cannot be sampled")


def _without_index(facts: Facts) -> Choice:
    assert facts.subscriptions is not None
    megabytes = facts.subscriptions * facts.subscription_bytes / 1e6
    size = f"{facts.subscriptions:,} subscriptions make an index of about {megabytes:,.1f} MB"
    if facts.asked == "auto":
        return Choice("native", f"{size}: too large to broadcast, so both sides are shuffled")
    raise CallerError(
        f"{size}, more than the {facts.limit_bytes / 1e6:,.0f} MB that may be broadcast: take strategy='native', or "
        "raise broadcast_limit"
    )


def _by_cost(facts: Facts) -> Choice | MissingFact:
    if facts.is_plain_scan is None:
        return MissingFact.IS_PLAIN_SCAN
    if facts.is_plain_scan:
        return Choice("files", "the events are plain Parquet files: workers read them next to the index")
    if facts.events_guessed is None:
        return MissingFact.EVENTS_GUESSED
    events, join = facts.events_guessed, facts.join
    arrow = events * (ARROW_EVENT + ARROW_VALUE * facts.event_columns)
    if arrow < SAMPLING:
        return Choice("arrow", f"about {events:,.0f} events: a sample would cost more than it could spare")
    if join is None:
        return MissingFact.JOIN
    if facts.subscriptions is None:
        return MissingFact.SUBSCRIPTIONS
    compared = f"{join.candidates:,.1f} candidates per event in a join, about {join.matches:,.1f} in the index"
    if join.cost < arrow + facts.subscriptions * ARROW_SUBSCRIPTION:
        return Choice("native", f"{compared}: comparing them costs less than the way to Python")
    return Choice("arrow", f"{compared}: comparing them costs more than the way to Python")
