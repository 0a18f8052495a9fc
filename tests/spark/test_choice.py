"""The choice of a strategy from facts alone: every strategy, every reason, every error, and what is asked for when."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import pytest

from helpers.paths import SOURCE

pytest.importorskip("pyspark")  # which the package imports, and what is tested here does not
from thatch.errors import CallerError
from thatch.spark.matching.choice import (
    ARROW_EVENT,
    ARROW_SUBSCRIPTION,
    ARROW_VALUE,
    SAMPLING,
    STRATEGIES,
    Choice,
    MatchPlan,
    check_strategy,
    choose,
    is_index_too_large,
)
from thatch.spark.matching.facts import Facts, JoinEstimate, MissingFact

PURE = ("facts", "choice", "keys", "cells")  # modules of `matching` that know nothing of Spark

# Two attributes: 80 bytes for each subscription. A table of 10 million events with 5 columns.
FACTS = Facts(
    asked="auto",
    is_streaming=False,
    event_columns=5,
    attributes=2,
    limit_bytes=1_000_000,
    is_plain_scan=False,
    subscriptions_guessed=100.0,
    subscriptions=100,
    events_guessed=1e7,
    join=JoinEstimate(2.0, 0.5, 1e6),
)
MANY = {"subscriptions_guessed": 20_000.0, "subscriptions": 20_000}  # an index of 1.6 MB
ARROW_COST = 1e7 * (ARROW_EVENT + 5 * ARROW_VALUE) + 100 * ARROW_SUBSCRIPTION
IN_WORDS = "2.0 candidates per event in a join, about 0.5 in the index: comparing them costs"
SIZE = "20,000 subscriptions make an index of about 1.6 MB"

CHOICES: dict[str, tuple[dict[str, Any], str, str]] = {
    "native by name": ({"asked": "native"}, "native", "it was asked for"),
    "native by name, too large": ({"asked": "native", **MANY}, "native", "it was asked for"),
    "arrow by name": ({"asked": "arrow"}, "arrow", "it was asked for"),
    "arrow by name, plain files": ({"asked": "arrow", "is_plain_scan": True}, "arrow", "it was asked for"),
    "files by name": ({"asked": "files", "is_plain_scan": True}, "files", "it was asked for"),
    "too large": (MANY, "native", f"{SIZE}: too large to broadcast, so both sides are shuffled"),
    "too large, plain files": (
        {"is_plain_scan": True, **MANY},
        "native",
        f"{SIZE}: too large to broadcast, so both sides are shuffled",
    ),
    "plain files": (
        {"is_plain_scan": True},
        "files",
        "the events are plain Parquet files: workers read them next to the index",
    ),
    "stream": ({"is_streaming": True}, "arrow", "a stream cannot be sampled"),
    "stream, arrow by name": ({"is_streaming": True, "asked": "arrow"}, "arrow", "it was asked for"),
    "few events": (
        {"events_guessed": 1234.4},
        "arrow",
        "about 1,234 events: a sample would cost more than it could spare",
    ),
    "a cheap join": ({}, "native", f"{IN_WORDS} less than the way to Python"),
    "a dear join": ({"join": JoinEstimate(2.0, 0.5, 1e12)}, "arrow", f"{IN_WORDS} more than the way to Python"),
    "a join that costs the same": (
        {"join": JoinEstimate(2.0, 0.5, ARROW_COST)},
        "arrow",
        f"{IN_WORDS} more than the way to Python",
    ),
    "a join that costs a little less": (
        {"join": JoinEstimate(2.0, 0.5, math.nextafter(ARROW_COST, 0))},
        "native",
        f"{IN_WORDS} less than the way to Python",
    ),
}


@pytest.mark.parametrize("case", CHOICES)
def test_a_choice_and_its_reason(case: str) -> None:
    change, strategy, reason = CHOICES[case]
    assert choose(replace(FACTS, **change)) == Choice(strategy, reason)


STREAM = "a stream of events is matched by strategy 'arrow', with subscriptions that fit into a broadcast"
ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "stream, native": ({"is_streaming": True, "asked": "native"}, STREAM),
    "stream, files": ({"is_streaming": True, "asked": "files"}, STREAM),
    "stream, too large": ({"is_streaming": True, **MANY}, STREAM),
    "stream, arrow, too large": ({"is_streaming": True, "asked": "arrow", **MANY}, STREAM),
    "files, no plain scan": (
        {"asked": "files"},
        "strategy 'files' needs events that are a plain scan of Parquet files on a disk that every executor has: give "
        "a path, or take strategy='arrow'",
    ),
    "arrow, too large": (
        {"asked": "arrow", **MANY},
        f"{SIZE}, more than the 1 MB that may be broadcast: take strategy='native', or raise broadcast_limit",
    ),
    "files, too large": (
        {"asked": "files", "is_plain_scan": True, **MANY},
        f"{SIZE}, more than the 1 MB that may be broadcast: take strategy='native', or raise broadcast_limit",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_done_is_an_error(case: str) -> None:
    change, message = ERRORS[case]
    with pytest.raises(CallerError) as caught:
        choose(replace(FACTS, **change))
    assert str(caught.value) == message


GUESS, COUNT, SCAN, EVENTS, JOIN = (
    MissingFact.SUBSCRIPTIONS_GUESSED,
    MissingFact.SUBSCRIPTIONS,
    MissingFact.IS_PLAIN_SCAN,
    MissingFact.EVENTS_GUESSED,
    MissingFact.JOIN,
)
ASKED: dict[str, tuple[dict[str, Any], list[MissingFact]]] = {
    "native by name": ({"asked": "native"}, []),
    "arrow by name": ({"asked": "arrow"}, [GUESS]),
    "arrow by name, many": ({"asked": "arrow", "subscriptions_guessed": 1e9}, [GUESS, COUNT]),
    "arrow by name, Spark has no idea": ({"asked": "arrow", "subscriptions_guessed": math.inf}, [GUESS, COUNT]),
    "files by name": ({"asked": "files", "is_plain_scan": True}, [SCAN, GUESS]),
    "plain files": ({"is_plain_scan": True}, [GUESS, SCAN]),
    "too large": (MANY, [GUESS, COUNT]),
    "few events": ({"events_guessed": 1.0}, [GUESS, SCAN, EVENTS]),
    "a stream": ({"is_streaming": True}, [GUESS]),
    "by samples": ({}, [GUESS, SCAN, EVENTS, JOIN, COUNT]),
}


@pytest.mark.parametrize("case", ASKED)
def test_a_fact_is_asked_for_when_the_choice_depends_on_it(case: str) -> None:
    change, expected = ASKED[case]
    whole = replace(FACTS, **change)
    nothing: dict[str, Any] = dict.fromkeys(map(str, MissingFact))
    facts, asked = replace(whole, **nothing), []
    while isinstance(found := choose(facts), MissingFact):
        asked.append(found)
        facts = replace(facts, **{found.value: getattr(whole, found)})
    assert asked == expected
    assert found == choose(whole)


def test_wanted_are_fields() -> None:
    assert {each.name for each in fields(Facts) if each.default is None} == set(map(str, MissingFact))


def test_subscriptions_are_counted_only_where_the_guess_is_near() -> None:
    facts = replace(FACTS, subscriptions=None)
    edge = FACTS.limit_bytes / (4 * FACTS.subscription_bytes)
    assert is_index_too_large(replace(facts, subscriptions_guessed=edge - 1)) is False
    assert is_index_too_large(replace(facts, subscriptions_guessed=edge)) is MissingFact.SUBSCRIPTIONS
    counted = replace(facts, subscriptions_guessed=math.inf, subscriptions=FACTS.limit_bytes // 80)
    assert is_index_too_large(counted) is False  # just fits
    assert is_index_too_large(replace(counted, subscriptions=FACTS.limit_bytes // 80 + 1)) is True


def test_a_sample_is_taken_from_where_it_could_spare_something() -> None:
    edge = SAMPLING / (ARROW_EVENT + 5 * ARROW_VALUE)
    facts = replace(FACTS, join=None)
    assert isinstance(choose(replace(facts, events_guessed=edge * 0.999)), Choice)
    assert choose(replace(facts, events_guessed=edge * 1.001)) is MissingFact.JOIN


@pytest.mark.parametrize("strategy", ["fast", "", "AUTO", "x" * 1000])
def test_unknown_strategies(strategy: str) -> None:
    with pytest.raises(CallerError, match=r"strategy is one of 'auto', 'native', 'arrow', 'files', not '"):
        check_strategy(strategy)
    for known in STRATEGIES:
        check_strategy(known)


def test_a_plan_in_words() -> None:
    plan = MatchPlan("native", "why not", 20_000, 1_600_000, 268_000_000, {"native": 1.25}, ["price in 8 cells"])
    assert str(plan) == (
        "strategy: native\nbecause: why not\nsubscriptions: 20,000; an index of about 1.6 MB, of 268 MB that may be "
        "broadcast\ncandidates per event, native: 1.2\nkeys of native: price in 8 cells"
    )
    assert "keys" not in str(replace(plan, keys=[]))


# --- Without Spark ---------------------------------------------------------------------------------------------------

WITHOUT_SPARK = """
import sys, types
sys.modules["pyspark"] = sys.modules["py4j"] = None  # an import of them fails
for name, path in (("thatch.spark", {spark!r}), ("thatch.spark.matching", {matching!r})):
    sys.modules[name] = types.ModuleType(name)  # the packages themselves import everything
    sys.modules[name].__path__ = [path]
from thatch.spark.matching.choice import choose
from thatch.spark.matching.facts import Facts
from thatch.spark.matching.keys import KeyChoice
import thatch.spark.payload
print(choose(Facts("native", False, 1, 1, 1)).strategy, KeyChoice([], [], 1, 1).chosen([]).keys)
"""


def test_the_choice_runs_where_there_is_no_spark() -> None:
    folder = SOURCE / "spark"
    code = WITHOUT_SPARK.format(spark=str(folder), matching=str(folder / "matching"))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ran.stdout == "native []\n", ran.stderr


@pytest.mark.parametrize("name", PURE)
def test_modules_that_do_not_name_spark(name: str) -> None:
    tree = ast.parse((SOURCE / "spark" / "matching" / f"{name}.py").read_text())
    imported = [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    imported += [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    assert not [each for each in imported if each.split(".")[0] in ("pyspark", "py4j")]
