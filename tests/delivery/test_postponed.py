"""Events that wait for room on the disk."""

from __future__ import annotations

from thatch.delivery.postponed import FIELD_BYTES, Postponed
from thatch.protocol.messages import Flushed, Publish
from thatch.protocol.wire import Forward


def forward(number: int, publisher: str) -> Forward:
    return Forward(number, Publish(f"{publisher}:{number}", {"x": number}))


def test_what_a_publisher_published_waits_as_long_as_anything_before_it_does() -> None:
    postponed = Postponed(10_000)
    came: list[Forward | Flushed] = [forward(1, "ann"), forward(2, "bob"), Flushed(7), forward(4, "ann")]
    for each in came:
        postponed.add(each)
    another = {name: Publish(f"{name}:9", {}) for name in ("ann", "bob", "cat")}
    waits = []
    while postponed:
        waits.append([name for name, event in another.items() if postponed.waits_for(event)])
        assert postponed.first is came.pop(0)
        postponed.drop_first()
    assert waits == [["ann", "bob"], ["ann", "bob"], ["ann"], ["ann"]]
    assert not any(map(postponed.waits_for, another.values())) and not postponed.has_left_out


def test_what_there_is_no_room_for_is_left_out_with_all_that_comes_later() -> None:
    postponed = Postponed(3 * FIELD_BYTES)
    for number in (1, 2, 3):
        postponed.add(forward(number, "ann"))
    assert postponed.has_left_out
    postponed.drop_first()
    postponed.add(forward(4, "ann"))
    postponed.add(Flushed(7))
    assert postponed.first == forward(2, "ann")
    postponed.drop_first()
    assert not postponed and postponed.has_left_out
