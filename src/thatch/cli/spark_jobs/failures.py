"""What is wrong with files of subscriptions and events, with the place of each mistake."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thatch.cli.spark_jobs.inputs import Events, MalformedRecord
from thatch.cli.spark_jobs.rule_files import SubscriptionFiles
from thatch.cli.spark_jobs.session import sentence_of
from thatch.cli.wrong_rows import MORE_RULES, NAMED, raise_if_any, wrong_clause
from thatch.errors import CallerError, EventError, ThatchError
from thatch.space.space import Space
from thatch.spark import WrongClauses, wrong_clauses
from thatch.spark.failures import ours


def wrong(subscriptions: SubscriptionFiles, space: Space) -> DataFrame | None:
    """The subscriptions that cannot be used: id, where, line, column, error, place."""
    if "where" not in subscriptions.frame.columns:
        return subscriptions.malformed
    bad = wrong_clauses(subscriptions.frame, space)
    bad = subscriptions.placed(bad.withColumn("id", F.col("id").cast("string")))
    return bad if subscriptions.malformed is None else bad.union(subscriptions.malformed)


@contextmanager
def translated_failures(
    events: Events | None, subscriptions: SubscriptionFiles | None, space: Space | None
) -> Iterator[None]:
    """Failures of Spark as one sentence. If events are given, those of clauses and events with the place of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is left out is in the summary
        try:
            yield
        except (CallerError, PySparkException, Py4JError) as error:
            known = error if isinstance(error, CallerError) else ours(error) or CallerError(sentence_of(error))
            if events is not None and subscriptions is not None and space:
                _raise_with_places(known, events, subscriptions, space)
            raise known from None


def _raise_with_places(error: ThatchError, events: Events, subscriptions: SubscriptionFiles, space: Space) -> None:
    """Looks up which clauses or events an error is about, and raises one that names them."""
    if isinstance(error, WrongClauses | EventError | MalformedRecord):
        bad = wrong(subscriptions, space)
        raise_if_any([] if bad is None else named(bad), MORE_RULES)
    if isinstance(error, EventError | MalformedRecord):
        raise_if_any(events.first_bad(NAMED + 1))


def named(wrong: DataFrame) -> list[str]:
    rows = wrong.select("id", "where", "line", "column", "error", "place").take(NAMED + 1)
    return [wrong_clause(*row) for row in rows]


def check_readable(subscriptions: SubscriptionFiles) -> None:
    """Rows that could not even be read."""
    if subscriptions.malformed is not None:
        raise_if_any(named(subscriptions.malformed), MORE_RULES)
