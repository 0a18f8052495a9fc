"""Strings are recoded while others hold coordinates: regions, witnesses and threads never notice."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from thatch import Space, covers
from thatch.cover import Uncovered, verify
from thatch.space.axis import StringAxis


def recode(space: Space) -> None:
    for attribute in space.attributes:
        if isinstance(attribute.axis, StringAxis):
            attribute.axis.labels = attribute.axis.labels.recoded([])


def test_a_witness_keeps_its_meaning() -> None:
    space = Space.parse("x string not null")
    region, members = space.where("x < 'p'"), {"m": space.where("x < 'm'")}
    verdict = covers(members, region, space)
    assert isinstance(verdict, Uncovered) and verify(verdict, region, members)
    for number in range(200):
        space.where(f"x = '{number:05d}'")
        recode(space)
        assert verify(verdict, region, members)
        assert "m" <= space.decode(verdict.witness)["x"] < "p"


def test_watchlists_too_long_to_cross_out() -> None:
    space = Space.parse("sym string not null, p int not null 0..9")
    symbols = ", ".join(f"'s{number}'" for number in range(2_000))
    listed = space.where(f"sym IN ({symbols})")
    assert covers(["p < 5", "p >= 5"], listed, space)
    verdict = covers(["p < 5"], listed, space)
    assert isinstance(verdict, Uncovered) and verify(verdict, listed, {0: space.where("p < 5")})
    halves = [f"sym IN ({symbols}) AND p < 5", f"sym IN ({symbols}) AND p >= 5"]
    assert covers(halves, "sym = 's3'", space)
    asked = space.where("sym = 's3' OR sym = 'other'")
    verdict = covers(halves, asked, space)
    assert isinstance(verdict, Uncovered)
    assert verify(verdict, asked, dict(enumerate(map(space.where, halves))))


@pytest.mark.long
def test_threads_that_read_while_strings_move() -> None:
    """Readers of one region, writers of new clauses, and recodings in between: every answer is right."""
    space = Space.parse("name string, size int")
    region = space.where("name >= 'b' AND name < 'm' OR name IN ('q', 'x', 'z')")
    expected = {name: "b" <= name < "m" or name in "qxz" for name in "abcdefghijklmnopqrstuvwxyz"}
    stop = time.monotonic() + 1.5
    wrong: list[Any] = []

    def read() -> None:
        while time.monotonic() < stop:
            for name, answer in expected.items():
                if region.contains({"name": name}) != answer:
                    wrong.append(("read", name))

    def write(seed: int) -> None:
        number = 0
        while time.monotonic() < stop:
            number += 1
            text = f"{chr(97 + number % 26)}{seed}{number}"
            mine = space.where(f"name IN ('{text}', '{text}x', 'w{number}') AND size > {number}")
            if not mine.contains({"name": text, "size": number + 1}) or mine.contains({"name": "none", "size": 10**9}):
                wrong.append(("write", text))

    def move() -> None:
        while time.monotonic() < stop:
            recode(space)
            time.sleep(0.005)

    def guarded(work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except Exception as error:
            wrong.append(repr(error))

    jobs = [(read,), (read,), (write, 1), (write, 2), (move,)]
    threads = [threading.Thread(target=guarded, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, (len(wrong), wrong[:5])
