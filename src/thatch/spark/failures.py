"""Errors that happened on executors, as our own types.

What a worker or the JVM raises reaches the driver inside Spark's exceptions, below a stack trace. If its cause is an
error of Thatch, that is what the caller should see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from thatch.errors import CallerError

_OURS = re.compile(r"thatch\.errors\.\w+: (.*?)(?=\n\n|\n\tat |\n\s*\*\*|\Z)", re.DOTALL)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (attribute .*?)(?: SQLSTATE: P0001|\n|\Z)", re.DOTALL)


def ours(error: BaseException) -> CallerError | None:
    """The error of ours that an exception of Spark's carries, if it carries one."""
    text = str(error)
    for pattern in (_OURS, _RAISED):
        found = pattern.search(text)
        if found:
            return CallerError(found[1].strip())
    if "No module named 'thatch'" in text:
        return CallerError(
            "the Python workers cannot import thatch: install it on every executor, and let PYSPARK_PYTHON name the "
            "Python that has it before the session starts"
        )
    return None


@contextmanager
def translated_errors() -> Iterator[None]:
    """Around jobs that are run while a plan is made."""
    try:
        yield
    except PySparkException as error:
        known = ours(error)
        if known is None:
            raise
        raise known from None
