"""What goes wrong with files of subscriptions and events, told with the place of each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.cli.inputs import Events, Subscriptions
from thatch.cli.session import is_ours, told
from thatch.errors import CallerError
from thatch.space.space import Space
from thatch.spark import wrong_clauses

NAMED = 3  # clauses or events that an error names


def wrong(subscriptions: Subscriptions, space: Space) -> DataFrame | None:
    """The subscriptions that cannot be used: id, where, line, column, error."""
    if "where" not in subscriptions.frame.columns:
        return subscriptions.malformed
    bad = wrong_clauses(subscriptions.frame, space)
    bad = bad.withColumn("id", F.col("id").cast("string"))
    return bad if subscriptions.malformed is None else bad.union(subscriptions.malformed)


@contextmanager
def failures_told(events: Events | None, subscriptions: Subscriptions | None, space: Space) -> Iterator[None]:
    """Failures of Spark as one sentence. If events are given, those of clauses and events with the place of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left out is in the summary
        try:
            yield
        except (CallerError, PySparkException, Py4JError) as error:
            told_of_clauses = isinstance(error, CallerError) and str(error).startswith("subscription ")
            raised_there = not isinstance(error, CallerError) and is_ours(error)
            if events is not None and subscriptions is not None and (told_of_clauses or raised_there):
                bad = wrong(subscriptions, space)
                refuse([] if bad is None else named(bad))
                refuse(events.first_bad(NAMED + 1) if raised_there else [])
            raise error if isinstance(error, CallerError) else CallerError(told(error)) from None


def named(wrong: DataFrame) -> list[str]:
    lines = []
    for row in wrong.take(NAMED + 1):
        place = "" if row["line"] is None else f"line {row['line']}, column {row['column']}: "
        text = "" if row["where"] is None else "\n    " + row["where"][:200].replace("\n", "\n    ")
        lines.append(f"subscription {'?' if row['id'] is None else row['id']}: {place}{row['error']}{text}")
    return lines


def refuse_malformed(subscriptions: Subscriptions) -> None:
    """Rows that could not even be read."""
    if subscriptions.malformed is not None:
        refuse(named(subscriptions.malformed))


def refuse(named: list[str]) -> None:
    if named:
        more = "\nand more" if len(named) > NAMED else ""
        listed = "\n".join(named[:NAMED])
        raise CallerError(f"{listed}{more}\nCorrect them, or leave them out with --on-error skip")
