"""What waits for a connection, and in which order it goes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from thatch.delivery.outgoing import Gate, Outgoing, Overflow


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
