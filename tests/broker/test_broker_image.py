"""A broker restored with an image is the broker that is restored without one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from helpers.peers import client, links, neighbour
from thatch.broker import Broker, Policy, Settings
from thatch.errors import SnapshotError
from thatch.protocol.records import Drop, RecordChange, entry_record
from thatch.space.space import Space

SPACE = "price int not null 0..200, symbol string"


def records(seed: int, count: int) -> list[RecordChange]:
    chance = random.Random(seed)
    peers = {peer.name: peer for peer in (neighbour("B2"), neighbour("B3"), client("ann"), client("bob"))}
    found: list[RecordChange] = [*links(*peers.values())]
    for _ in range(count):
        low = chance.randrange(180)
        where = f"price BETWEEN {low} AND {low + chance.randrange(60)}"
        if chance.random() < 0.3:
            where += f" AND symbol >= '{chance.choice('abcde')}'"
        link = chance.choice(("ann", "bob", "B2", "B3"))
        owner = f"B1/{link}" if link in ("ann", "bob") else f"{link}/c"
        table = "advertisements" if chance.random() < 0.15 else "subscriptions"
        id = f"{owner}/{chance.randrange(count)}"
        if chance.random() < 0.02:
            id, link = "B9/c/shared", chance.choice(("B2", "B3"))
        record = entry_record(table, peers[link], id, where)
        found.append(Drop(record.key) if chance.random() < 0.1 else record)
    return found


def state(broker: Broker) -> Any:
    sent = {
        (name, table): (broker.outbound(table, name).wheres, broker.outbound(table, name).aliases)
        for name in ("B2", "B3")
        for table in ("subscriptions", "advertisements")
    }
    received = {
        (name, t): broker.received_from(t, name) for name in broker.links for t in ("subscriptions", "advertisements")
    }
    return sent, received


@pytest.mark.parametrize("routing", ["advertisements", "subscriptions", "events"])
@pytest.mark.parametrize("cover", ["exact", "pairwise", None])
def test_the_same_with_an_image_of_now_and_of_earlier(routing: Any, cover: str | None) -> None:
    settings = Settings(routing, Policy(cover))
    for seed in range(4):
        whole = records(seed, 120)
        plain = Broker.restored("B1", Space.parse(SPACE), whole, settings)
        for moment in (0, 60, len(whole)):
            image = Broker.restored("B1", Space.parse(SPACE), whole[:moment], settings).image()
            restored = Broker.restored("B1", Space.parse(SPACE), whole, settings, image=image)
            restored.check_invariants()
            assert state(restored) == state(plain)


def test_an_image_of_another_space_is_left_aside_and_a_broken_one_refused() -> None:
    whole = records(1, 50)
    image = Broker.restored("B1", Space.parse(SPACE), whole).image()
    other = Broker.restored("B1", Space.parse(SPACE + ", more int"), whole, image=image)
    other.check_invariants()
    with pytest.raises(SnapshotError, match="the image of a broker"):
        Broker.restored("B1", Space.parse(SPACE), whole, image=image[:-20])
