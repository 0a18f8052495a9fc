"""How long a neighbour is waited for, and when it is sent what was kept for it."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from helpers.broker_bench import NOTHING, SESSION, SPACE, Bench
from thatch.broker import Settings
from thatch.delivery.absences import Absences
from thatch.delivery.clock import Clock
from thatch.delivery.driver import Driver
from thatch.delivery.stream import Limits
from thatch.node.store import Store
from thatch.protocol.messages import Advertise, Away, Digest, Hello, LinkDown, LinkUp, Message, Publish, Settled, seq_of

AWAY_SECONDS = 10.0


class Taken:
    """In place of a driver: the broker, and what it is told."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.broker = bench, bench.broker
        self.away: list[str] = []

    def take(self, message: Message, link: str) -> None:
        assert isinstance(message, Away)
        self.away.append(link)
        self.bench.handle(message, link)


def greets(bench: Bench, name: str, session: int) -> None:
    bench.counts[name] = 0
    bench.handle(LinkUp(session), name)
    bench.handle(Hello(name, SESSION, SPACE.to_json(), members=(name,), version_max=5), name)


def start() -> tuple[Bench, Taken, Absences]:
    bench = Bench(Settings()).client("ann")
    bench.settled_neighbour("B2")
    taken = Taken(bench)
    return bench, taken, Absences(cast(Driver, taken), AWAY_SECONDS)


def test_a_neighbour_is_away_when_it_has_not_been_there_for_so_long() -> None:
    bench, taken, absences = start()
    absences.tick(0.0)
    absences.tick(100.0)
    bench.handle(LinkDown(), "B2")
    absences.tick(100.0 + AWAY_SECONDS - 1)
    assert taken.away == []
    absences.tick(100.0 + AWAY_SECONDS)
    absences.tick(100.0 + 2 * AWAY_SECONDS)
    assert taken.away == ["B2"], "once"


def test_a_neighbour_that_is_known_at_the_start_is_waited_for_as_long() -> None:
    bench, taken, absences = start()
    bench.handle(LinkDown(), "B2")
    absences.tick(1e6)
    assert taken.away == []
    absences.tick(1e6 + AWAY_SECONDS)
    assert taken.away == ["B2"]


def test_one_that_greets_and_says_nothing_is_away() -> None:
    """T1.5."""
    bench, taken, absences = start()
    bench.handle(LinkDown(), "B2")
    absences.tick(0.0)
    greets(bench, "B2", 2)
    absences.tick(AWAY_SECONDS)
    assert taken.away == ["B2"] and not bench.broker.links["B2"].is_up


def test_one_that_comes_and_goes_and_never_settles_is_away() -> None:
    bench, _, absences = start()
    bench.handle(LinkDown(), "B2")
    for at in range(1, 10):
        absences.tick(at * AWAY_SECONDS / 5)
        assert bench.broker.links["B2"].is_away is (at > 5)
        greets(bench, "B2", 2 * at)
        bench.says("B2", Digest, 1, *NOTHING)
        absences.tick(at * AWAY_SECONDS / 5)
        assert bench.broker.links["B2"].is_synced, "while it is there it is waited for"
        bench.handle(LinkDown(), "B2")


def test_one_that_has_settled_is_there_again() -> None:
    bench, taken, absences = start()
    bench.handle(LinkDown(), "B2")
    absences.tick(0.0)
    greets(bench, "B2", 2)
    bench.says("B2", Digest, 1, *NOTHING)
    link = bench.broker.links["B2"]
    bench.handle(Settled(seq_of(link.session, link.sent_count)), "B2")
    absences.tick(AWAY_SECONDS)
    bench.handle(LinkDown(), "B2")
    absences.tick(2 * AWAY_SECONDS - 1)
    assert taken.away == []


@pytest.mark.parametrize(("version", "is_held_back"), [(5, True), (4, False)])
def test_a_neighbour_that_was_away_is_sent_events_when_it_knows_what_was_advertised(
    version: int, is_held_back: bool, tmp_path: Path
) -> None:
    """An event that overtook an advertisement would find no way to what is behind the neighbour. One of an older
    version, which does not settle with exceptions, does not wait for what is behind it."""
    bench, _, _ = start()
    store = Store(tmp_path / "s", "B1")
    limits = Limits(bytes_max=2**20, seconds_max=1e9, memory_bytes_max=2**20, unacknowledged_bytes_max=2**20)
    driver, numbers = (
        Driver(bench.broker, store, limits, Clock(lambda: 0.0, lambda: 0.0), lambda ticket: None),
        list[int](),
    )
    driver.take(LinkDown(), "B2")
    driver.take(Away(), "B2")
    driver.take(Advertise(seq_of(SESSION, 1), "a", "TRUE"), "ann")
    driver.take(LinkUp(2), "B2")
    driver.take(Hello("B2", SESSION, SPACE.to_json(), members=("B2",), version_max=version), "B2")
    driver.begin_sending("B2", lambda found, events: numbers.extend(found), 0)
    driver.publish([Publish("ann:1", {"x": 1})], "ann")
    assert driver.stream("B2").is_attached is not is_held_back
    driver.take(Digest(seq_of(SESSION, 1), 1, *NOTHING), "B2")
    assert driver.stream("B2").is_attached is not is_held_back, "it has not settled"
    link = bench.broker.links["B2"]
    driver.take(Settled(seq_of(link.session, link.sent_count)), "B2")
    assert driver.stream("B2").is_attached
    driver.end_sending("B2")
    assert not driver.stream("B2").is_attached
    store.stop()
