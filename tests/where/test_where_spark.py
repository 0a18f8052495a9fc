"""Spark is the oracle: for every clause and row, `contains` says what Spark's filter says.

Thousands of random clauses (clauses.py) and a list of corner cases found by probing Spark, all over the same
rows. Spark evaluates them as columns, a hundred to a job. For other clauses set THATCH_SEED to a number.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from helpers.clause_rows import SPACE, make_rows, make_table, without_some_nulls
from helpers.clauses import RULES, Clause, ClauseWriter, spelled_out
from helpers.spark_oracles import frame_of
from thatch import Region, Space

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answers = NDArray[np.bool_]

SEED = int(os.environ.get("THATCH_SEED", "20200229"))
CLAUSES = 20_000 if os.environ.get("THATCH_SOAK") else 600
ROWS = 200
PER_JOB = 100
FEW = 10  # rows that a clause is asked for while strings are still being cut
SHOWN = 20

CASES = r'''
-- a bigint compared with a decimal: <, <=, > and >= beyond int64 are constants, for NULL too; = and <=> are not
count > -99999999999999999999
NOT count > 99999999999999999999
NOT count < 99999999999999999999
99999999999999999999 >= count
NOT (99999999999999999999 < count)
count > (-99999999999999999999)
count = 99999999999999999999
NOT count = 99999999999999999999
NOT (count <=> 99999999999999999999)
99999999999999999999 <=> count
count IS DISTINCT FROM 99999999999999999999
count BETWEEN -99999999999999999999 AND 99999999999999999999
count NOT BETWEEN -99999999999999999999 AND 99999999999999999999
count BETWEEN 5 AND 99999999999999999999
count NOT BETWEEN 5 AND 99999999999999999999
count BETWEEN NULL AND -99999999999999999999
NOT count BETWEEN NULL AND -99999999999999999999
NOT count BETWEEN NULL AND 99999999999999999999
count BETWEEN NULL AND 5
count NOT BETWEEN NULL AND 5
count NOT BETWEEN 5 AND NULL
count BETWEEN 7 AND 5
NOT size > 99999999999999999999
size < 99999999999999999999
count < 9223372036854775807.5
count >= 9223372036854775807.0
count <= 9223372036854775807.0
count > -9223372036854775808.5
serial >= -9223372036854775808
serial < -9223372036854775808
serial < -9223372036854775809
-9223372036854775808L = serial
count = 5.00000000000000000000000000001
count > 5.00000000000000000000000000001
count = 4.9999999999999999999999999999999999999
count >= 4.9999999999999999999999999999999999999
count <=> 4.9999999999999999999999999999999999999
-5.5 <= count
-5.5 > count
count <> 5.5
count BETWEEN 4.5 AND 7.5D
count = 9007199254740993D
count > 9007199254740993D
count <= 9007199254740993D
count = 9223372036854775807D
count < 9.3e18
count = 16777217F
count = ' 5 '
'+005' = count
-- lists: one common type, found from left to right
count IN ('5', 1.5)
count IN (1.5, '5')
count IN ('9007199254740993', 1.5)
count IN (1.5, '9007199254740993')
count IN ('4.96', 1.5)
count IN (9007199254740993, 1e0)
count IN ('9223372036854775807', 1F)
count IN (99999999999999999999999999999999999999, 1.5)
count IN (0.00000000000000000000000000000000000001, 99999999999999999999999999999999999999)
count NOT IN (1.5)
count NOT IN (1.5, NULL)
count NOT IN (NULL)
NOT count IN (5, NULL)
count IN (5, NULL) OR count IS NULL
amount IN (99999999999999999999999999999999999999, 6)
amount NOT IN (99999999999999999999999999999999999999, 6)
amount IN (9999999999999999999999999999999999999.9, 1)
wide IN (99999999999999999999999999999999999999, 5, 1)
wide IN (999999999999999999999999999999999999.9, 1, 0)
amount IN (0.99999999999999999999999999999999999999, 5.01)
amount IN ('5.01', 99999999999999999999999999999999999999)
amount IN (5.5F, 1Y, 100S, 6L)
wide IN ('123456789012.345678')
wide IN (123456789012.345678)
price IN ('NaN', 0)
price NOT IN ('NaN', '-Infinity', NULL)
price IN (0.1F, 5.5)
day IN ('2020-02-29 10:00:00', DATE'2020-03-01')
day IN ('2020-02-29 10:00:00', TIMESTAMP'2020-03-01')
day IN ('2020-02-29T', '2020-02')
day NOT IN (TIMESTAMP'2020-02-29 10:00:00', NULL)
day NOT IN (TIMESTAMP'2020-02-29 10:00:00')
at IN ('2020-02-29', DATE'2020-01-01', NULL)
-- decimals
amount = 0.99999999999999999999999999999999999999
amount > 0.99999999999999999999999999999999999999
amount >= 0.00000000000000000000000000000000000001
wide > 0.00000000000000000000000000000000000001
wide <= 0.00000099999999999999999999999999999999
amount < 99999999999999999999999999999999999999
amount = '5.01'
amount <=> 5.005
amount <= 5.005
amount = 5.01F
amount = 5.01D
wide = 123456789012.345678D
wide > 123456789012.345678D
wide > '123456789012.345678'
wide = 9007199254.740993D
amount BETWEEN '5.01' AND 6
amount = 1e2BD
amount BETWEEN -.01 AND 00.010
-- decimals of more than 18 digits
huge <= 4 OR huge >= 4.0000000001
huge > 4 AND huge < 4.0000000001
huge IN (4, 4.0000000001, 9999999999999999999999999999.9999999999)
huge NOT IN (4, 5.5)
NOT huge <=> 4.00000000000000000000
huge = 12345678901234567890.12345678904
huge = 12345678901234567890.1234567890D
huge >= 1e20
huge = '99999999999999991611392'
huge < 99999999999999999999999999999999999999
huge > -9999999999999999999999999999.9999999999
huge BETWEEN -0.0000000001 AND 0.00000000005
unsigned = 18446744073709551615
unsigned >= 9223372036854775808
unsigned > 9223372036854775807.5
unsigned = 9223372036854775808D
unsigned <> -1
unsigned <= 18446744073709551616
unsigned IN (18446744073709551615, 18446744073709551616, 5.0)
share <= 0
share <= 0.0
share < 1
share < 1Y
share < 100S
share < 10000000000L
share IN (1, 0.5)
share IN (1L, 0.25)
share BETWEEN 0 AND 1
share = 0.99999999999999999999999999995
share > 12345.5
share = 0.1D
-- beyond the domain
fee <> 300
fee = 300
fee BETWEEN 100 AND 1000
NOT fee < '1e400'
size <> 200
size NOT BETWEEN -200 AND 200
NOT size < 200
size IN (200, 5)
ratio < 'NaN'
ratio > -1
ratio = 0
due > '2150-01-01'
due NOT BETWEEN '1800' AND '2150'
-- doubles
price = 'NaN'
price <=> 'nan'
price > 'Infinity'
price >= 'inf'
price = -0.0D
price < 0.0
price BETWEEN '-inf' AND '+Infinity'
price NOT BETWEEN 'NaN' AND 'NaN'
price = 0.1
price = 0.1F
price = 0.1000000000000000055511151231257827021
price > 2.4703282292062328e-324
price >= '2.4703282292062327e-324'
price = '1e400'
price = ' 5.5d '
price = 9007199254740993
price > 9007199254740993
price >= 9007199254740993.00000000000000000001
price = 9223372036854775807
price = 3.4028234663852886E+38F
-- dates
day >= '2020'
day = '2020-2'
day = '2020-2-3'
day = '2020-02-03 10:00:00'
day = '2020-02-29T'
day = ' 2020-02-29 '
day <= '+2020-02-29'
day = TIMESTAMP'2020-02-29'
day < TIMESTAMP'2020-02-29 10:00:00'
day <= TIMESTAMP'2020-02-29 10:00:00'
day >= TIMESTAMP'2020-02-29 00:00:00.000001'
NOT day = TIMESTAMP'2020-02-29 10:00:00'
day <=> TIMESTAMP'2020-02-29 01:00:00+01:00'
day BETWEEN '2020-02-29' AND TIMESTAMP'2020-03-01 10:00:00'
day < '+10000-01-01'
day < DATE'0000-12-31'
day >= '-0044-03-15'
-- timestamps
at >= '2020'
at < '2020-03'
at = '2020-02-29'
at = '2020-2-1'
at = DATE'2020-02-29'
at = '2020-02-29 10'
at = '2020-02-29 10:00'
at = '2020-2-29 10:0:0.'
at = '2020-02-29T10:00:00Z'
at = '2020-02-29 10:00:00UTC'
at = '2020-02-29 11:00:00+01:00'
at = '2020-02-29 11:00:00 +1'
at = '2020-02-29 11:00:00+0100'
at = '2020-02-29 11:00:00 GMT+1'
at = '2020-02-29 11:00:00 Europe/Paris'
at = '2020-02-29 11:00:00Europe/Paris'
at = '2020-03-29 02:30:00 Europe/Paris'
at = '2020-10-25 02:30:00 Europe/Paris'
at = '2020-02-29 10:00:00.123'
at < '2020-02-29 10:00:00.1'
at = '2020-02-29 10:00:00.123456789'
at = '2020-02-29T10:00:00.123000Z'
at = '1969-12-31 23:59:59.9999999'
at = TIMESTAMP'2020-02-29 11:00:00.123456789 Europe/Paris'
at > TIMESTAMP'0001-01-01 00:00:00+01:00'
at <= '9999-12-31 23:59:59.999999-01:00'
at > '10000-01-01'
at BETWEEN DATE'2020-02-29' AND '2020-02-29 10:00:00'
-- strings: escapes, order
name = '\\'
name = r'\'
name = '\%'
name = 'it''s' OR name = "say ""x"""
name = 'it\'s' OR name = "say \"x\""
name IN ('\141bc', '\u00e9', '\U0001F600', '\ud83d\ude00a', 'abc\0', '\Z', '\t', '\x41', '\400')
name > 'abc' AND name < 'abc\u0001'
name >= '\uffff'
name < '😀'
name BETWEEN 'b' AND 'a'
'abc' <= name
name <> ''
name = ' a'
-- LIKE
name LIKE '\%'
name LIKE '\\%'
name LIKE r'\%'
name LIKE r'\\%'
name LIKE '\\\\%'
name LIKE '100\%%'
name LIKE '100!%%' ESCAPE '!'
name LIKE '!!' ESCAPE '!'
name LIKE 'a!!%' ESCAPE '!'
name LIKE '\\%' ESCAPE '!'
name LIKE 'a\_b'
name LIKE '\_%'
name LIKE 'abc%'
NOT name LIKE 'abc%'
name LIKE ''
name LIKE '%'
name NOT LIKE '%'
name LIKE '\uffff%'
name LIKE '\U0010ffff%'
name LIKE 'a\n%'
kind LIKE '%e%'
kind LIKE '_'
kind NOT LIKE '_%'
mode LIKE '50\%\_%'
mode LIKE '__'
mode LIKE '%😀'
kind < 'a'
kind = 'nowhere'
kind <> 'nowhere'
NOT kind IN ('a', 'nowhere', NULL)
kind BETWEEN '' AND 'Zed'
-- logic
flag < true
flag >= false
flag BETWEEN false AND true
flag IN (true, NULL)
NOT flag IN (false, NULL)
NOT flag IS TRUE
flag IS NOT FALSE
! flag = true
! flag IS NULL
!flag
flag <=> NULL
flag = NULL OR flag IS UNKNOWN
live IS UNKNOWN
NULL OR flag
NOT (NULL AND flag)
flag OR live AND count > 5
NOT flag AND live OR NOT count = 5
NOT NOT count > 5
serial <=> NULL
serial NOT IN (5, NULL)
serial IS DISTINCT FROM NULL
'''

WITHIN_CASES = [
    ("0", ["count"], ["9007199254740993"]),
    ("0", ["wide"], ["123456789012.345678"]),
    ("0", ["price"], ["-0.0D"]),
    ("1e200", ["price"], ["0"]),
    ("1e200", ["price", "size"], ["1e300", "5"]),
    ("5", ["price"], ["NULL"]),
    ("NULL", ["price"], ["0"]),
    ("0.1F", ["price"], ["0"]),
    ("5.5", ["amount", "size", "fee"], ["1", "2.5", "1e0"]),
    ("99999999999999999999", ["serial", "count"], ["-9223372036854775808", "99999999999999999999"]),
]


def corner_cases() -> list[Clause]:
    lines = (line for line in CASES.splitlines() if line and not line.startswith("--"))
    cases = [Clause(line, line, frozenset(["corner case"])) for line in lines]
    for radius, names, centres in WITHIN_CASES:
        pairs = list(zip(names, centres, strict=True))
        ours = f"within({', '.join([radius, *(f'{name}, {centre}' for name, centre in pairs)])})"
        cases.append(Clause(ours, spelled_out(radius, pairs), frozenset(["corner case"])))
    return cases


@dataclass(frozen=True)
class Events:
    """The same rows for `contains`, for `contains_batch` and for Spark."""

    rows: list[dict[str, Any]]
    table: pa.Table
    frame: DataFrame


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> Iterator[Events]:
    """Interpreted, since compiling a hundred expressions takes Spark longer than evaluating them."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    random = Random(SEED)
    rows = make_rows(random, ROWS)
    table = make_table(rows)
    # One partition keeps the rows in order; without it Spark would fold the clauses before optimising them.
    frame = frame_of(spark, table).coalesce(1)
    yield Events([without_some_nulls(random, row) for row in rows], table, frame)
    for name, value in before.items():
        spark.conf.set(name, value)


def ask_spark(frame: DataFrame, clauses: Sequence[Clause]) -> Answers:
    """A row of answers for each clause: True, or not True (FALSE or NULL)."""

    def ask(part: Sequence[Clause]) -> Answers:
        columns = [f"({clause.spark}\n) AS c{place}" for place, clause in enumerate(part)]
        answers = frame.selectExpr(*columns).toArrow()
        return np.array([column.fill_null(False).to_numpy() for column in answers.columns])

    parts = [clauses[start : start + PER_JOB] for start in range(0, len(clauses), PER_JOB)]
    with ThreadPoolExecutor(2) as pool:
        return np.concatenate(list(pool.map(ask, parts)))


class Comparison:
    """Our answers against Spark's, and what to say about the differences."""

    def __init__(self, events: Events) -> None:
        self.space, self.events = Space.parse(SPACE), events
        self.report: list[str] = []
        self.pairs: Counter[str] = Counter()  # pairs of clause and row that differ, by rule
        self.clauses: Counter[str] = Counter()  # clauses with such a pair, by rule

    def compare(self, clause: Clause, spark_says: Answers) -> None:
        """One clause, by the public functions."""
        try:
            region = self.space.where(clause.ours)
            contains = np.array([region.contains(row) for row in self.events.rows])
            batch = region.contains_batch(self.events.table)
        except Exception as error:  # refused or broken: a difference like any other
            self._differs(clause, ROWS, f"{type(error).__name__}: {error}")
            return
        self._note(clause, spark_says, contains, batch)

    def compare_many(self, clauses: Sequence[Clause], spark_says: Answers) -> None:
        """Many clauses, whose strings are all cut before the single rows are encoded: once, and not for each clause.
        The batch, and some of the rows, are also asked for while strings are still being cut."""
        regions: list[tuple[Clause, Region, Answers]] = []
        for at, (clause, answers) in enumerate(zip(clauses, spark_says, strict=True)):
            some = [(at * FEW + each) % ROWS for each in range(FEW)]
            try:
                region = self.space.where(clause.ours)
                batch = region.contains_batch(self.events.table)
                differ = np.flatnonzero(batch != answers)
                if differ.size:
                    self._differs(clause, differ.size, f"Spark {answers[differ[0]]} for {self.events.rows[differ[0]]}")
                for row in some:
                    if region.contains(self.events.rows[row]) != answers[row]:
                        self._differs(clause, 1, f"Spark {answers[row]} for {self.events.rows[row]}, and contains not")
            except Exception as error:  # refused or broken: a difference like any other
                self._differs(clause, ROWS, f"{type(error).__name__}: {error}")
                continue
            regions.append((clause, region, answers))
        encoded, _ = self.space.stable(
            lambda: (
                [self.space.encode(row) for row in self.events.rows],
                self.space.encode_batch(self.events.table),
            )
        )
        points, columns = encoded
        for clause, region, answers in regions:
            contains = np.array([region.contains_point(point) for point in points])
            self._note(clause, answers, contains, region.contains_points(columns))

    def _note(self, clause: Clause, spark_says: Answers, contains: Answers, batch: Answers) -> None:
        differ = np.flatnonzero((contains != spark_says) | (batch != spark_says))
        if differ.size:
            first, text = differ[0], clause.ours.lower()
            row = {each: value for each, value in self.events.rows[first].items() if each in text}
            answers = f"Spark {spark_says[first]}, contains {contains[first]}, contains_batch {batch[first]}"
            self._differs(clause, differ.size, f"{answers} for {row} and {differ.size - 1} other rows")

    def _differs(self, clause: Clause, rows: int, how: str) -> None:
        self.pairs.update(dict.fromkeys(clause.rules, rows))
        self.clauses.update(clause.rules)
        spark = "" if clause.spark == clause.ours else f"\n  for Spark: {clause.spark!r}"
        self.report.append(f"{clause.ours!r}{spark}\n  {how}")

    def check(self, written: Counter[str]) -> None:
        """Fail if anything differs: the shortest clauses, and the rules most often involved first."""
        if self.report:
            shown = "\n".join(sorted(self.report, key=len)[:SHOWN])
            rules = sorted(self.pairs, key=lambda rule: self.clauses[rule] / written[rule], reverse=True)
            counts = {rule: f"{self.clauses[rule]} of {written[rule]} clauses" for rule in rules}
            by_rule = "; ".join(f"{rule}: {self.pairs[rule]} in {count}" for rule, count in counts.items())
            summary = f"seed {SEED}: {len(self.report)} clauses differ, the shortest of them:"
            pytest.fail(f"{summary}\n{shown}\ndiffering rows by rule: {by_rule}", pytrace=False)


def test_random_clauses_answer_as_spark_does(events: Events) -> None:
    writer = ClauseWriter(Random(SEED))
    clauses = [writer.clause() for _ in range(CLAUSES)]
    spark_says = ask_spark(events.frame, clauses)
    print(f"seed {SEED}: {CLAUSES} clauses over {ROWS} rows, {spark_says.mean():.1%} true; clauses by rule:")
    print(*(f"{rule}: {writer.counts[rule]}" for rule in sorted(RULES)), sep=", ")
    assert not RULES - set(writer.counts), "rules never reached"
    assert 0.3 <= spark_says.mean() <= 0.7
    comparison = Comparison(events)
    comparison.compare_many(clauses, spark_says)
    comparison.check(writer.counts)


@pytest.fixture(scope="module")
def corner_answers(events: Events) -> dict[str, Answers]:
    cases = corner_cases()
    return {case.ours: answers for case, answers in zip(cases, ask_spark(events.frame, cases), strict=True)}


@pytest.mark.parametrize("case", corner_cases(), ids=lambda case: case.ours)
def test_corner_case(case: Clause, events: Events, corner_answers: dict[str, Answers]) -> None:
    comparison = Comparison(events)
    comparison.compare(case, corner_answers[case.ours])
    comparison.check(Counter(case.rules))
