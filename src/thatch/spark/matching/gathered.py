"""The two tables of a match, checked, and the facts about them that the choice of a strategy asks for."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from thatch.errors import CallerError, check_on_error
from thatch.space.event_columns import ID, event_columns
from thatch.space.space import Space
from thatch.spark.inferred import space_of
from thatch.spark.matching.choice import Choice, check_strategy, choose
from thatch.spark.matching.facts import Facts, MissingFact
from thatch.spark.matching.files import ParquetScan, plain_scan
from thatch.spark.matching.keys import Native
from thatch.spark.matching.sampled import chosen_keys
from thatch.spark.tables import SubscriptionFrame, check_time_zone, session_of
from thatch.spark.workers import is_local

SHARE = 0.25  # of an executor's memory that broadcast subscriptions may take
EVENTS_GUESSED = 1_000_000  # where Spark has no idea


class MatchTables:
    """Events and subscriptions of one match. A fact about them is found once, when somebody asks for it."""

    def __init__(
        self,
        events: DataFrame | str | Path,
        subscriptions: DataFrame,
        space: Space | None,
        strategy: str,
        on_error: str,
        broadcast_limit: int | None,
    ) -> None:
        check_strategy(strategy)
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

    @property
    def is_streaming(self) -> bool:
        return self.events.isStreaming

    def choice(self) -> Choice:
        """The strategy; facts are gathered as far as it depends on them."""
        facts = self.facts
        while isinstance(found := choose(facts), MissingFact):
            facts = replace(facts, **{found.value: self._find(found)})
        return found

    @property
    def facts(self) -> Facts:
        """The facts that cost nothing."""
        return Facts(self.asked, self.is_streaming, len(self.events.columns), len(self.space), self.limit)

    def _find(self, wanted: MissingFact) -> Any:
        match wanted:
            case MissingFact.IS_PLAIN_SCAN:
                return self.scan is not None
            case MissingFact.SUBSCRIPTIONS_GUESSED:
                guess = _rows_guessed(self.subscriptions.frame)
                return math.inf if guess is None else guess
            case MissingFact.SUBSCRIPTIONS:
                return self.count
            case MissingFact.EVENTS_GUESSED:
                return self.events_guessed
            case MissingFact.JOIN:
                return self.native.estimate

    @cached_property
    def count(self) -> int:
        """Of subscriptions."""
        return self.subscriptions.frame.count()

    @cached_property
    def scan(self) -> ParquetScan | None:
        return None if self.is_streaming else plain_scan(self.events)

    @cached_property
    def events_guessed(self) -> float:
        return _rows_guessed(self.events) or EVENTS_GUESSED

    @cached_property
    def native(self) -> Native:
        """The keys of a join on cells."""
        return chosen_keys(self.events, self.attributes, self.subscriptions, self.skip, self.events_guessed, self.count)


def _limit(session: SparkSession) -> int:
    """A share of the memory that an executor has."""
    context = session.sparkContext
    name = "spark.driver.memory" if is_local(context) else "spark.executor.memory"
    memory = context.getConf().get(name, "1g")
    assert context._jvm is not None
    return int(context._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(memory) * SHARE)


def _rows_guessed(frame: DataFrame) -> float | None:
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
