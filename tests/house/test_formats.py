"""Bytes that must not change: messages on the wire, and files that were written by the version before."""

from __future__ import annotations

import shutil
import time
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from helpers import version_1
from helpers.paths import DATA
from helpers.peers import client, durable_queue, links, neighbour
from helpers.stores import contents, keep, next_number
from thatch import Space, SubscriptionTable
from thatch.broker import Broker, Settings
from thatch.broker.image import read_image
from thatch.delivery.history import derived_life
from thatch.delivery.journal import ConfirmedRow, GapRow, LifeRow, NeighbourRow, QueueRow, ReceivedRow
from thatch.node.schema import GET_EVENTS, peer_row
from thatch.node.store import Store
from thatch.protocol import messages as m
from thatch.protocol import wire as w
from thatch.protocol.codec import OnTheWire, encode
from thatch.protocol.records import (
    AdvertisementRecord,
    Drop,
    LinkRecord,
    PeerKey,
    PreservedRecord,
    RecordChange,
    SpaceRecord,
    SubscriptionKey,
    SubscriptionRecord,
)

FORMATS = DATA / "formats"
PINNED = dict(line.split() for line in (FORMATS / "messages-1.txt").read_text().splitlines())
PINNED |= {"Returned": (FORMATS / "messages-4.txt").read_text().partition("Returned ")[2].split()[0]}
PINNED |= dict(line.split() for line in (FORMATS / "messages-5.txt").read_text().splitlines() if line)
SEQ = 7 << 32 | 1
EVENT = m.Publish(
    "ann:1",
    {
        "price": 5.0,
        "fee": Decimal("1.50"),
        "day": date(2026, 2, 1),
        "at": datetime(2026, 2, 1, 3, 4, 5, 6),
        "s": "x",
        "n": None,
    },
    b"\x00pay",
    2,
    1,
    7,
)
MESSAGES: dict[str, m.Message] = {
    "Subscribe": m.Subscribe(SEQ, "B1/ann/s", "price < 20", 1.5, ("a", "b"), (1, 2, 5, 9)),
    "Replace": m.Replace(SEQ, "s", "price < 30"),
    "Unsubscribe": m.Unsubscribe(SEQ, "s", ("t",), {"r": "price < 5"}, {"s": {"adv": 2}}),
    "Advertise": m.Advertise(SEQ, "a", "TRUE", 2.5),
    "Unadvertise": m.Unadvertise(SEQ, "a"),
    "Extend": m.Extend(SEQ, '{"attributes":[]}', True),
    "G": m.Grow(SEQ, 2, "B1", '{"attributes":[]}', True),
    "Digest": m.Digest(SEQ, 2, (1, 2**64 - 1), (0, 3)),
    "P": m.Page(SEQ, {"B1/ann/s": "price < 20"}, {"B1/ann/a": "TRUE"}),
    "Synced": m.Synced(SEQ, 2, {0: {"s": ("price < 20", None)}, 1: {}}, {1: {"a": ("TRUE", 3.5)}}),
    "Flush": m.Flush(SEQ),
    "Publish": EVENT,
    "Hello": m.Hello("B1", 7, '{"attributes":[]}', False, 2, ("B1", "B2"), True, "abc"),
    "Accepted": m.Accepted(SEQ),
    "Settled": m.Settled(SEQ),
    "F": m.Flushed(SEQ),
    "Refused": m.Refused(SEQ, "s", "no", "subscriptions"),
    "except": m.SettledExcept(SEQ, ("B2", "B3"), 4, "alerts"),
    "D": m.Durable(SEQ, True),
    "LinkUp": m.LinkUp(3, True, True),
    "LinkDown": m.LinkDown(True),
    "Tick": m.Tick(),
    "Persisted": m.Persisted(4),
    "Event": w.Event(("s", "t"), EVENT),
    "Keep": w.DurableSubscribe("alerts", "price < 20", 1000, 5.5),
    "Unkeep": w.DurableCancel("alerts"),
    "Standing": w.DurableStatus("alerts", "price < 20", "refused", "why"),
    "Kept": w.DurableEvent("alerts", 2**40 + 1, EVENT),
    "Done": w.Ack("alerts", 2**40 + 1),
    "R": w.Refill("alerts", 2, EVENT),
    "Published": w.Published(3),
    "Notice": w.Notice("alerts", 4, "limit"),
    "Resume": w.Resume("store1", "store2", 2**40),
    "Forward": w.Forward(2**40 + 2, EVENT),
    "Received": w.Received(2**40 + 2),
    "gap": w.Gap(2**40 + 9, 7, 1.7e9, 1.7e9 + 0.5, "B1", "B2"),
    "lost": w.Lost("alerts", 2**40 + 9, 7, 1.7e9, 1.7e9 + 0.5, "B1", "B2"),
    "Returned": w.Returned({"B1/ann@alerts/alerts": "price < 20"}, "life1"),
}


@pytest.mark.parametrize("tag", MESSAGES)
def test_a_message_keeps_its_bytes(tag: str) -> None:
    assert encode(MESSAGES[tag]).hex() == PINNED[tag]


