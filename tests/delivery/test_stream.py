"""Streams, with a real store."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.peers import durable_queue
from thatch.delivery.clock import Stamp
from thatch.delivery.stream import Limits, Stream
from thatch.node.store import Store

QUEUE = durable_queue("ann@q")
FIRST = 1 << 40


class Receiver:
    """Takes what a stream sends, acknowledges some of it, and goes away now and then."""

    def __init__(self, stream: Stream, calls: queue.Queue[tuple[Any, ...]], chance: random.Random) -> None:
        self.stream, self.calls, self.chance = stream, calls, chance
        self.got: list[tuple[int, bytes]] = []
        self.acknowledged = 0

    def send(self, numbers: Sequence[int], events: Sequence[bytes]) -> None:
        for number, event in zip(numbers, events, strict=True):
            assert not self.got or number > self.got[-1][0] or number > self.acknowledged
            self.got.append((number, event))

    def step(self) -> None:
        action = self.chance.random()
        if not self.stream.is_attached:
            if action < 0.3:
                self.got = [each for each in self.got if each[0] <= self.acknowledged]
                self.stream.attach(self.send, self.acknowledged)
        elif action < 0.1:
            self.stream.detach()
        elif action < 0.6 and self.got:
            self.acknowledge(self.chance.choice(self.got)[0])
        self.run_calls()

    def acknowledge(self, number: int) -> None:
        if number > self.acknowledged:
            self.acknowledged = number
            self.stream.acknowledge(number)

    def run_calls(self) -> None:
        while not self.calls.empty():
            function, *arguments = self.calls.get()
            function(*arguments)


@pytest.mark.parametrize("seed", range(2, 6))
def test_a_stream_brings_everything_in_order(tmp_path: Path, seed: int) -> None:
    """Kept and plain events in turn, a small window, a receiver that comes and goes."""
    chance = random.Random(seed)
    store = Store(tmp_path / "s", "B1")
    calls: queue.Queue[tuple[Any, ...]] = queue.Queue()
    store.start(lambda *call: calls.put(call), lambda _: None)
    stream = Stream(
        QUEUE,
        store,
        Limits(
            bytes_max=2**30,
            seconds_max=1e9,
            memory_bytes_max=2**30,
            unacknowledged_bytes_max=5_000 if seed > 3 else chance.choice((30, 200)),
        ),
        FIRST,
    )
    receiver = Receiver(stream, calls, chance)
    sent: list[bytes] = []
    for _ in range(200):
        kept = chance.random() < 0.6
        events = [b"event %d" % (len(sent) + each) for each in range(chance.choice((1, 1, 5, 100 if seed > 3 else 2)))]
        sent += events
        stream.append_all(events, kept, Stamp(0.0, 0.0))
        receiver.step()
        if chance.random() < 0.02:
            time.sleep(0.005)
    if not stream.is_attached:
        receiver.got = [each for each in receiver.got if each[0] <= receiver.acknowledged]
        stream.attach(receiver.send, receiver.acknowledged)
    end = time.monotonic() + 20
    while len(receiver.got) < len(sent):
        assert time.monotonic() < end, f"{len(receiver.got)} of {len(sent)} came"
        receiver.run_calls()
        if receiver.got:
            receiver.acknowledge(receiver.got[-1][0])
        time.sleep(0.001)
    assert [event for _, event in receiver.got] == sent
    receiver.acknowledge(receiver.got[-1][0])
    assert stream.on_disk.count == 0 and stream.waiting_bytes == 0 and stream.lost == 0
    store.stop()
    again = Store(tmp_path / "s", "B1")
    assert list(again.stored(QUEUE)) == []
    again.stop()


def test_an_acknowledgement_may_be_of_what_was_sent_since_the_receiver_came(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    store.start(lambda *_: None, lambda _: None)
    limits = Limits(bytes_max=20_000, seconds_max=10.0, memory_bytes_max=1_000, unacknowledged_bytes_max=10)
    stream = Stream(QUEUE, store, limits, FIRST)
    assert not stream.has_sent(FIRST + 1)
    stream.append_all([b"0123456789"] * 4, kept=False, stamp=Stamp(0.0, 0.0))
    stream.attach(lambda numbers, events: None, FIRST + 1)
    assert [stream.has_sent(FIRST + each) for each in range(5)] == [False, False, True, False, False]
    stream.detach()
    assert not stream.has_sent(FIRST + 2)
    store.stop()


def test_what_is_too_much_goes_and_is_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    store.start(lambda *_: None, lambda _: None)
    limits = Limits(bytes_max=20_000, seconds_max=10.0, memory_bytes_max=1_000, unacknowledged_bytes_max=100)
    stream = Stream(QUEUE, store, limits, FIRST)
    stream.append_all([b"x" * 100] * 1_000, kept=True, stamp=Stamp(100.0, 100.0))
    assert stream.on_disk.bytes <= 20_000 and stream.lost == 1_000 - stream.on_disk.count
    lost = stream.lost
    stream.append_all([b"y" * 100] * 20, kept=False, stamp=Stamp(100.0, 100.0))
    assert stream.waiting_bytes <= 1_000 and stream.lost == lost + 10
    assert stream.expire(105.0) == 0 and stream.on_disk.count
    stream.expire(111.0)
    assert not stream.on_disk.count
    store.stop()


def test_a_call_behind_what_was_appended_waits_until_that_is_sent(tmp_path: Path) -> None:
    """T1.1: behind a backlog in memory and on disk; what comes later is not waited for."""
    store = Store(tmp_path / "s", "B1")
    calls: queue.Queue[tuple[Any, ...]] = queue.Queue()
    store.start(lambda *call: calls.put(call), lambda _: None)
    limits = Limits(bytes_max=2**20, seconds_max=1e9, memory_bytes_max=2**20, unacknowledged_bytes_max=20)
    stream = Stream(QUEUE, store, limits, FIRST)
    receiver, said = Receiver(stream, calls, random.Random(1)), list[int]()
    stream.call_behind(lambda: said.append(-1))
    stream.attach(receiver.send, FIRST)
    stream.call_behind(lambda: said.append(0))
    assert said == [0], "nobody was there, and then nothing waited"
    for at in range(20):
        stream.append(b"0123456789", kept=at % 2 == 0, stamp=Stamp(0.0, 0.0))
    stream.call_behind(lambda: said.append(len(receiver.got)))
    stream.append_all([b"0123456789"] * 20, kept=False, stamp=Stamp(0.0, 0.0))
    end = time.monotonic() + 10
    while len(receiver.got) < 40 and time.monotonic() < end:
        assert said == [0] if len(receiver.got) < 20 else said[0] == 0
        receiver.run_calls()
        receiver.acknowledge(receiver.got[-1][0])
    assert said == [0, 20] or said == [0, 21]
    stream.append(b"0123456789", kept=False, stamp=Stamp(0.0, 0.0))
    store.stop()


def test_a_call_behind_what_was_appended_is_not_made_for_a_receiver_that_comes_later(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    store.start(lambda *_: None, lambda _: None)
    limits = Limits(bytes_max=20_000, seconds_max=10.0, memory_bytes_max=1_000, unacknowledged_bytes_max=10)
    stream, said = Stream(QUEUE, store, limits, FIRST), list[int]()
    stream.attach(lambda numbers, events: None, FIRST)
    stream.append_all([b"0123456789"], kept=False, stamp=Stamp(0.0, 0.0))
    stream.append_all([b"0123456789"], kept=False, stamp=Stamp(0.0, 0.0))
    stream.call_behind(lambda: said.append(1))
    stream.detach()
    stream.attach(lambda numbers, events: None, FIRST + 2)
    assert said == []
    store.stop()
