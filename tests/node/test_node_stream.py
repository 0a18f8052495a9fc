"""What waits for a connection, and in which order it goes; streams, with a real store."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.peers import durable_queue
from thatch.node.outgoing import Gate, Outgoing, Overflow
from thatch.node.store import Store
from thatch.node.stream import Limits, Stream

QUEUE = durable_queue("ann@q")


def texts(frame: bytes | None) -> list[Any]:
    return [] if frame is None else msgspec.msgpack.decode(frame)


def said(text: str) -> bytes:
    return msgspec.msgpack.encode(text)


def test_events_come_first_and_nothing_speaks_of_what_is_not_on_disk() -> None:
    gate = Gate()
    outgoing = Outgoing(gate, 1000, drops=True, control_max=1000)
    outgoing.control(said("accepted"), ticket=1)
    outgoing.event(said("e1"))
    outgoing.control(said("settled"), ticket=1)
    outgoing.answer(said("published"), ticket=0)
    assert texts(outgoing.take()) == ["e1", "published"]
    outgoing.event(said("e2"))
    gate.open(1)
    assert texts(outgoing.take()) == ["e2", "accepted", "settled"]
    assert outgoing.take() is None and outgoing.is_empty


def test_control_does_not_overtake_events_and_is_not_starved() -> None:
    outgoing = Outgoing(Gate(), 2**30, drops=True, control_max=1000)
    for number in range(20):
        outgoing.event(said("x" * 50_000 + str(number)))
        if number == 9:
            outgoing.control(said("flush"), ticket=0)
    frames = [texts(outgoing.take()) for _ in range(5)]
    order = [each[50_000:] if each != "flush" else each for frame in frames for each in frame]
    assert order.index("flush") >= 10 and "flush" in frames[1] and len(frames[0]) < 8


def test_an_event_does_not_overtake_the_space_in_which_it_is_read() -> None:
    gate = Gate()
    outgoing = Outgoing(gate, 2**30, drops=False, control_max=1000)
    outgoing.events([said("e1")])
    outgoing.hold_for(said("extend"), ticket=1)
    outgoing.events([said("e2"), said("e3")])
    outgoing.control(said("subscribe"), ticket=1)
    assert texts(outgoing.take()) == ["e1"] and outgoing.take() is None
    gate.open(1)
    assert texts(outgoing.take()) == ["extend"]
    assert texts(outgoing.take()) == ["e2", "e3", "subscribe"]
    assert outgoing.is_empty


def test_a_bound_drops_or_ends() -> None:
    dropping = Outgoing(Gate(), 100, drops=True, control_max=50)
    for number in range(50):
        dropping.event(said(f"event {number}"))
    notice, *rest = texts(dropping.take())
    assert notice[0] == "Notice" and notice[2] + len(rest) == 50 and rest[-1] == "event 49"
    with pytest.raises(Overflow):
        dropping.control(said("x" * 60), ticket=0)
    ending = Outgoing(Gate(), 100, drops=False, control_max=50)
    with pytest.raises(Overflow, match="100 may"):
        for number in range(50):
            ending.event(said(f"event {number}"))


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
    )
    receiver = Receiver(stream, calls, chance)
    sent: list[bytes] = []
    for _ in range(200):
        kept = chance.random() < 0.6
        events = [b"event %d" % (len(sent) + each) for each in range(chance.choice((1, 1, 5, 100 if seed > 3 else 2)))]
        sent += events
        stream.append_all(events, kept, time.time())
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


def test_what_is_too_much_goes_and_is_counted(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", "B1")
    store.start(lambda *_: None, lambda _: None)
    stream = Stream(
        QUEUE, store, Limits(bytes_max=20_000, seconds_max=10.0, memory_bytes_max=1_000, unacknowledged_bytes_max=100)
    )
    stream.append_all([b"x" * 100] * 1_000, kept=True, now=100.0)
    assert stream.on_disk.bytes <= 20_000 and stream.lost == 1_000 - stream.on_disk.count
    lost = stream.lost
    stream.append_all([b"y" * 100] * 20, kept=False, now=100.0)
    assert stream.waiting_bytes <= 1_000 and stream.lost == lost + 10
    assert stream.expire(105.0) == 0 and stream.on_disk.count
    stream.expire(111.0)
    assert not stream.on_disk.count
    store.stop()
