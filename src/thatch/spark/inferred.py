"""The space of subscriptions over a DataFrame of events, where none is given."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.errors import CallerError, SpaceError
from thatch.space.event_columns import bounded_columns
from thatch.space.schemas import ColumnPath
from thatch.space.space import Space
from thatch.spark.clauses import MentionNames
from thatch.spark.failures import map_batches, translated_errors
from thatch.spark.tables import UTC_NAMES, session_of
from thatch.spark.text import name_sql


def space_of(events: DataFrame, subscriptions: DataFrame) -> Space:
    """An attribute for each column of the events that a subscription mentions, or has bounds for."""
    zone = str(session_of(subscriptions).conf.get("spark.sql.session.timeZone"))
    try:
        return Space.of_columns(events.schema, paths_of(events, subscriptions), zone)
    except SpaceError as error:
        raise CallerError(f"the events cannot be matched with these subscriptions:\n{error}") from None


def paths_of(events: DataFrame, subscriptions: DataFrame) -> set[ColumnPath]:
    """The columns of the events that subscriptions mention, or have bounds for."""
    zone = str(session_of(subscriptions).conf.get("spark.sql.session.timeZone"))
    by_name = {name.lower(): name for name in subscriptions.columns}
    if "where" in by_name:
        clauses = subscriptions.select(F.col(name_sql(by_name["where"])).cast("string"))
        names = MentionNames("UTC" if zone in UTC_NAMES else zone)
        with translated_errors():
            return {tuple(row[0]) for row in map_batches(clauses, names, MentionNames.schema).distinct().collect()}
    return bounded_columns(events.schema, by_name)
