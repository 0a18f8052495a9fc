"""Who wants each event: a DataFrame of events, one of subscriptions, and the pairs.

Three strategies give the same rows. A `Job` picks one; `explain` says which and why.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from thatch.errors import CallerError, check_on_error, shown
from thatch.space.event_columns import ID, event_columns
from thatch.space.space import Space
from thatch.spark.clauses import ListWrong
from thatch.spark.failures import translated_errors
from thatch.spark.inferred import space_of
from thatch.spark.matching.arrow import match_arrow
from thatch.spark.matching.cells import code_of, is_hashed
from thatch.spark.matching.collected import collected, raise_bad_id
from thatch.spark.matching.files import ParquetScan, match_files, plain_scan
from thatch.spark.matching.native import CELLS, CHOSEN, keyed, match_native
from thatch.spark.matching.planner import ChooseKeys, Native, sampled
from thatch.spark.matching.shipped import ship
from thatch.spark.matching.typed import constrained, spread, typed
from thatch.spark.tables import SubscriptionFrame, check_time_zone, fields, session_of, wrong_event
from thatch.spark.text import name_sql

STRATEGIES = ("auto", "native", "arrow", "files")
INDEX_BYTES = 48  # of a subscription in addition to its bounds: ids, codes, tree
SHARE = 0.25  # of an executor's memory that broadcast subscriptions may take
ROW_BYTES, BOUND_BYTES = 64, 24  # of a subscription that is written out for a join: the row, each attribute
EVENTS_GUESSED = 1_000_000  # where Spark has no idea


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


def match(
    events: DataFrame | str | Path,
    subscriptions: DataFrame,
    space: Space | None = None,
    *,
    strategy: str = "auto",
    on_error: str = "raise",
    broadcast_limit: int | None = None,
) -> DataFrame:
    """Every event with every subscription that wants it: the event's columns and `subscription_id`.

    `events` is a DataFrame, or the path of Parquet files. `subscriptions` has `id` and `where`, or `id` and typed
    columns of bounds (`low_price`, `high_price`). Without a space, it is taken from the schema of the events, narrowed
    to what subscriptions mention. Three strategies give the same rows; `auto` chooses, `explain` says
    why. `on_error="skip"` leaves out clauses that are wrong and events with a value that their attribute does not
    allow; `wrong_clauses` and `wrong_events` list them. `broadcast_limit`, in bytes: subscriptions whose index would be
    larger are shuffled; a quarter of an executor's memory if not given.
    """
    return Job(events, subscriptions, space, strategy, on_error, broadcast_limit).result()


def explain(
    events: DataFrame | str | Path,
    subscriptions: DataFrame,
    space: Space | None = None,
    *,
    strategy: str = "auto",
    on_error: str = "raise",
    broadcast_limit: int | None = None,
) -> MatchPlan:
    """Which strategy `match` would take and why, with what each would have to compare an event with. Looks at a sample
    of both tables."""
    return Job(events, subscriptions, space, strategy, on_error, broadcast_limit).plan()


def wrong_clauses(subscriptions: DataFrame, space: Space) -> DataFrame:
    """The subscriptions whose clause cannot be used: `id`, `where`, `line`, `column`, `error`."""
    check_time_zone(session_of(subscriptions), space)
    known = SubscriptionFrame.of(subscriptions, space)
    if known.where is None:
        raise CallerError("these subscriptions have columns of bounds: there are no clauses to be wrong")
    clauses = subscriptions.select(F.col(name_sql(known.id)).alias("id"), F.col(name_sql(known.where)).alias("where"))
    facts = fields("line int, column int, error string")
    return clauses.mapInArrow(ListWrong(space), StructType([*clauses.schema.fields, *facts]))


def wrong_events(events: DataFrame, space: Space) -> DataFrame:
    """The events that have a value which their attribute does not allow: their columns and `error`."""
    check_time_zone(session_of(events), space)
    columns = event_columns(events.schema, space)
    error = wrong_event(columns, space)
    name = "error" if "error" not in map(str.lower, events.columns) else "thatch_error"
    return events.where(f"{error} IS NOT NULL").selectExpr("*", f"{error} AS {name}")


class Job:
    """One match, from what it is given to its plan and its result."""

    def __init__(
        self,
        events: DataFrame | str | Path,
        subscriptions: DataFrame,
        space: Space | None,
        strategy: str,
        on_error: str,
        broadcast_limit: int | None,
    ) -> None:
        if strategy not in STRATEGIES:
            raise CallerError(f"strategy is one of {', '.join(map(repr, STRATEGIES))}, not {shown(strategy)}")
        check_on_error(on_error)
        self.session = session_of(subscriptions)
        self.events = self.session.read.parquet(os.fspath(events)) if isinstance(events, str | Path) else events
        if space is None:
            space = space_of(self.events, subscriptions)
        check_time_zone(self.session, space)
        self.space, self.asked, self.skip = space, strategy, on_error == "skip"
        self.attributes = event_columns(self.events.schema, space)
        if subscriptions.isStreaming:
            raise CallerError("the subscriptions are a stream: match needs all of them, so read them as a table")
        self.subscriptions = SubscriptionFrame.of(subscriptions, space)
        self.limit = broadcast_limit if broadcast_limit is not None else _limit(self.session)
        id_field = StructField(ID, self.subscriptions.id_type)
        self.schema = StructType([*self.events.schema.fields, id_field])

    def result(self) -> DataFrame:
        with translated_errors():
            strategy, _ = self._choice()
            return self._joined() if strategy == "native" else self._indexed(strategy)

    def for_events(self, events: DataFrame) -> Job:
        """The same subscriptions with other events: an index that was made is used again."""
        other = Job(
            events, self.subscriptions.frame, self.space, self.asked, "skip" if self.skip else "raise", self.limit
        )
        if "index" in vars(self):
            other.index = self.index
        if "count" in vars(self):
            other.count = self.count
        return other

    @cached_property
    def index(self) -> tuple[Any, int]:
        """The broadcast, and how many clauses are wrong."""
        found = collected(self.subscriptions, self.skip)
        return ship(self.session.sparkContext, found.view, found.ids), len(found.wrong)

    def _indexed(self, strategy: str) -> DataFrame:
        index, wrong = self.index
        _warn(wrong)
        if strategy == "files":
            assert self.scan is not None
            return match_files(self.session, self.scan, index, self.attributes, self.schema, self.skip)
        return match_arrow(self.events, index, self.attributes, self.schema, self.skip)

    def plan(self, estimate: bool = True) -> MatchPlan:
        """`estimate`: even where the choice needs none."""
        with translated_errors():
            strategy, reason = self._choice()
            plan = MatchPlan(strategy, reason, self.count, self.count * self.bytes_each, self.limit)
            if estimate and not self.events.isStreaming:
                native = self.native
                plan.estimates = {"native": native.candidates, "arrow": native.matches}
                if self.scan is not None:
                    plan.estimates["files"] = native.matches
                plan.keys = [_in_words(key, self.space) for key in native.keys]
        return plan

    def _choice(self) -> tuple[str, str]:
        """A strategy, and why."""
        if self.events.isStreaming and (self.asked not in ("auto", "arrow") or self.too_many):
            raise CallerError(
                "a stream of events is matched by strategy 'arrow', with subscriptions that fit into a broadcast"
            )
        if self.asked == "files" and self.scan is None:
            raise CallerError(
                "strategy 'files' needs events that are a plain scan of Parquet files on a disk that every executor "
                "has: give a path, or take strategy='arrow'"
            )
        if self.asked == "native":
            return "native", "it was asked for"
        if self.too_many:
            size = f"{self.count:,} subscriptions make an index of about {self.count * self.bytes_each / 1e6:,.1f} MB"
            if self.asked == "auto":
                return "native", f"{size}: too large to broadcast, so both sides are shuffled"
            raise CallerError(
                f"{size}, more than the {self.limit / 1e6:,.0f} MB that may be broadcast: take strategy='native', or "
                "raise broadcast_limit"
            )
        if self.asked != "auto":
            return self.asked, "it was asked for"
        if self.events.isStreaming:
            return "arrow", "a stream cannot be sampled"
        if self.scan is not None:
            return "files", "the events are plain Parquet files: workers read them next to the index"
        events = _rows_estimated(self.events) or EVENTS_GUESSED
        arrow = events * (ARROW_EVENT + ARROW_VALUE * len(self.events.columns))
        if arrow < SAMPLING:
            return "arrow", f"about {events:,.0f} events: a sample would cost more than it could spare"
        native = self.native
        compared = f"{native.candidates:,.1f} candidates per event in a join, about {native.matches:,.1f} in the index"
        if native.cost < arrow + self.count * ARROW_SUBSCRIPTION:
            return "native", f"{compared}: comparing them costs less than the way to Python"
        return "arrow", f"{compared}: comparing them costs more than the way to Python"

    @cached_property
    def too_many(self) -> bool:
        """Whether the index is too large to broadcast. Subscriptions are counted only where Spark's guess is near."""
        guess = _rows_estimated(self.subscriptions.frame)
        if guess is not None and 4 * guess * self.bytes_each < self.limit:
            return False
        return self.count * self.bytes_each > self.limit

    @cached_property
    def count(self) -> int:
        return self.subscriptions.frame.count()

    @property
    def bytes_each(self) -> int:
        return 16 * len(self.space) + INDEX_BYTES

    @cached_property
    def scan(self) -> ParquetScan | None:
        return None if self.events.isStreaming else plain_scan(self.events)

    @cached_property
    def native(self) -> Native:
        wanted = constrained(self.subscriptions)
        hashes = [is_hashed(self.space.attributes[index]) for index in wanted]
        choose = ChooseKeys(wanted, hashes, _rows_estimated(self.events) or EVENTS_GUESSED, self.count)
        both = sampled(self.events, self.attributes, self.subscriptions, self.skip)
        rows = both.mapInArrow(choose, ChooseKeys.schema).collect()
        if not rows:  # no partition, no task
            return choose.chosen([])
        return msgspec.msgpack.decode(bytes(rows[0][0]), type=Native)

    def _joined(self) -> DataFrame:
        known = self.subscriptions
        id = F.col(name_sql(known.id)).alias("id")
        bad = known.frame.groupBy(id).count().where("count > 1 OR id IS NULL").limit(1).collect()
        if bad:
            raise_bad_id(bad[0]["id"])
        if self.skip and known.where is not None:
            _warn(wrong_clauses(known.frame, self.space).count())
        native = self.native
        keyed_rows = keyed(spread(typed(known, self.skip), self.space), native.keys, self.space)
        groups = keyed_rows.groupBy(CHOSEN).agg(F.sum(CELLS).alias("rows")).collect()
        if not groups:  # nothing to join: the events are only looked at
            return self._indexed("arrow")
        rest = any(row[CHOSEN] == len(native.keys) for row in groups)
        rows = sum(row["rows"] for row in groups)
        broadcast = rows * (ROW_BYTES + BOUND_BYTES * len(constrained(known))) <= self.limit
        salts = {} if broadcast else self._salts(native, rest)
        return match_native(self.events, self.attributes, known, native.keys, rest, broadcast, salts, self.skip)

    def _salts(self, native: Native, rest: bool) -> dict[int, int]:
        tasks = 4 * self.session.sparkContext.defaultParallelism
        empty = code_of(len(native.keys), ())
        hot = [(code, share) for code, share in native.hot if rest or code != empty]
        return {code: max(2, round(share * tasks)) for code, share in hot if share * tasks > 0.5}


