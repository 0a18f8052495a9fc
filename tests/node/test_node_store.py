"""The store: what was committed is there again; what is damaged or foreign is refused, never read as less."""

from __future__ import annotations

import queue
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.commits import Disk
from helpers.peers import client, durable_queue, neighbour
from helpers.stores import keep, next_number
from helpers.strategies import soaked
from thatch.delivery.journal import QueueRow, ReceivedRow
from thatch.errors import CallerError, StoreError
from thatch.node.store import Store
from thatch.protocol.records import Drop, LinkRecord, SubscriptionKey, SubscriptionRecord

Contents = tuple[Any, ...]
ANN, QUEUE, B2 = client("ann"), durable_queue("ann@q"), neighbour("B2")


class Loop:
    """What a store tells the thread that asks it, run when that thread likes."""

    def __init__(self, store: Store) -> None:
        self.store, self.committed, self._calls = store, 0, queue.Queue[tuple[Any, ...]]()
        store.start(lambda *call: self._calls.put(call), self._note)

    def _note(self, ticket: int) -> None:
        self.committed = ticket

    def run_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            function, *arguments = self._calls.get(timeout=10)
            function(*arguments)

    def flush(self) -> None:
        ticket = self.store.ticket
        self.run_until(lambda: self.committed >= ticket)


def contents(path: Path) -> Contents:
    """All that a broker would find."""
    store = Store(path, "B1")
    try:
        held = {peer: list(store.stored(peer)) for peer in (QUEUE, B2)}
        return list(store.records()), store.queues(), held, store.received(), store.statistics(), store.space
    finally:
        store.stop()


def fill(store: Store, loop: Loop, transactions: int) -> None:
    store.set_space("{}")
    store.put_queue(QueueRow(QUEUE, 1000, 5.0, 0))
    for number in range(transactions):
        store.keep((SubscriptionRecord(ANN, f"B1/ann/{number}", f"price < {number}"),))
        keep(store, QUEUE, next_number(store), float(number), b"event %d " % number * 20)
        keep(store, B2, next_number(store), float(number), b"other")
        store.note_received(ReceivedRow(B2, "a life", number, 1))
        loop.flush()


def snapshot(path: Path, to: Path) -> Path:
    """The files as a crash would leave them."""
    to.mkdir(exist_ok=True)
    for suffix in ("", "-wal"):
        source = path.with_name(path.name + suffix)
        if source.exists():
            shutil.copy(source, to / source.name)
    return to / path.name


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents, Contents]:
    """A store with its log, what is in it, and what was before the last commit."""
    folder = tmp_path_factory.mktemp("store")
    store = Store(folder / "s", "B1")
    loop = Loop(store)
    fill(store, loop, 30)
    snapshot(store.path, folder / "before")
    store.keep((SubscriptionRecord(ANN, "B1/ann/last", "price = 7"),))
    loop.flush()
    path = snapshot(store.path, folder / "after")
    store.stop()
    whole = contents(snapshot(path, folder / "read"))
    before = contents(snapshot(folder / "before" / "s", folder / "read-before"))
    return path, whole, before


def test_committed_is_there_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    loop = Loop(store)
    store.keep((LinkRecord(ANN), SubscriptionRecord(ANN, "a", "price < 1", 7.5)))
    store.keep((SubscriptionRecord(ANN, "b", "price < 2"), SubscriptionRecord(ANN, "a", "price < 3")))
    store.keep((Drop(SubscriptionKey(ANN, "b")),))
    first = next_number(store)
    keep(store, QUEUE, first, 1.0, b"one")
    keep(store, QUEUE, next_number(store), 2.0, b"two")
    store.put_queue(QueueRow(QUEUE, 10, 2.0, 3))
    store.discard(QUEUE, first)
    store.note_statistics({"events_in": 4})
    loop.flush()
    store.stop()
    records, queues, held, _, statistics, _ = contents(tmp_path / "s")
    assert records == [LinkRecord(ANN), SubscriptionRecord(ANN, "a", "price < 3")]
    assert queues == [QueueRow(QUEUE, 10, 2.0, 3)] and [row.size for row in held[QUEUE]] == [3]
    assert statistics == {"events_in": 4}
    again = Store(tmp_path / "s", "B1")
    assert next_number(again) > first + 2**39
    again.stop()


