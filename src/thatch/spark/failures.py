"""Errors that happened on executors, as our own types.

What a worker or the JVM raises reaches the driver inside Spark's exceptions, below a stack trace. An error of Thatch
carries itself as a payload (payload.py): `map_batches` sees to it for the work of Python workers, `EventProblem` for
expressions. Spark keeps what was raised as a parameter of the innermost exception, and there the payload is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from thatch.errors import CallerError, ThatchError
from thatch.spark.payload import TOKEN, error_in, with_payload
from thatch.spark.workers import ADVICE, prepare_workers

Work = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]

# The parameter that has the text of what was raised, by the condition of Spark's exception.
RAISED = {"PYTHON_EXCEPTION": "traceback", "USER_RAISED_EXCEPTION": "errorMessage"}
NO_THATCH = "ModuleNotFoundError: No module named 'thatch'"  # the last line of a traceback


class Reporting:
    """In a worker: some work, whose errors carry their payload."""

    def __init__(self, work: Work, token: str) -> None:
        self._work, self._token = work, token
        self.__name__ = getattr(work, "__name__", type(work).__name__)  # which Spark shows in plans

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._work(batches)
        except ThatchError as error:
            raise with_payload(error, self._token) from None


def map_batches(frame: DataFrame, work: Work, schema: StructType | str) -> DataFrame:
    """`frame.mapInArrow(work, schema)`, on workers that can do it; what it raises can be translated."""
    prepare_workers(frame.sparkSession.sparkContext)
    return frame.mapInArrow(Reporting(work, TOKEN), schema)


def ours(error: BaseException) -> ThatchError | None:
    """The error of ours that an exception of Spark's carries, if it carries one."""
    for text in _raised_texts(error):
        found = error_in(text)
        if found is not None:
            return found
        if text.rstrip().endswith("\n" + NO_THATCH):
            return CallerError(
                "the Python workers cannot import thatch: install it on every executor, and let PYSPARK_PYTHON name "
                f"the Python that has it before the session starts; {ADVICE}"
            )
    return None


def _raised_texts(error: BaseException) -> Iterator[str]:
    """What was raised on executors, by the exception of Spark's and its causes; the innermost first."""
    causes = list(_java_causes(error))
    for cause in reversed(causes):
        if is_instance_of(SparkContext._gateway, cause, "org.apache.spark.SparkThrowable"):
            jvm: Any = SparkContext._jvm
            parameter = RAISED.get(jvm.PythonErrorUtils.getCondition(cause))
            if parameter is not None:
                yield str(jvm.PythonErrorUtils.getMessageParameters(cause)[parameter])
                continue
        yield cause.getMessage() or ""
    if not causes:
        yield str(error)


def _java_causes(error: BaseException) -> Iterator[Any]:
    cause: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()


@contextmanager
def translated_errors() -> Iterator[None]:
    """Errors of Thatch that Spark reports come out as themselves, with their fields.

    The functions of `thatch.spark` do this for the jobs that they run. Put it around actions on what they return:

        matches = ts.match(trades, alerts, space)
        with ts.translated_errors():
            matches.write.parquet("matches")

    Raises:
        EventError: an event has a value that its attribute does not allow.
        WrongClauses: clauses cannot be used.
        CallerError: anything else that a worker refused, or workers that cannot import Thatch.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        known = ours(error)
        if known is None:
            raise
        raise known from None