def test_every_kind_of_message_is_pinned() -> None:
    kinds = {kind for union in (OnTheWire, w.FromClient, w.FromNode, w.FromNeighbour) for kind in union.__args__}
    assert kinds <= {type(each) for each in MESSAGES.values()}
    assert PINNED.keys() - MESSAGES.keys() == {"frame"}
    for tag, message in MESSAGES.items():
        assert message.__struct_config__.tag == tag, "an explicit tag, so that renaming a class changes nothing"


def test_frames_keep_their_bytes() -> None:
    event = encode(EVENT)
    parts = [encode(MESSAGES["Subscribe"]), w.encoded_event(("s", "t"), event), w.encoded_forward(2**40 + 2, event)]
    assert w.frame(parts).hex() == PINNED["frame"]


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Path]:
    """Of two neighbours, as the version before wrote them: bob is away from B2, and B2 is away from B1."""
    return {f"B{at}": Path(shutil.copy(FORMATS / f"broker-{at}.thatch", tmp_path / f"B{at}")) for at in (1, 2)}


def kept(store: Store, peer: PeerKey) -> list[tuple[int, m.Publish]]:
    """The events that are kept for a peer, read as the node reads them."""
    rows = store._connection.execute(GET_EVENTS, (*peer_row(peer), 0, 1_000))
    found = [(number, msgspec.msgpack.decode(event, type=m.Publish)) for number, event in rows]
    assert [row.number for row in store.stored(peer)] == [number for number, _ in found]
    return found


@pytest.mark.parametrize("name", ["B1", "B2"])
def test_a_store_of_the_version_before_is_migrated_and_loses_nothing(name: str, stores: dict[str, Path]) -> None:
    old = version_1.rows(stores[name])
    assert len(old["records"]) == {"B1": 12, "B2": 6}[name] and old["events"] and old["queues"]
    store = Store(stores[name], name)
    assert contents(store) == version_1.expected(old)
    store.stop()


def test_what_a_store_of_the_version_before_holds(stores: dict[str, Path]) -> None:
    first = Store(stores["B1"], "B1")
    records = list(first.records())
    alerts = durable_queue("ann@alerts")
    assert SubscriptionRecord(alerts, "B1/ann@alerts/alerts", "price < 300") in records
    assert LinkRecord(neighbour("B2"), is_durable=True) in records and len(records) == 12
    assert first.queues() == [QueueRow(alerts, 67_108_864, 604_800.0, 0)]
    assert [event.payload for _, event in kept(first, neighbour("B2"))] == [b"later %d" % at for at in range(4)]
    assert [event.payload for _, event in kept(first, alerts)] == [
        *(b"payload %d" % number for number in range(3)),
        *(b"later %d" % number for number in range(4)),
    ]
    assert first.statistics() == {"events_in": 7, "events_out": 17}
    first.stop()
    second = Store(stores["B2"], "B2")
    assert second.received() == [ReceivedRow(neighbour("B1"), derived_life(first.identity, 1), (1 << 40) + 6, 1)]
    assert kept(second, durable_queue("bob@far"))[0][1].event == {
        "symbol": "A", "price": 10.0, "day": "2026-02-01", "fee": "2.50", "kind": "buy",
    }  # fmt: skip
    second.stop()


def test_a_broker_is_restored_from_the_store_of_the_version_before(stores: dict[str, Path]) -> None:
    store = Store(stores["B1"], "B1")
    assert store.space is not None
    space = Space.from_json(store.space)
    image = store.image()
    assert image is not None
    known = read_image(image, Space.from_json(store.space))
    assert known.regions.keys() >= {"price < 500", "within(5, price, 100.0)"}
    assert known.decisions_for("B2", "advertisements").keys() == {"B1/pub/15e630f2.1"}
    broker = Broker.restored("B1", space, store.records(), Settings(), image=image)
    broker.check_invariants()
    wanted = broker.received.subscriptions.holding(space.encode({"price": 10.0, "symbol": "A", "fee": Decimal("2.00")}))
    assert [entry.id for entry in wanted] == [
        "B1/ann/wide", "B1/ann/narrow", "B1/ann@alerts/alerts", "B2/bob/plain",
    ]  # fmt: skip
    store.stop()


