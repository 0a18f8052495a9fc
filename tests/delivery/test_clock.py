"""Steps of a machine's clock: what is kept gets no older by them, and nothing stands still."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from helpers.peers import neighbour
from thatch import Space
from thatch.broker import Broker
from thatch.delivery.clock import Clock
from thatch.delivery.driver import Driver
from thatch.delivery.stream import Limits
from thatch.node.store import Store
from thatch.protocol.messages import OPERATOR, Hello, LinkUp, Subscribe, Synced, Tick, seq_of

DAY = 86_400.0
LIMITS = Limits(bytes_max=2**20, seconds_max=DAY, memory_bytes_max=2**20, unacknowledged_bytes_max=2**20)
SPACE = Space.parse("price double")


class Machine:
    """A clock that is stepped, and one that only runs on."""

    def __init__(self) -> None:
        self.stepped, self.seconds = 1.8e9, 50.0

    def clock(self, ran: float = 0.0) -> Clock:
        return Clock(lambda: self.stepped + self.seconds, lambda: self.seconds, ran)


def driver_on(store: Store, machine: Machine) -> Driver:
    return Driver(Broker("B1", SPACE), store, LIMITS, machine.clock(store.ran), lambda ticket: None)


def test_now_never_steps_and_the_wall_does() -> None:
    machine = Machine()
    clock = machine.clock(100.0)
    began = clock()
    machine.seconds += 5
    machine.stepped -= 3_600
    assert clock() == began + 5 and clock.ran == 105.0 and clock.ahead == -3_600
    assert clock.stamp() == (began + 5 - 3_600, 105.0)
    assert [clock.take_step(), clock.take_step()] == [-3_600, 0]
    for _ in range(100):  # a clock that is adjusted, a second at a time
        machine.stepped += 1
        assert clock.take_step() == 0
    assert clock.ahead == -3_500


def test_a_step_of_eight_days_forward_expires_nothing_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """HOLES 44."""
    machine, store = Machine(), Store(tmp_path / "s", "B1")
    driver = driver_on(store, machine)
    stream = driver.stream("B2")
    stream.append_all([b"x"] * 10, kept=True, stamp=driver.clock.stamp())
    machine.stepped += 8 * DAY
    with caplog.at_level(logging.WARNING, "thatch.node"):
        driver.pass_time()
        driver.pass_time()
    assert stream.on_disk.count == 10
    assert [each.getMessage().split(" (")[0] for each in caplog.records] == [
        "the clock of this machine was stepped forward by 8 days, 0:00:00"
    ]
    machine.seconds += DAY
    driver.pass_time()
    assert stream.on_disk.count == 10
    machine.seconds += 1
    driver.pass_time()
    assert stream.on_disk.count == 0 and stream.lost == 10
    store.stop()


def test_age_counts_only_while_a_node_runs(tmp_path: Path) -> None:
    machine, store = Machine(), Store(tmp_path / "s", "B1")
    driver = driver_on(store, machine)
    machine.seconds += 1_000
    driver.stream("B2").append(b"x", kept=True, stamp=driver.clock.stamp())
    machine.seconds += DAY / 2
    store.note_ran(driver.clock.ran)
    store.start(lambda *_: None, lambda _: None)
    store.stop()
    machine.seconds += 30 * DAY  # nobody runs
    store = Store(tmp_path / "s", "B1")
    driver = driver_on(store, machine)
    assert store.ran == 1_000 + DAY / 2
    stream = driver.stream("B2")
    machine.seconds += DAY / 2
    driver.pass_time()
    assert stream.on_disk.count == 1
    machine.seconds += 1
    driver.pass_time()
    assert stream.on_disk.count == 0
    store.stop()


def test_how_long_nodes_have_run_is_known_from_what_was_kept_last(tmp_path: Path) -> None:
    """Whatever else was to be written when the node was killed."""
    machine, store = Machine(), Store(tmp_path / "s", "B1")
    clock = machine.clock()
    store.note_ran(clock.ran)
    machine.seconds += 7
    store.append(neighbour("B2"), store.lives()[-1].ordinal << 40 | 1, clock.stamp(), 0, b"x")
    store.start(lambda *_: None, lambda _: None)
    store.stop()
    again = Store(tmp_path / "s", "B1")
    assert again.ran == 7.0
    again.stop()


@pytest.mark.parametrize("step", [-3_600.0, 8 * DAY])
def test_a_lease_ends_when_it_would_have_ended_whatever_the_clock_does(step: float) -> None:
    """HOLES 44: a step forward expires nothing, and one back stops nothing. What is asked for later goes by the clock
    of then."""
    broker, began = Broker("B1", SPACE), 1.8e9
    broker.handle(LinkUp(1, is_client=True), "ann", began)
    broker.handle(Hello("ann", 1, SPACE.to_json(), is_client=True, version_max=5), "ann", began)
    broker.handle(Synced(seq_of(1, 1), 1), "ann", began)
    broker.handle(Subscribe(seq_of(1, 2), "first", "TRUE", began + 60), "ann", began)

    def held_at(seconds: float) -> list[str]:
        broker.handle(Tick(step), OPERATOR, began + seconds)
        return sorted(entry.split("/")[2] for entry in broker.received_from("subscriptions", "ann"))

    assert held_at(1) == ["first"]
    broker.handle(Subscribe(seq_of(1, 3), "second", "TRUE", began + step + 100), "ann", began + 2)
    assert held_at(59) == ["first", "second"] and held_at(61) == ["second"]
    assert held_at(99) == ["second"] and held_at(101) == []
