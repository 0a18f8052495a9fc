"""The lives of a store: which numbers mean something, which past is admitted, and when a store is an old copy."""

from __future__ import annotations

import pytest

from thatch.delivery.history import (
    LIFE_SHIFT,
    LIVES_SENT,
    History,
    check_admitted,
    derived_life,
    known_after,
    missing,
    next_life,
)
from thatch.delivery.journal import LifeRow, NeighbourRow
from thatch.errors import PeerError
from thatch.protocol.wire import Resume


def lives(names: str, restored: str = "") -> list[LifeRow]:
    """One life for each letter; those of `restored` began with a restore that has no mark."""
    return [
        LifeRow(at, name, 10.0 * at, "restore" if name in restored else "start", 5.0 if name in restored else None)
        for at, name in enumerate(names, 1)
    ]


def resume(names: str, restored: str = "", store: str = "a store", **more: object) -> Resume:
    history = History(lives(names, restored))
    return Resume(store, "", 0, history.since("", 0), history.restored, **more)  # type: ignore[arg-type]


OWN = History(lives("m"))  # of the one who judges


def number(ordinal: int, count: int) -> int:
    return ordinal << LIFE_SHIFT | count


def met(*stages: Resume) -> NeighbourRow:
    """What is known of a neighbour that has come with these, in turn, and was admitted each time."""
    row: NeighbourRow | None = None
    for each in stages:
        check_admitted(row, each, OWN)
        row = known_after(row, "B1", each)
    assert row is not None
    return row


def refused(row: NeighbourRow, message: Resume) -> str:
    with pytest.raises(PeerError) as caught:
        check_admitted(row, message, OWN)
    return caught.value.code


def test_a_store_that_lives_on_is_admitted_and_an_old_one_is_not() -> None:
    row = met(resume("ab"), resume("ab"), resume("abcd"))
    assert row.life == "d"
    assert refused(row, resume("abc")) == refused(row, resume("abx")) == refused(row, resume("xyz")) == "history"


def test_a_restored_past_is_admitted_once_and_the_one_it_replaced_no_more() -> None:
    row = met(resume("abcd"), resume("abr", "r"), resume("abrs", "r"))
    assert row.life == "s"
    assert refused(row, resume("abcd")) == "history"
    assert refused(row, resume("abrt", "r")) == "history", "the same backup, restored twice or copied: its mark is used"
    check_admitted(row, resume("abru", "ru"), OWN)
    check_admitted(row, resume("av", "v"), OWN)


def test_of_a_store_and_its_copy_whoever_came_last_stays() -> None:
    row = met(resume("ab"), resume("abx"))
    for _ in range(3):
        assert refused(row, resume("ab")) == refused(row, resume("aby")) == "history"
    check_admitted(row, resume("abxz"), OWN)


def test_of_two_stores_that_began_with_one_restore_one_is_admitted() -> None:
    one, other = (History([*lives("ab"), LifeRow(3, life, 30.0, "restore mark", 15.0)]) for life in "xy")
    row = met(resume("abc"), Resume("a store", "", 0, one.since("", 0), one.restored))
    assert row.life == "x" and row.restored == "mark"
    assert refused(row, Resume("a store", "", 0, other.since("", 0), other.restored)) == "history"


def test_a_store_that_was_restored_often_is_told_from_an_old_copy_of_it() -> None:
    names = "".join(chr(0x4E00 + at) for at in range(3 * LIVES_SENT))
    row = met(resume(names, names), resume(names + "x", names))
    assert refused(row, resume(names + "y", names)) == refused(row, resume(names[:9] + "z", names)) == "history"


def test_a_store_that_went_back_itself_does_not_judge_a_neighbour_that_knows_it_from_later() -> None:
    row = met(resume("ab"))
    assert refused(row, resume("xyz", known="m")) == "history"
    check_admitted(row, resume("xyz", known="a life that is not there"), OWN)
    with pytest.raises(PeerError, match="another store"):
        check_admitted(row, resume("xyz", store="another", known="a life that is not there"), OWN)


