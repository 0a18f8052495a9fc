"""Neighbours in the place of one that is lost: who gets an event, too, and what is kept for whom."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.peers import neighbour
from thatch.delivery.attachments import Attachments
from thatch.delivery.clock import Stamp
from thatch.delivery.journal import GAP, AttachmentRow
from thatch.delivery.stream import Limits, Stream
from thatch.node.store import Store

FIRST = 1 << 40


def attached(**instead_of: str) -> Attachments:
    return Attachments([AttachmentRow(name, lost, "") for name, lost in instead_of.items()])


def test_what_is_for_the_lost_one_goes_to_all_in_its_place_and_is_kept_for_those_to_come() -> None:
    both = attached(B3="B2", B4="B2")
    assert both.receivers("ann", ["B2"]) == ["B3", "B4"]
    assert both.receivers("ann", ["B2", "B4"]) == ["B3"], "B4 gets it once"
    assert both.receivers("ann", ["B7"]) == []


def test_what_comes_from_one_of_them_goes_to_the_others_whether_anybody_asked_or_not() -> None:
    both = attached(B3="B2", B4="B2")
    assert both.receivers("B3", []) == ["B2", "B4"]
    assert both.receivers("B3", ["B2"]) == ["B4"], "never back to where it came from"


def test_one_in_the_place_of_another_may_be_lost_itself() -> None:
    chain = attached(B3="B2", B5="B2", B4="B3")
    assert chain.receivers("ann", ["B2"]) == ["B3", "B5", "B4"]
    assert chain.receivers("B5", []) == ["B2", "B3", "B4"]
    assert chain.receivers("B4", []) == ["B3", "B2", "B5"]


def test_when_the_lost_one_is_forgotten_those_in_its_place_are_as_others() -> None:
    both = attached(B3="", B4="B2")
    assert not both.is_lost("") and both.is_lost("B2") and both.names == {"B2", "B4"}
    assert both.receivers("B3", []) == []
    both.drop("B4")
    assert not both.names and not both.is_lost("B2")


@pytest.mark.parametrize("is_there", [False, True])
def test_what_is_kept_for_one_receiver_is_kept_for_another_one_too(tmp_path: Path, is_there: bool) -> None:
    """Part of the first run was acknowledged, so fewer events are on disk than were counted; a restart follows."""
    store = Store(tmp_path / "s", "B1")
    calls: queue.Queue[tuple[Any, ...]] = queue.Queue()
    store.start(lambda *call: calls.put(call), lambda _: None)
    limits = Limits(bytes_max=2**30, seconds_max=1e9, memory_bytes_max=0, unacknowledged_bytes_max=10_000)
    lost, other = (Stream(neighbour(name), store, limits, FIRST) for name in ("B2", "B3"))
    got: list[tuple[int, bytes]] = []

    def send(numbers: Sequence[int], events: Sequence[bytes]) -> None:
        got.extend(zip(numbers, events, strict=True))

    other.append(b"own", True, Stamp(0.0, 0.0))
    if is_there:
        other.attach(send, 0)
    for at in range(300):
        lost.append(b"%d" % at, True, Stamp(float(at), float(at)))
    lost.acknowledge(FIRST + 10)
    assert other.copy_from(lost, Stamp(300.0, 300.0)) == 300 and other.counted == FIRST + 301
    other.append(b"later", True, Stamp(300.0, 300.0))
    if not is_there:
        other.attach(send, 0)
    wanted = [b"own", *(b"%d" % at for at in range(10, 300)), b"later"]
    until = time.monotonic() + 10
    while len(got) < len(wanted) and time.monotonic() < until:
        function, *arguments = calls.get(timeout=10)
        function(*arguments)
    assert [event for _, event in got] == wanted
    other.acknowledge(got[150][0])
    store.stop()
    again = Store(tmp_path / "s", "B1")  # checks each row
    left = [row.number for row in again.stored(neighbour("B3"))]
    assert left == [number for number, _ in got[151:]]
    assert len([*again.stored(neighbour("B2"))]) == 290, "and is still kept for the first one"
    assert other.copy_from(Stream(neighbour("B4"), again, limits, FIRST), Stamp(0.0, 0.0)) == 0
    again.stop()


def test_a_copy_is_bound_by_the_limit_of_its_receiver(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    limits = Limits(bytes_max=2**30, seconds_max=10.0, memory_bytes_max=0, unacknowledged_bytes_max=100)
    lost, other = (Stream(neighbour(name), store, limits, FIRST) for name in ("B2", "B3"))
    other.set_limits(5_000, 10.0)
    for at in range(300):
        lost.append(b"x" * 100, True, Stamp(float(at), float(at)))
    other.copy_from(lost, Stamp(300.0, 300.0))
    assert other.on_disk.bytes <= 5_000 < 100 * 300 and other.lost == 300 - other.on_disk.count
    assert other.expire(1_000.0) and not other.on_disk.count, "events keep their age"
    store.start(lambda *call: None, lambda _: None)
    store.stop()
    again = Store(tmp_path / "s", "B1")
    (gap,) = again.stored(neighbour("B3"))
    assert gap.entry == GAP and len([*again.stored(neighbour("B2"))]) == 300
    again.stop()
