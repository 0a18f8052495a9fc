"""Expressions as text: strings, doubles and names mean the same whatever the session's settings are."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import pytest

from helpers.spark_oracles import settings
from thatch import Space

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from pyspark.sql import functions as F

import thatch.spark as ts
from thatch.spark.text import column_sql, double_sql, name_sql, text_sql

TEXTS = ["", "a", "it's", "''", '"', "\\", "\\n", "\\'", "a\nb", "\r\n", "\0", "\x1a", "é😀\U0010ffff", "\u2028", "$"]
TEXTS += ["${spark.app.name}", "${env:PATH}", ":x ?", "--", "/*", "%_", "`"]
DOUBLES = [0.0, -0.0, 5e-324, -5e-324, 1e-310, sys.float_info.min, sys.float_info.max, -sys.float_info.max, 0.1, 1e22]
DOUBLES += [1e300, 2.0**53 + 2, 123456789.12345679, math.inf, -math.inf, math.nan]
NAMES = ["a.b", "x`y", "``", "${spark.app.name}", "two\nlines é😀", "se'lect\\", "exists", "null", " ", ""]
STRICT = ("spark.sql.ansi.enforceReservedKeywords", "spark.sql.ansi.doubleQuotedIdentifiers")
SETTINGS = {
    "default": {},
    "backslashes stay": {"spark.sql.parser.escapedStringLiterals": "true"},
    "two quotes join": {"spark.sql.legacy.consecutiveStringLiterals.enabled": "true"},
    "exponents are decimals": {"spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true"},
    "reserved words": dict.fromkeys(STRICT, "true"),
    "not ANSI": {"spark.sql.ansi.enabled": "false"},
}


@pytest.mark.parametrize("case", SETTINGS)
def test_text_means_one_thing(case: str, spark: SparkSession) -> None:
    columns = spark.range(1).select(*[F.lit(place).alias(name) for place, name in enumerate(NAMES)])
    with settings(spark, SETTINGS[case]):
        texts = [f"{text_sql(each)} AS t{place}" for place, each in enumerate(TEXTS)]
        doubles = [f"{double_sql(each)} AS d{place}" for place, each in enumerate(DOUBLES)]
        names = [f"{column_sql(each)} + 0 AS n{place}" for place, each in enumerate(NAMES)]
        row = list(columns.selectExpr(*texts, *doubles, *names).collect()[0])
        assert row[: len(TEXTS)] == TEXTS
        assert list(map(repr, row[len(TEXTS) : -len(NAMES)])) == list(map(repr, DOUBLES))
        assert row[-len(NAMES) :] == list(range(len(NAMES)))
        assert columns.selectExpr(*map(column_sql, NAMES)).columns == NAMES
        assert columns.select(*map(name_sql, NAMES)).columns == NAMES


def test_names_and_values_that_sql_could_misread(spark: SparkSession) -> None:
    """Through the join, and in what is said about a bad value."""
    space = Space.parse("`${spark.app.name}` enum('it''s', '\\\\', '${spark.app.name}') not null, `a.b` double")
    values = ["it's", "\\", "${spark.app.name}", "other"]
    schema = "`${spark.app.name}` string, `a.b` double, `null` int"
    events = spark.createDataFrame([(value, place / 2, place) for place, value in enumerate(values)], schema)
    bounds = spark.createDataFrame([(7, 0.25, 0.75), (8, 0.0, None)], "id int, `low_a.b` double, `a.b_high` double")
    with settings(spark, SETTINGS["backslashes stay"] | SETTINGS["reserved words"]):
        found = ts.match(events, bounds, space, strategy="native", on_error="skip")
        assert found.columns == [*events.columns, "subscription_id"]
        pairs = sorted((row["${spark.app.name}"], row["null"], row["subscription_id"]) for row in found.collect())
        assert pairs == [("${spark.app.name}", 2, 8), ("\\", 1, 7), ("\\", 1, 8), ("it's", 0, 8)]
        wrong = ts.wrong_events(events, space).collect()
        assert [row["null"] for row in wrong] == [3]
        enum = space.attributes[0].axis.sql
        assert wrong[0]["error"] == f"attribute '${{spark.app.name}}': other is not a value of {enum}"
