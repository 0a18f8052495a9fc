"""Everything at once: random interleavings compared with brute force, and threads that read while others write.

A `Receiver` does what others do with a table's changes: forward first, then withdraw; it must end up with exactly the
active subscriptions and their present regions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from helpers.cover_oracles import recode
from helpers.match_oracles import Pool
from helpers.strategies import soaked
from helpers.tables import SEED, active, pairs, passive, quietly, regions_and_events, settings
from thatch import Space, SubscriptionTable
from thatch.cover import Change, verify
from thatch.region.region import Region

# --- Everything at once: random interleavings -------------------------------------------------------------------------


class Receiver:
    """A table, whoever applies its changes, and brute force over all current subscriptions, side by side."""

    def __init__(self, table: SubscriptionTable, pool: Pool) -> None:
        self.table, self.pool = table, pool
        self.wanted: dict[Any, int] = {}  # which region of the pool, in order of arrival
        self.due: dict[Any, float] = {}
        self.received: dict[Any, Region] = {}

    def subscribe(self, id: Any, which: int, due: float | None = None) -> None:
        members = self.members()
        change = self.table.subscribe(id, self.pool.regions[which], expires=due)
        self.wanted[id] = which
        if due is not None:
            self.due[id] = due
        self.apply(change)
        assert change.verdict is None or verify(change.verdict, self.pool.regions[which], members)
        assert id in change.forward or not self.table[id].active

    def subscribe_many(self, ids: list[Any], which: list[int]) -> None:
        changes = self.table.subscribe_many(ids, [self.pool.regions[each] for each in which])
        self.wanted.update(zip(ids, which, strict=True))
        for change in changes:
            assert self.received.keys().isdisjoint(change.forward)
            self.take(change)
        self.agree()

    def unsubscribe(self, id: Any) -> None:
        change = self.table.unsubscribe(id)
        self.forget([id])
        self.apply(change)

    def replace(self, id: Any, which: int) -> None:
        members = {each: region for each, region in self.members().items() if each != id}
        change = self.table.replace(id, self.pool.regions[which])
        self.wanted[id] = which
        self.apply(change, id)
        assert change.verdict is None or verify(change.verdict, self.pool.regions[which], members)

    def expire(self, now: float) -> None:
        change = self.table.expire(now)
        self.forget([id for id, due in self.due.items() if due <= now])
        self.apply(change)

    def members(self) -> dict[Any, Region]:
        return dict(self.received)

    def forget(self, ids: list[Any]) -> None:
        for id in ids:
            del self.wanted[id]
            self.due.pop(id, None)

    def take(self, change: Change) -> None:
        assert set(change.forward).isdisjoint(change.withdraw)
        assert len(set(change.forward)) == len(change.forward) and len(set(change.withdraw)) == len(change.withdraw)
        for id in change.forward:
            self.received[id] = self.pool.regions[self.wanted[id]]
        for id in change.withdraw:
            del self.received[id]

    def apply(self, change: Change, but: Any = None) -> None:
        assert self.received.keys() - {but} <= self.received.keys() - set(change.forward) | {but}
        self.take(change)
        self.agree()

    def agree(self) -> None:
        table = self.table
        assert list(table) == list(self.wanted) and len(table) == len(self.wanted)
        assert self.received.keys() == set(active(table))
        for id, region in self.received.items():
            assert region is self.pool.regions[self.wanted[id]], f"{id} was forwarded with another region"

    def matches(self, random: Random) -> None:
        """One batch and some events alone."""
        ids, mask = sorted(self.wanted), self.pool.mask
        rows, places = np.nonzero(mask[:, [self.wanted[id] for id in ids]])
        found = self.table.match_batch(self.pool.table)
        assert found["event_index"].to_numpy().tolist() == rows.tolist()
        assert found["subscription_id"].to_pylist() == [ids[place] for place in places.tolist()]
        for row in random.sample(range(len(mask)), 6):
            assert self.table.match(self.pool.events[row]) == [id for id in ids if mask[row, self.wanted[id]]]
        active_wants = mask[:, [self.wanted[id] for id in self.received]].any(axis=1)
        assert (mask[:, list(self.wanted.values())].any(axis=1) == active_wants).all(), "what is active stands for all"

    def whole(self) -> None:
        self.table.check_invariants()
        for id, subscription in self.table.items():
            assert subscription.region is self.pool.regions[self.wanted[id]]
            assert subscription.expires == self.due.get(id)


@quietly
@settings
@pytest.mark.parametrize("kind", ["bounded", "strings", "balls"])
def test_random_interleavings(kind: str, cover: str | None, retract: bool) -> None:
    random = Random(f"{SEED}/{kind}/{cover}/{retract}")
    pool = regions_and_events(kind)
    groups = cover is not None and retract == (kind != "bounded")
    receiver = Receiver(SubscriptionTable(pool.space, cover, retract, groups=groups), pool)
    text = kind != "bounded"
    new = iter(random.sample(range(-5000, 5000), 4000))

    def new_id() -> Any:
        number = next(new)
        return f"{number}" if text else number

    def which() -> int:
        return random.randrange(len(pool.regions))

    held = 0
    for step in range(soaked(90, 170)):
        draw, ids = random.random(), list(receiver.wanted)
        growing = step % 60 < 38
        if len(ids) < 4 or draw < (0.35 if growing else 0.15):
            receiver.subscribe(new_id(), which(), random.choice((None, None, step + random.randint(1, 60))))
        elif draw < (0.42 if growing else 0.18):
            size = random.randint(0, 9)
            receiver.subscribe_many([new_id() for _ in range(size)], [which() for _ in range(size)])
        elif draw < 0.62:
            receiver.unsubscribe(random.choice(list(receiver.received) or ids if random.random() < 0.6 else ids))
        elif draw < 0.86:
            receiver.replace(random.choice(list(receiver.received) or ids if random.random() < 0.6 else ids), which())
        elif draw < 0.93:
            receiver.expire(step)
        elif pool.space.label_codes:
            pool.space.where(f"name >= 'k{step}' AND name < 'k{step}x'")
            if draw < 0.98:
                recode(pool.space)
        if step % 6 == 0:
            receiver.matches(random)
        if step % 40 == 39:
            receiver.whole()
            held += len(passive(receiver.table))
    assert (cover is None) == (held == 0)
    while receiver.wanted:
        receiver.unsubscribe(random.choice(list(receiver.wanted)))
    assert receiver.received == {} and len(receiver.table) == 0
    receiver.table.check_invariants()


# --- Threads ----------------------------------------------------------------------------------------------------------


def written(random: Random, count: int) -> Iterator[tuple[str, Any]]:
    """What a writer does, as clauses: new strings are cut all the time."""
    here: list[str] = []
    for step in range(count):
        low, name = random.randint(0, 90), f"{random.choice('abcdefgh')}{step}"
        clause = random.choice(
            (
                f"size BETWEEN {low} AND {low + random.randint(0, 40)}",
                f"size >= {low} AND name >= '{name}'",
                f"name IN ('{name}', 'c5', 'd') OR size = {low}",
                "TRUE",
            )
        )
        draw = random.random()
        if len(here) < 8 or draw < 0.35:
            here.append(f"{random.random()}")
            yield "subscribe", (here[-1], clause)
        elif draw < 0.65:
            yield "replace", (random.choice(here), clause)
        else:
            yield "unsubscribe", (here.pop(random.randrange(len(here))),)


@pytest.mark.parametrize(("cover", "retract"), [(None, False), ("exact", True)])
def test_four_threads_read_while_one_writes(cover: str | None, retract: bool) -> None:
    """Each answer is that of some version between the start and the end of the call; a batch is of one version."""
    text = "name string, size int not null 0..99"
    events = [{"name": name, "size": size} for name, size in zip("acdhz", (5, 30, 55, 80, 95), strict=True)]
    batch = {"name": [each["name"] for each in events], "size": np.array([each["size"] for each in events])}
    script = list(written(Random(SEED), soaked(45, 90)))
    aside, here = Space.parse(text), dict[str, Region]()
    truth: list[list[list[str]]] = [[[] for _ in events]]
    for operation, (id, *clause) in script:
        here.pop(id) if operation == "unsubscribe" else here.update({id: aside.where(*clause)})
        truth.append([sorted(each for each in here if here[each].contains(event)) for event in events])
    table = SubscriptionTable(Space.parse(text), cover, retract, groups=retract)
    begun, ended, wrong, answers = [0], [0], list[Any](), [0] * 4

    def read(reader: int) -> None:
        random = Random(reader)
        try:
            while ended[0] < len(script):
                row, first = random.randrange(len(events)), ended[0]
                if reader % 2:
                    found: list[Any] = table.match(events[row])
                    right = any(found == truth[version][row] for version in range(first, begun[0] + 1))
                else:
                    many = pairs(table.match_batch(batch))
                    found = [[id for at, id in many if at == place] for place in range(len(events))]
                    right = any(found == truth[version] for version in range(first, begun[0] + 1))
                answers[reader] += 1
                if not right:
                    wrong.append((reader, first, begun[0], row, found))
                len(table), table.get(random.choice(truth[first][row] or ["none"])), list(table)
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=read, args=(reader,)) for reader in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number, (operation, arguments) in enumerate(script, 1):
            begun[0] = number
            getattr(table, operation)(*arguments)
            ended[0] = number
            if number % 25 == 0:
                recode(table.space)
            time.sleep(0.001)
    finally:
        ended[0] = len(script)
        for thread in threads:
            thread.join()
    assert not wrong, (len(wrong), wrong[:3])
    assert min(answers) > 0
    assert pairs(table.match_batch(batch)) == [(row, id) for row, ids in enumerate(truth[-1]) for id in ids]
    table.check_invariants()


def test_two_threads_write() -> None:
    table = SubscriptionTable(Space.parse("name string, size int not null 0..99"), "exact", retract=True)
    failed: list[Any] = []

    def write(writer: int) -> None:
        try:
            for number in range(60):
                table.subscribe(f"{writer}/{number}", f"name >= '{writer}x{number}' AND size < {number + 9}", expires=7)
                if number % 3 == 0:
                    table.replace(f"{writer}/{number}", f"size = {number}")
                if number % 4 == 3:
                    table.unsubscribe(f"{writer}/{number - 2}")
                if number % 20 == 0:
                    table.match({"name": "5", "size": number})
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert len(table) == 90
    table.check_invariants()
    assert len(table.expire(7).forward) == 0 and len(table) == 0
