"""Expressions of Spark as SQL text, which the JVM parses in one call; put together column by column, each part of an
expression is a call to the JVM of its own.

What a text means depends on the session: how backslashes and two quotes in a row are read, whether `${…}` is replaced,
which words are reserved. So whatever comes from outside is written such that no setting changes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[^'\\$]*")


def text_sql(text: str) -> str:
    """A string literal in SQL."""
    return f"'{text}'" if _PLAIN.fullmatch(text) else f"CAST(X'{text.encode().hex()}' AS STRING)"


def double_sql(value: float) -> str:
    """A double literal in SQL, exact to the last bit."""
    return f"{value!r}D" if math.isfinite(value) else f"CAST('{value!r}' AS DOUBLE)"


def name_sql(name: str) -> str:
    """A column name, quoted."""
    return "`" + name.replace("`", "``") + "`"


def column_sql(name: str) -> str:
    """A column name, quoted for use within an expression."""
    return name_sql(name) if "${" not in name else f"IDENTIFIER({text_sql(name_sql(name))})"


def path_sql(path: Sequence[str]) -> str:
    """A column, or a field within one, quoted for use within an expression."""
    if len(path) == 1:
        return column_sql(path[0])
    text = ".".join(map(name_sql, path))
    return text if "${" not in text else f"IDENTIFIER({text_sql(text)})"


def case_sql(*branches: tuple[str, str], otherwise: str = "NULL") -> str:
    """The value of the first condition that is true."""
    return f"CASE {' '.join(f'WHEN {condition} THEN {value}' for condition, value in branches)} ELSE {otherwise} END"
