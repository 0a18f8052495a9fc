"""What is kept of which events came, with a real store: bounded, and enough to tell a restored past from a crash."""

from __future__ import annotations

from pathlib import Path

from helpers.peers import neighbour
from thatch import Space
from thatch.broker import Broker
from thatch.delivery import driver as driving
from thatch.delivery.clock import Clock
from thatch.delivery.driver import Driver
from thatch.delivery.received import LIVES_KEPT, Arrivals, Confirmations
from thatch.delivery.stream import Limits
from thatch.node.store import Store

PEER = neighbour("B2")


def started(path: Path) -> Store:
    store = Store(path, "B1")
    store.start(lambda *_: None, lambda _: None)
    return store


def restored(path: Path) -> Arrivals:
    store = Store(path, "B1")
    rows = store.received()
    store.stop()
    return Arrivals(PEER, store, rows)


def test_what_was_committed_is_known_after_a_restart(tmp_path: Path) -> None:
    store = started(tmp_path / "s")
    arrivals = Arrivals(PEER, store, ())
    for life, number in (("b", 5), ("a", 7)):
        arrivals.note(life, number)
        arrivals.commit(life)
    arrivals.note("a", 9)  # plain
    store.stop()
    again = restored(tmp_path / "s")
    assert list(again.taken.items()) == [("b", 5), ("a", 7)] and again.committed == again.taken


def test_the_life_that_was_committed_before_the_last_one_stays(tmp_path: Path) -> None:
    """If the acknowledgement of the last one is lost, the neighbour asks after that one."""
    store = started(tmp_path / "s")
    arrivals = Arrivals(PEER, store, ())
    for at in range(3):
        arrivals.note(f"first{at}", 1)
        arrivals.commit(f"first{at}")
    for at in range(3 * LIVES_KEPT):
        arrivals.note(f"plain{at}", 1)
    assert len(arrivals.taken) == 3 + LIVES_KEPT, "memory is bounded"
    arrivals.commit(f"plain{at}")
    assert set(arrivals.committed) == {"first2", f"plain{at}"}
    for each in range(3 * LIVES_KEPT):
        arrivals.note(f"kept{each}", 1)
        arrivals.commit(f"kept{each}")
    store.stop()
    again = restored(tmp_path / "s")
    assert [*again.taken] == [f"kept{each}" for each in range(2 * LIVES_KEPT, 3 * LIVES_KEPT)]


def test_confirmations_of_the_last_lives_are_kept(tmp_path: Path) -> None:
    store = started(tmp_path / "s")
    confirmations = Confirmations(PEER, store, (), lambda life: int(life) % 1000)  # 1000: a life that was lost
    for life in (1000, *range(LIVES_KEPT, 0, -1), LIVES_KEPT + 1):
        confirmations.note(str(life), 1)
    wanted = {str(life) for life in range(2, LIVES_KEPT + 2)}
    assert set(confirmations.numbers) == wanted
    store.stop()
    again = Store(tmp_path / "s", "B1")
    assert {row.life for row in again.confirmed()} == wanted
    again.stop()


def test_announced_intervals_are_bounded(tmp_path: Path) -> None:
    """A neighbour may say as often as it likes that its store began in the past; nobody else's intervals go."""
    store = Store(tmp_path / "s", "B1")
    limits = Limits(bytes_max=1, seconds_max=1.0, memory_bytes_max=1, unacknowledged_bytes_max=1)
    driver = Driver(
        Broker("B1", Space.parse("price double")), store, limits, Clock(lambda: 0.0, lambda: 0.0), lambda ticket: None
    )
    store.start(lambda *_: None, lambda _: None)
    driver.announce_gap(neighbour("B3"), "in", 1.0, 2.0, 3)
    for at in range(100):
        driver.announce_gap(PEER, "in", float(at), at + 1.0, None)
        driver.announce_gap(PEER, "in", float(at), at + 1.0, None)
    kept = driving.GAPS_OF_PEER_MAX
    assert driver.gaps_dropped == 100 - kept
    assert [(gap.peer.name, gap.since) for gap in driver.gaps] == [
        ("B3", 1.0), *[("B2", float(at)) for at in range(100 - kept, 100)]
    ]  # fmt: skip
    store.stop()
    again = Store(tmp_path / "s", "B1")
    assert sorted(again.gaps()) == sorted(driver.gaps) and len(driver.gaps) == 1 + kept
    again.stop()
