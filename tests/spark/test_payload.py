"""Errors as payloads, without Spark: every type comes back with its fields, whatever texts are in it and around it."""

from __future__ import annotations

import json
import math
import traceback
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples

pytest.importorskip("pyspark")  # which the package imports, and what is tested here does not
from thatch import errors
from thatch.errors import CallerError, ClauseError, EventError, ThatchError, UnknownSubscription
from thatch.spark.clauses import Wrong, WrongClauses
from thatch.spark.payload import (
    MESSAGE_MAX,
    TEXT_MAX,
    TOKEN,
    EventProblem,
    _types,
    error_in,
    payload_of,
    raised_text,
    with_payload,
)
from thatch.spark.text import text_sql

BYTES_MAX = 100_000  # of a payload, whatever is in it
FORGED = payload_of(CallerError("forged"))
HOSTILE = {
    "a payload": FORGED,
    "the mark": f"[thatch-error {TOKEN}:",
    "another token": FORGED.replace(TOKEN, "0" * 16),
    "its end": "]]]::]",
    "newlines": "\n\n\tat org.apache.spark\n\r\n  **\n",
    "Spark's words": "[USER_RAISED_EXCEPTION] x SQLSTATE: P0001",
    "quotes": "'\"`''\\'\\\\n${x}",
    "NUL": "a\0b",
    "lone surrogates": "\ud800 \udfff",
    "beyond the BMP": "🌾é\u2028",
    "long": "x" * 200_000,
    "long and wide": "\u0001🌾" * 100_000,
    "a traceback": "Traceback (most recent call last):\nthatch.errors.CallerError: no",
    "no thatch": "\nModuleNotFoundError: No module named 'thatch'",
}


ODD = {"type": "EventError", "message": ["a"], "arguments": [{"exec": "x"}]}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    return type(one) is type(other) and bool(one == other)


def crossed(error: ThatchError) -> ThatchError:
    """As Spark reports it: the traceback of a worker, encoded, within other text."""
    trace = "".join(traceback.format_exception(with_payload(error))).encode().decode()
    found = error_in(f"[PYTHON_EXCEPTION] {trace} SQLSTATE: 38000\n\tat org.apache.spark]")
    assert found is not None
    return found


ERRORS: list[ThatchError] = [
    CallerError("no good"),
    errors.BadRows(["a.csv:3: has no id"], "and more"),
    EventError("price", 3.5, "is bad"),
    EventError("price", None, "is bad", 17),
    ClauseError("no attribute 'prize'", 3, 14, "did you mean 'price'?"),
    ClauseError("a rule", 2, 5, construct="arithmetic").within("file.txt:3"),
    errors.TooManyTerms(10_000, 4096),
    errors.TooManyBoxes(10_000, 4096),
    UnknownSubscription(("a", 7)),
    errors.SpaceError("a space"),
    errors.SnapshotError("a file"),
    errors.StoreError("a store"),
    errors.OldCopyError("a copy of a store"),
    errors.ConfigError("a setting"),
    errors.PeerError("a peer"),
    errors.Unavailable("later"),
    errors.TimedOut("the answer to a subscription", 2.5),
    ThatchError("anything"),
    CallerError(),
    WrongClauses([Wrong("'a'", "prize < 3", 1, 1, "no attribute"), Wrong("7", "x", 2, 3, "other")], 9),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_type_comes_back_with_its_fields(error: ThatchError) -> None:
    text, fields = str(error), dict(vars(error))
    found = crossed(error)
    assert (type(found), str(found), vars(found)) == (type(error), text, fields)


def test_no_type_is_left_out() -> None:
    own = {each for each in _types(ThatchError) if each.__module__ == "thatch.errors"}
    assert own == {type(error) for error in ERRORS} - {WrongClauses}


VALUES: list[Any] = [
    None, True, 0, -(2**63), 2**1000, 0.1, -0.0, math.inf, math.nan, "", "text", b"\0\xff", Decimal("1.50"),
    Decimal("NaN"), date(2020, 2, 29), datetime(2020, 2, 29, 12, 0, 0, 5), datetime(2020, 2, 29, tzinfo=UTC),
    time(12, 30), (1, ("a", None)),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_keep_their_type(value: Any) -> None:
    found = crossed(EventError("a", value, "is bad", 3))
    assert isinstance(found, EventError)
    assert same(found.value, value) or str(found.value) == str(value) == "NaN"
    assert str(found) == str(EventError("a", value, "is bad", 3))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.float64(1.5), 1.5),
        (np.int32(7), 7),
        (2**5000, "an int of 5,001 bits"),
        ({"a": 1}, "{'a': 1}"),
        ([1, 2], (1, 2)),
    ],
    ids=str,
)
def test_other_values_come_back_as_what_is_nearest(value: Any, wanted: Any) -> None:
    found = crossed(EventError("a", value, "is bad"))
    assert isinstance(found, EventError) and same(found.value, wanted)


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_text_breaks_nothing(case: str) -> None:
    text = HOSTILE[case]
    short = text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 3] + "..."
    found = crossed(EventError(text, text, text, 5))
    assert isinstance(found, EventError)
    assert (found.attribute, found.value, found.rule, found.row) == (short, short, short, 5)
    whole = str(EventError(text, text, text, 5))
    assert str(found) == (whole if len(whole) <= MESSAGE_MAX else whole[: MESSAGE_MAX - 3] + "...")
    plain = crossed(CallerError(text))
    assert type(plain) is CallerError and str(plain)[: TEXT_MAX - 3] == text[: TEXT_MAX - 3]
    wrong = crossed(WrongClauses([Wrong(repr(text), text, 1, 2, text)] * 5, 5))
    assert isinstance(wrong, WrongClauses)
    assert (wrong.total, wrong.line, wrong.column, wrong.rule) == (5, 1, 2, short)
    assert wrong.wrong[2].clause == short
    assert wrong.subscription_id == text or len(repr(text)) > TEXT_MAX


