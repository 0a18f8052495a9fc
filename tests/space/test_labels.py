"""Labels of string axes: invariants after every kind of insertion series, and agreement with a sorted list."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import isqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples, texts
from thatch.space.axis import StringAxis
from thatch.space.labels import FIRST, LAST, Labels

COUNT = 300


def series(kind: str) -> list[str]:
    if kind == "ascending":
        return [f"user{i:06}" for i in range(COUNT)]
    if kind == "descending":
        return [f"user{i:06}" for i in reversed(range(COUNT))]
    if kind == "interleaved":
        return [text for i in range(COUNT) for text in (f"a{i:06}", f"b{i:06}")]
    random = Random(7)
    return ["".join(random.choices("ab\0é😀\U0010ffff", k=random.randrange(8))) for _ in range(COUNT)]


KINDS = ["ascending", "descending", "interleaved", "random"]


def check_against_sorted_list(labels: Labels, cuts: Iterable[str], probes: Iterable[str]) -> None:
    """The oracle: a string belongs to the gap of the last cut that is not above it."""
    ordered = sorted({"", *cuts})
    assert len(labels) == len(ordered)
    for probe in probes:
        index = bisect_right(ordered, probe)
        label = labels.of(probe)
        above = ordered[index] if index < len(ordered) else None
        assert labels.cut_at(label) == ordered[index - 1]
        assert labels.next_cut(label) == above
        assert label == labels.of(ordered[index - 1])
        last = LAST if above is None else labels.of(above) - 1  # the run of a gap ends where the next one begins
        assert label <= last and labels.cut_at(last) == ordered[index - 1] and labels.next_cut(last) == above
        assert labels.of(labels.example(last)) == label


@pytest.mark.parametrize("kind", KINDS)
def test_series(kind: str) -> None:
    labels = Labels()
    cuts = series(kind)
    for text in cuts:
        assert labels.cut(text) == labels.of(text)
    labels.check_invariants()
    check_against_sorted_list(
        labels, cuts, [*cuts, *(cut + "\0" for cut in cuts), *(cut + "~" for cut in cuts), "", "~"]
    )


@examples(100)
@given(st.lists(texts, max_size=30), st.lists(texts, max_size=10))
def test_any_series(cuts: list[str], probes: list[str]) -> None:
    labels = Labels()
    for text in cuts:
        labels.cut(text)
    labels.check_invariants()
    check_against_sorted_list(labels, cuts, probes + cuts)


def between(below: str, above: str | None) -> str:
    """A string strictly between two, which are no string and itself with NUL."""
    candidate = below + "\x01"
    while above is not None and candidate >= above:
        candidate = candidate[:-1] + "\0\x01"
    return candidate


def test_adversary_who_always_splits_the_smallest_gap() -> None:
    labels = Labels(["m"])
    cuts = ["", "m"]
    label: int | None = 0
    while label is not None:
        cuts.sort()
        ends = [labels.of(cut) for cut in cuts] + [LAST + 1]
        smallest = min(range(len(cuts)), key=lambda index: ends[index + 1] - ends[index])
        text = between(cuts[smallest], cuts[smallest + 1] if smallest + 1 < len(cuts) else None)
        label = labels.cut(text)
        if label is not None:
            cuts.append(text)
            labels.check_invariants()
            nearest = min(label - ends[smallest], ends[smallest + 1] - label)
            assert nearest >= isqrt(ends[smallest + 1] - ends[smallest]) or nearest == 1
    assert ends[smallest + 1] - ends[smallest] == 1, "None means that the run is used up, not earlier"
    check_against_sorted_list(labels, cuts, cuts)
    again = labels.recoded([text])
    again.check_invariants()
    check_against_sorted_list(again, [*cuts, text], [*cuts, text])
    check_against_sorted_list(labels, cuts, cuts)  # the old codes can still be read


@examples(60)
@given(st.lists(texts, max_size=40), st.lists(texts, max_size=40))
def test_bulk_orders_as_one_by_one(known: list[str], new: list[str]) -> None:
    bulk, single = Labels(known), Labels(known)
    assert bulk.cut_many(new)
    for text in new:
        single.cut(text)
    bulk.check_invariants()
    check_against_sorted_list(bulk, known + new, known + new)
    assert sorted(known + new, key=bulk.of) == sorted(known + new, key=single.of) == sorted(known + new)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 20, COUNT])
def test_bulk_of_any_size(kind: str, size: int) -> None:
    labels = Labels()
    cuts = series(kind)
    for start in range(0, len(cuts), size):
        assert labels.cut_many(cuts[start : start + size])
        labels.check_invariants()
    check_against_sorted_list(labels, cuts, cuts)


def test_bulk_says_when_a_run_is_used_up() -> None:
    labels = Labels()
    text = "m"
    while labels.cut(text) is not None:
        text = between("", text)
    assert not labels.cut_many([text])
    assert not labels.cut_many([text, *series("random")])
    labels.check_invariants()


@examples(60)
@given(st.lists(texts, max_size=30), st.lists(texts, max_size=30))
def test_numbered_keeps_order(cuts: list[str], more: list[str]) -> None:
    labels = Labels(cuts)
    again = labels.recoded(more)
    again.check_invariants()
    assert len(labels) == len({"", *cuts})
    check_against_sorted_list(again, cuts + more, cuts + more)


@examples(100)
@given(texts, texts, st.lists(texts, max_size=30), st.lists(texts, max_size=10))
def test_intervals_outlive_divisions(start: str, end: str, later: list[str], probes: list[str]) -> None:
    labels = Labels()
    low, high = labels.cut(start), labels.cut(end)
    assert low is not None and high is not None
    labels.cut_many(later[:10])
    for text in later[10:]:
        labels.cut(text)
    for probe in [start, end, *later, *probes]:
        assert (low <= labels.of(probe) < high) == (start <= probe < end)


def test_gaps_between_counts_the_gaps_touched() -> None:
    labels = Labels(["b", "d"])
    b, d = labels.of("b"), labels.of("d")
    assert labels.gaps_between(FIRST, LAST) == 3
    assert labels.gaps_between(FIRST, b - 1) == labels.gaps_between(b, b) == labels.gaps_between(b, d - 1) == 1
    assert labels.gaps_between(b - 1, d) == 3
    labels.cut("c")
    assert labels.gaps_between(b, d - 1) == 2


@pytest.mark.long
@pytest.mark.soak("ascending")
@pytest.mark.parametrize("kind", ["ascending", "descending", "interleaved"])
def test_ordinary_series_hardly_ever_recode(kind: str) -> None:
    size = 100_000
    order: Iterable[str] = (f"order-{i:07}" for i in range(size))
    if kind == "descending":
        order = (f"order-{i:07}" for i in reversed(range(size)))
    elif kind == "interleaved":
        order = (f"{name}-{i:07}" for i in range(size // 2) for name in ("bid", "offer"))
    axis = StringAxis()
    recodings, labels = 0, axis.labels
    for text in order:
        axis.cut(text)
        recodings += axis.labels is not labels
        labels = axis.labels
    assert recodings < 5
    labels.check_invariants()
    assert len(labels) == size + 1