# What `arrow` costs, in nanoseconds: an event's way to a worker and back, each of its values, and a subscription's way
# into the index. Below SAMPLING there is nothing to be won by looking for something better.
ARROW_EVENT, ARROW_VALUE, ARROW_SUBSCRIPTION, SAMPLING = 300.0, 40.0, 4000.0, 1e9


def _warn(wrong: int) -> None:
    if wrong:
        warnings.warn(f"{wrong:,} clauses are wrong and left out; thatch.spark.wrong_clauses lists them", stacklevel=5)


def _limit(session: SparkSession) -> int:
    """A share of the memory that an executor has."""
    context = session.sparkContext
    is_local = re.fullmatch(r"local(\[.*\])?", str(context.master)) is not None  # one process is driver and executor
    name = "spark.driver.memory" if is_local else "spark.executor.memory"
    memory = context.getConf().get(name, "1g")
    assert context._jvm is not None
    return int(context._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(memory) * SHARE)


def _rows_estimated(frame: DataFrame) -> float | None:
    """How many rows Spark expects, from its statistics; no job is run. None where it has no idea."""
    statistics = frame._jdf.queryExecution().optimizedPlan().stats()
    if statistics.rowCount().isDefined():
        return float(statistics.rowCount().get())
    size, width = float(statistics.sizeInBytes()), 8 + sum(_width(each) for each in frame.schema.fields)
    return size / width if size < 2**60 else None


def _width(field: StructField) -> int:
    return {"byte": 1, "short": 2, "integer": 4, "boolean": 1, "date": 4, "string": 20}.get(
        field.dataType.typeName(), 8
    )


def _in_words(key: Sequence[Any], space: Space) -> str:
    sides = [
        f"{space.attributes[grid.attribute].name} in {grid.size:,} {'cells' if grid.knots else 'hashes'}"
        for grid in key
    ]
    return " by ".join(sides)