def test_pages(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    loop = Loop(store)
    numbers = [next_number(store) for _ in range(5)]
    for number in numbers:
        keep(store, QUEUE, number, 0.0, b"%d" % number)
    pages: list[tuple[list[int], bool]] = []
    store.read(QUEUE, numbers[1], 2, lambda rows, whole: pages.append(([row[0] for row in rows], whole)))
    loop.run_until(lambda: bool(pages))
    assert pages == [(numbers[2:4], True)]
    store.stop()


def test_what_is_written_together_has_the_same_effect_as_one_after_the_other(tmp_path: Path) -> None:
    """Events that were deleted before they were written are left out, and nothing else: also if a durable subscription
    was cancelled, made again under its name, and read, all while one commit took its time."""
    disk = Disk()
    store = Store(tmp_path / "s", "B1", before_commit=disk.before_commit)
    loop = Loop(store)
    old = [next_number(store) for _ in range(3)]
    for number in old[:2]:
        keep(store, QUEUE, number, 1.0, b"old")
    loop.flush()
    disk.hold()
    store.set_space("{}")
    assert disk.waiting.wait(10)
    keep(store, QUEUE, old[2], 2.0, b"old, too")
    store.drop_queue(QUEUE)
    new = [next_number(store) for _ in range(3)]
    keep(store, QUEUE, new[0], 3.0, b"new")
    keep(store, QUEUE, new[1], 4.0, b"new, too")
    keep(store, B2, new[2], 4.0, b"of another")
    store.discard(QUEUE, new[0])
    store.discard(QUEUE, old[0])
    disk.release()
    loop.flush()
    store.stop()
    held = contents(tmp_path / "s")[2]
    assert [row.number for row in held[QUEUE]] == [new[1]] and [row.number for row in held[B2]] == [new[2]]


def test_one_broker_a_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    with pytest.raises(StoreError, match="another broker uses it"):
        Store(tmp_path / "s", "B1")
    store.stop()
    assert not issubclass(StoreError, CallerError), "a store that is damaged is not the caller's mistake"
    with pytest.raises(StoreError, match="belongs to broker 'B1', not to 'B2'"):
        Store(tmp_path / "s", "B2")


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE t (x)")
    other.close()
    for content, reason in (
        (b"", "empty"),
        (b"hello", "not an SQLite file"),
        (b"SQLite format 3\0", "cut"),
        ((tmp_path / "other").read_bytes(), "another program"),
    ):
        path.write_bytes(content)
        with pytest.raises(StoreError, match=reason):
            Store(path, "B1")
        assert path.read_bytes() == content
    path.unlink()
    (tmp_path / "s-wal").write_bytes(b"x" * 100)
    with pytest.raises(StoreError, match="log is there"):
        Store(path, "B1")


def test_flipped_bits_are_refused_or_harmless(crashed: tuple[Path, Contents, Contents], tmp_path: Path) -> None:
    path, whole, before = crashed
    chance = random.Random(3)
    refused = last = 0
    for trial in range(soaked(90, 2_000)):
        copy = snapshot(path, tmp_path / "copy")
        target = copy if trial % 3 == 0 else copy.with_name("s-wal")
        data = bytearray(target.read_bytes())
        at = chance.randrange(len(data))
        data[at] ^= 1 << chance.randrange(8)
        target.write_bytes(data)
        try:
            found = contents(copy)
        except StoreError:
            refused += 1
        else:
            assert found in (whole, before), f"trial {trial}: byte {at} of {target.name} of {len(data)}"
            last += found == before
    assert refused > 30
    assert last < refused / 5  # in the very last transaction, where a flipped bit looks like a crash


def test_a_flipped_bit_in_the_last_transaction_but_one_is_refused(
    crashed: tuple[Path, Contents, Contents], tmp_path: Path
) -> None:
    path, whole, _ = crashed
    log = path.with_name("s-wal").read_bytes()
    frames = range(32, len(log), 24 + 4096)
    ends = [at for at in frames if int.from_bytes(log[at + 4 : at + 8], "big")]
    assert ends[-1] == frames[-1]
    copy = snapshot(path, tmp_path / "copy")
    for at in (ends[-3] + 24 + 4096, ends[-2]):  # the first frame of it, and the last
        data = bytearray(log)
        data[at + 2_000] ^= 1
        copy.with_name("s-wal").write_bytes(data)
        with pytest.raises(StoreError, match=f"the frame at byte {at:,}"):
            contents(copy)
    assert contents(snapshot(path, tmp_path / "copy")) == whole


def test_torn_files(crashed: tuple[Path, Contents, Contents], tmp_path: Path) -> None:
    """A file that was cut is refused; a log whose end is missing is a crash in mid-write."""
    path, whole, _ = crashed
    size = path.stat().st_size
    for kept in (1, 50, 4096, size // 2, size - 1):
        copy = snapshot(path, tmp_path / "copy")
        copy.with_name("s-wal").unlink()
        copy.write_bytes(path.read_bytes()[:kept])
        with pytest.raises(StoreError):
            contents(copy)
    copy = snapshot(path, tmp_path / "copy")
    log = copy.with_name("s-wal")
    log.write_bytes(log.read_bytes()[:-3000])
    assert len(contents(copy)[0]) == len(whole[0]) - 1


def test_a_checkpointed_store_is_checked_row_by_row(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    loop = Loop(store)
    fill(store, loop, 5)
    store.stop()
    data = (tmp_path / "s").read_bytes()
    at = data.index(b"price < 3")
    (tmp_path / "s").write_bytes(data[:at] + b"price < 4" + data[at + 9 :])
    with pytest.raises(StoreError, match="checksum of a row of subscriptions"):
        Store(tmp_path / "s", "B1")


def test_a_store_that_fails_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    failures: list[Exception] = []
    calls: queue.Queue[tuple[Any, ...]] = queue.Queue()
    store.start(lambda *call: calls.put(call), lambda _: None, failures.append)
    number = next_number(store)
    keep(store, QUEUE, number, 0.0, b"once")
    keep(store, QUEUE, number, 0.0, b"twice")
    function, *arguments = calls.get(timeout=10)
    function(*arguments)
    assert isinstance(failures[0], sqlite3.IntegrityError)
    store.stop()


@pytest.mark.parametrize("found", [b"", b"\0" * 33, b"\xff\xfe" * 16])
def test_rubbish_in_the_file_that_names_the_newest_life_does_not_stop_a_start(tmp_path: Path, found: bytes) -> None:
    """A file system that lost its last block leaves it. What is no life is not the newest one: that is announced."""
    Store(tmp_path / "B1.thatch", "B1").stop()
    (tmp_path / "B1.thatch.life").write_bytes(found)
    store = Store(tmp_path / "B1.thatch", "B1")
    assert (store.lives()[-1].since is not None) == bool(found)
    store.stop()