def write_store(path: Path) -> None:
    """Something of each kind: what `store-4.thatch` was made of."""
    space = Space.parse("price int not null 0..1000, kind enum('a')")
    grown = Space.parse("price int not null 0..1000, kind enum('a', 'b')")
    ann, alerts, b2, b3 = client("ann"), durable_queue("ann@alerts"), neighbour("B2"), neighbour("B3")
    store = Store(path, "B1")
    store.set_space(space.to_json())
    records: list[RecordChange] = [*links(ann, alerts, b3), LinkRecord(b2, is_durable=True)]
    records += [SpaceRecord(is_open=False, space=grown.to_json()), SpaceRecord(is_open=True, space=space.to_json())]
    records += (
        AdvertisementRecord(b2, "B2/pub/a", "price < 900"),
        SubscriptionRecord(ann, "B1/ann/s", "price < 20", 4e9),
        SubscriptionRecord(ann, "B1/ann/t", "kind = 'b'"),
        SubscriptionRecord(alerts, "B1/ann@alerts/alerts", "price < 300"),
        SubscriptionRecord(b3, "B3/bob/s", "price > 500"),
        PreservedRecord(b2, "B1/ann/wide", "price < 800", {"B2/pub/a": 2}),
        PreservedRecord(b3, "B1/ann/wide", "price < 800"),
        SubscriptionRecord(ann, "B1/ann/s", "price < 30"),
        Drop(SubscriptionKey(ann, "B1/ann/t")),
    )
    store.keep(tuple(records))
    store.put_queue(QueueRow(alerts, 2**26, 604_800.0, 3))
    for number in range(4):
        event = encode(m.Publish(f"pub:{number}", {"price": number}, b"payload %d" % number))
        for peer in (alerts, b2):
            keep(store, peer, next_number(store), 1.7e9 + number, event)
    store.discard(b2, (1 << 40) + 4)
    store.put_queue(QueueRow(durable_queue("ann@back"), 2**20, 60.0, 0, 1.8e9))
    store.put_life(LifeRow(1, "a life of this store", 1.7e9, "restore", 1.6e9))
    store.put_neighbour(NeighbourRow("B2", "accepted", "another store", "a life", "mine", "", "one two"))
    store.note_received(ReceivedRow(b2, "a life", (7 << 40) + 3, 1))
    store.note_confirmed(ConfirmedRow(b2, "a life of this store", (1 << 40) + 4))
    store.put_gap(GapRow(1, b2, "in", 1.6e9, 1.7e9, 12))
    store.put_gap(GapRow(2, b2, "out", 1.6e9, 1.7e9, None))
    store.note_statistics({"events_in": 4, "events_out": 8})
    store.note_ran(1.7e9 + 5)
    store.set_image(Broker.restored("B1", space, records, Settings()).image())
    store.start(lambda *_: None, lambda _: None)
    store.stop()


def test_a_store_of_this_version_opens_as_it_was_written(tmp_path: Path) -> None:
    write_store(tmp_path / "new")
    shutil.copy(FORMATS / "store-4.thatch", tmp_path / "s")
    found = []
    for name in ("new", "s"):
        store = Store(tmp_path / name, "B1", lambda step: pytest.fail("nothing is to be migrated"))
        found.append(contents(store) | {"about": store.space, "lives": store.lives()[0], "ran": store.ran})
        store.stop()
    assert found[0] == found[1] and len(found[1]["records"]) == 12 and len(found[1]["events"]) == 2


def test_a_store_of_version_3_is_migrated_and_loses_nothing(tmp_path: Path) -> None:
    """What it keeps gets no older by that, though the store was away for years."""
    write_store(tmp_path / "new")
    shutil.copy(FORMATS / "store-3.thatch", tmp_path / "s")
    new = Store(tmp_path / "new", "B1")
    was = contents(new)
    new.stop()
    began = time.time()
    store = Store(tmp_path / "s", "B1")
    found = contents(store)
    kept, (back,) = found["queues"][:1], found["queues"][1:]
    assert found == was | {"queues": [*kept, back], "about": (was["about"][0], store.identity)}
    assert kept == was["queues"][:1] and back[:4] == was["queues"][1][:4]
    assert 0 <= 1.8e9 - began - back[4] < 5, "the time that is left, of when nodes have run for so long"
    assert store.ran == 0 and {row.ran for peer in found["events"] for row in store.stored(peer)} == {0}
    store.stop()


def test_a_store_of_version_2_is_migrated_and_loses_nothing(tmp_path: Path) -> None:
    """Neighbours of which something came count as accepted, and lives have ids that both sides of a link derive."""
    write_store(tmp_path / "new")
    shutil.copy(FORMATS / "store-2.thatch", tmp_path / "s")
    new, store = Store(tmp_path / "new", "B1"), Store(tmp_path / "s", "B1")
    was, found = contents(new), contents(store)
    life = derived_life("another store", 7)
    assert found == was | {
        "queues": was["queues"][:1],
        "about": (new.space, store.identity),
        "received": [ReceivedRow(neighbour("B2"), life, (7 << 40) + 3, 1)],
        "confirmed": [],
        "neighbours": [NeighbourRow("B2", "accepted", "another store", life), NeighbourRow("B3", "accepted")],
        "gaps": [],
    }
    assert [row.id for row in store.lives()[:-1]] == [derived_life(store.identity, 1)]
    assert store.lives()[-1].ordinal == 2 and store.lives()[-1].since is None
    new.stop()
    store.stop()


def test_a_snapshot_of_the_version_before_loads(tmp_path: Path) -> None:
    table = SubscriptionTable.load(FORMATS / "table-1.snapshot")
    assert table.match({"symbol": "A", "price": 5.0}) == ["narrow", "wide"]
    assert table["narrow"].certificate == ("wide",) and table["narrow"].expires == 4e9 and table["wide"].owner == "ann"
    table.snapshot(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (FORMATS / "table-1.snapshot").read_bytes()