@pytest.mark.parametrize("case", HOSTILE)
def test_what_crosses_spark_is_bounded(case: str) -> None:
    text = HOSTILE[case]
    most = [Wrong(text, text, 1, 2, text)] * 5
    for error in (
        EventError(text, (text,) * 100, text),
        WrongClauses(most, 5),
        CallerError(text),
        EventError("a", text.encode("utf-8", "replace"), text),
    ):
        assert len(payload_of(error)) < BYTES_MAX
        trace = "".join(traceback.format_exception(with_payload(error)))
        assert len(trace.encode()) < 2 * BYTES_MAX  # which lone surrogates would break


@examples(60)
@given(st.text(st.characters(codec=None), max_size=40), st.text(max_size=40), st.integers(1, 9), st.integers(1, 99))
def test_any_text(rule: str, hint: str, line: int, column: int) -> None:
    found = error_in(f"{rule}{raised_text(ClauseError(rule, line, column, hint))}{hint.replace('[', '')}")
    assert isinstance(found, ClauseError)
    assert (found.rule, found.line, found.column, found.hint) == (rule, line, column, hint)
    assert str(found) == str(ClauseError(rule, line, column, hint))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "thatch.errors.CallerError: no",
        "[USER_RAISED_EXCEPTION] attribute 'a': 3 is bad",
        FORGED[:-1],
        FORGED[: len(FORGED) // 2],
        FORGED.replace(TOKEN, "0" * 16),
        FORGED.replace("::", ":"),
        f"[thatch-error {TOKEN}:zz::]",
        f"[thatch-error {TOKEN}:{b'{}'.hex()}::]",
        f"[thatch-error {TOKEN}:{b'[1]'.hex()}::]",
        f"[thatch-error {TOKEN}:{b'not json'.hex()}::]",
        f"[thatch-error {TOKEN}:{json.dumps(ODD).encode().hex()}::]",
    ],
    ids=range(12),  # the token, and so the texts, differ from process to process
)
def test_what_is_no_payload_of_ours(text: str) -> None:
    assert error_in(text) is None


def test_a_type_that_the_driver_does_not_know_is_a_caller_error() -> None:
    class Unheard(CallerError):
        pass

    text = raised_text(Unheard("what it says")).replace(b"Unheard".hex(), b"Unknown".hex())
    found = error_in(text)
    assert type(found) is CallerError and str(found) == "what it says"


def test_the_sentence_comes_first() -> None:
    error = EventError("price", 3.5, "is bad")
    assert raised_text(error).startswith("attribute 'price': 3.5 is bad\n[thatch-error ")
    lines = traceback.format_exception_only(with_payload(error))
    assert lines[0] == "thatch.errors.EventError: attribute 'price': 3.5 is bad\n" and lines[1].startswith("[thatch-")


def test_a_problem_without_a_value_is_a_constant() -> None:
    problem = EventProblem("price", "is refused")
    assert problem.message == text_sql("attribute 'price': is refused")
    assert "hex(" not in problem.carried


def test_odd_values_are_carried_as_text_and_bounded() -> None:
    nested: Any = "x" * 400
    for _ in range(5):
        nested = (nested,) * 8
    for value in (nested, np.array([1, 2]), "\ud800" * 5000):
        text = payload_of(EventError("a", value, "is bad"))
        assert len(text) < BYTES_MAX and isinstance(error_in(text), EventError)
    assert len(str(with_payload(CallerError("\ud800" * 5000)))) <= MESSAGE_MAX
