"""Who wants each event: a DataFrame of events, one of subscriptions, and the pairs.

Three strategies give the same rows. A `Job` does what the choice says (choice.py); `explain` says which one and why.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from thatch.errors import CallerError
from thatch.space.event_columns import event_columns
from thatch.space.space import Space
from thatch.spark.clauses import ListWrong
from thatch.spark.failures import map_batches, translated_errors
from thatch.spark.matching.arrow import match_arrow
from thatch.spark.matching.cells import code_of
from thatch.spark.matching.choice import MatchPlan
from thatch.spark.matching.collected import collected, raise_bad_id
from thatch.spark.matching.files import match_files
from thatch.spark.matching.gathered import MatchTables
from thatch.spark.matching.keys import Native
from thatch.spark.matching.native import CELLS, CHOSEN, keyed, match_native
from thatch.spark.matching.shipped import ship
from thatch.spark.matching.typed import constrained, spread, typed
from thatch.spark.tables import SubscriptionFrame, check_time_zone, fields, session_of, wrong_event
from thatch.spark.text import name_sql

ROW_BYTES, BOUND_BYTES = 64, 24  # of a subscription that is written out for a join: the row, each attribute


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
    return map_batches(clauses, ListWrong(space), StructType([*clauses.schema.fields, *facts]))


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
        self.tables = MatchTables(events, subscriptions, space, strategy, on_error, broadcast_limit)

    def result(self) -> DataFrame:
        with translated_errors():
            strategy = self.tables.choice().strategy
            return self._joined() if strategy == "native" else self._indexed(strategy)

    def for_events(self, events: DataFrame) -> Job:
        """The same subscriptions with other events: an index that was made is used again."""
        own = self.tables
        on_error = "skip" if own.skip else "raise"
        other = Job(events, own.subscriptions.frame, own.space, own.asked, on_error, own.limit)
        if "index" in vars(self):
            other.index = self.index
        if "count" in vars(own):
            other.tables.count = own.count
        return other

    @cached_property
    def index(self) -> tuple[Any, int]:
        """The broadcast, and how many clauses are wrong."""
        found = collected(self.tables.subscriptions, self.tables.skip)
        return ship(self.tables.session.sparkContext, found.view, found.ids), len(found.wrong)

    def _indexed(self, strategy: str) -> DataFrame:
        index, wrong = self.index
        _warn(wrong)
        own = self.tables
        if strategy == "files":
            assert own.scan is not None
            return match_files(own.session, own.scan, index, own.attributes, own.schema, own.skip)
        return match_arrow(own.events, index, own.attributes, own.schema, own.skip)

    def plan(self, estimate: bool = True) -> MatchPlan:
        """`estimate`: even where the choice needs none."""
        own = self.tables
        with translated_errors():
            strategy, reason = own.choice()
            plan = MatchPlan(strategy, reason, own.count, own.count * own.facts.subscription_bytes, own.limit)
            if estimate and not own.is_streaming:
                native = own.native
                plan.estimates = {"native": native.candidates, "arrow": native.matches}
                if own.scan is not None:
                    plan.estimates["files"] = native.matches
                plan.keys = [_in_words(key, own.space) for key in native.keys]
        return plan

    def _joined(self) -> DataFrame:
        own, known = self.tables, self.tables.subscriptions
        id = F.col(name_sql(known.id)).alias("id")
        bad = known.frame.groupBy(id).count().where("count > 1 OR id IS NULL").limit(1).collect()
        if bad:
            raise_bad_id(bad[0]["id"])
        if own.skip and known.where is not None:
            _warn(wrong_clauses(known.frame, own.space).count())
        native = own.native
        keyed_rows = keyed(spread(typed(known, own.skip), own.space), native.keys, own.space)
        groups = keyed_rows.groupBy(CHOSEN).agg(F.sum(CELLS).alias("rows")).collect()
        if not groups:  # nothing to join: the events are only looked at
            return self._indexed("arrow")
        rest = any(row[CHOSEN] == len(native.keys) for row in groups)
        rows = sum(row["rows"] for row in groups)
        broadcast = rows * (ROW_BYTES + BOUND_BYTES * len(constrained(known))) <= own.limit
        salts = {} if broadcast else self._salts(native, rest)
        return match_native(own.events, own.attributes, known, native.keys, rest, broadcast, salts, own.skip)

    def _salts(self, native: Native, rest: bool) -> dict[int, int]:
        tasks = 4 * self.tables.session.sparkContext.defaultParallelism
        empty = code_of(len(native.keys), ())
        hot = [(code, share) for code, share in native.hot if rest or code != empty]
        return {code: max(2, round(share * tasks)) for code, share in hot if share * tasks > 0.5}


def _warn(wrong: int) -> None:
    if wrong:
        warnings.warn(f"{wrong:,} clauses are wrong and left out; thatch.spark.wrong_clauses lists them", stacklevel=5)


def _in_words(key: Sequence[Any], space: Space) -> str:
    sides = [
        f"{space.attributes[grid.attribute].name} in {grid.size:,} {'cells' if grid.knots else 'hashes'}"
        for grid in key
    ]
    return " by ".join(sides)