def test_after_an_operator_has_accepted_a_neighbour_any_store_comes_in_and_used_marks_stay_used() -> None:
    row = met(resume("abcd"), resume("abr", "r"))
    assert refused(row, resume("q", store="another")) == "store"
    accepted = row._replace(store="", life="")
    check_admitted(accepted, resume("q", store="another"), OWN)
    row = known_after(accepted, "B1", resume("abe"))
    assert refused(row, resume("abr", "r")) == "history"


def test_a_store_is_an_old_copy_if_a_neighbour_knows_more_of_it() -> None:
    history = History(lives("abc"))
    theirs = {"lives": {1: "m", 2: "n"}}

    def is_behind(taken: dict[str, int], **said: object) -> bool:
        return history.is_behind(Resume("their store", "", 0, **theirs, **said), taken)  # type: ignore[arg-type]

    assert not is_behind({}, known="c") and is_behind({}, known="x")
    assert not is_behind({}, known="x", asks="m"), "one that went back itself is no witness"
    held = {"m": number(1, 5), "n": number(2, 9)}
    assert not is_behind(held, known="a", confirmed=held)
    assert is_behind({"m": number(1, 5), "n": number(2, 8)}, known="a", confirmed=held)
    assert is_behind({"m": number(1, 5)}, known="a", confirmed=held)
    assert not is_behind({"n": number(2, 9)}, known="a", confirmed=held), "lives of long ago are forgotten"
    assert not is_behind({}, confirmed=held), "it does not know this store: it has forgotten it, or never met it"


def test_a_start_on_a_copy_begins_in_the_past() -> None:
    past = lives("abc")
    assert next_life(past, "d", 99.0, noted="c") == LifeRow(4, "d", 99.0, "start", None)
    assert next_life(past, "d", 99.0, noted="") == LifeRow(4, "d", 99.0, "start", None)
    assert next_life(past, "d", 99.0, noted="x", kept_at=42.0) == LifeRow(4, "d", 99.0, "rollback", 42.0)
    assert next_life(past, "d", 99.0, noted="c", copied_at=35.0) == LifeRow(4, "d", 99.0, "rollback", 35.0)
    assert next_life(past, "d", 99.0, restored="r", copied_at=35.0) == LifeRow(4, "d", 99.0, "restore r", 35.0)
    assert next_life([], "a", 99.0, noted="x") == LifeRow(1, "a", 99.0, "start", None), "a new store begins anew"


def test_a_neighbour_hears_of_all_lives_that_it_may_ask_for() -> None:
    history = History([LifeRow(at, f"life {at}", 0.0, "start", None) for at in range(1, 301)])
    assert set(history.since("life 290", number(295, 1))) == set(range(300 - LIVES_SENT, 301))
    assert set(history.since("life 100", number(295, 1))) == set(range(100, 301))
    assert set(history.since("life 290", number(7, 1))) == set(range(7, 301))
    assert set(history.since("", number(295, 1))) == set(range(1, 301))
    assert history.life_of(number(12, 3)) == "life 12" and not history.life_of(number(301, 1))


def test_what_is_missing_is_counted_by_life() -> None:
    ordinals = {1: "a", 2: "b", 3: "c"}
    there = {"a": number(1, 9), "b": number(2, 4)}
    assert missing({"a": number(1, 9), "b": number(2, 10), "c": number(3, 7)}, there, ordinals) == 6 + 7
    assert missing({"a": number(1, 9)}, {"b": number(2, 1)}, ordinals) == 0, "of a life of long ago nothing is kept"
    assert missing({"x": number(1, 9)}, there, ordinals) == 0 and missing({"a": number(1, 9)}, {}, ordinals) == 9
    assert derived_life("store", 1) != derived_life("store", 2)


def test_what_is_missing_of_numbers_that_a_peer_has_made_up_fits_into_a_store() -> None:
    most, ordinals = 2**63 - 1, {1: "a", 2: "b"}
    assert missing({"a": most, "b": most}, {}, ordinals) == 2 * (2**LIFE_SHIFT - 1), "a life counts no further"
