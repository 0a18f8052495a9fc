"""Whether somebody behind a link keeps its events: said in greetings, remembered in records."""

from __future__ import annotations

import pytest

from helpers.peers import durable_queue, neighbour
from thatch.broker import Broker, Settings
from thatch.errors import CallerError
from thatch.protocol.messages import (
    Deliver,
    Digest,
    Effect,
    Hello,
    LinkDown,
    LinkUp,
    Persist,
    Publish,
    Send,
    Subscribe,
)
from thatch.protocol.records import LinkRecord, RecordChange, SubscriptionRecord
from thatch.space.space import Space

SPACE = Space.parse("price int not null 0..100")


def chain(holds: bool = True) -> Broker:
    """B2 between B1 and B3, met and synced."""
    broker = Broker("B2", SPACE, Settings(routing="subscriptions", holds_events=holds))
    for name in ("B1", "B3"):
        meet(broker, name)
    return broker


def meet(broker: Broker, name: str, session: int = 1, durable: bool = False) -> list[Effect]:
    effects = broker.handle(LinkUp(session), name, 0.0)
    effects += broker.handle(Hello(name, session, SPACE.to_json(), members=(name,), durable=durable), name, 0.0)
    return effects + broker.handle(Digest(session << 32 | 1, 1, (0,), (0,)), name, 0.0)


def greetings(effects: list[Effect]) -> dict[str, bool]:
    sends = [effect for effect in effects if isinstance(effect, Send)]
    return {each.link: each.message.durable for each in sends if isinstance(each.message, Hello)}


def test_a_durable_client_is_announced_to_neighbours() -> None:
    broker = chain()
    effects = broker.handle(LinkUp(1, is_client=True, durable=True), "ann", 0.0)
    assert greetings(effects) == {"ann": False, "B1": True, "B3": True}
    assert isinstance(effects[0], Persist) and LinkRecord(durable_queue("ann"), is_durable=True) in effects[0].records
    effects = broker.handle(LinkDown(forget=True), "ann", 0.0)
    assert greetings(effects) == {"B1": False, "B3": False}


def test_a_plain_client_is_not() -> None:
    assert greetings(chain().handle(LinkUp(1, is_client=True), "ann", 0.0)) == {"ann": False}


def test_a_link_stays_of_its_kind() -> None:
    """The keys of its records name it."""
    broker = chain()
    broker.handle(LinkUp(1, is_client=True), "ann", 0.0)
    broker.handle(LinkDown(), "ann", 0.0)
    with pytest.raises(CallerError, match="link 'ann' was a client: forget it first"):
        broker.handle(LinkUp(2, is_client=True, durable=True), "ann", 0.0)
    broker.handle(LinkDown(forget=True), "ann", 0.0)
    (persist, *_) = broker.handle(LinkUp(2, is_client=True, durable=True), "ann", 0.0)
    assert isinstance(persist, Persist) and persist.records == (LinkRecord(durable_queue("ann"), is_durable=True),)


def test_it_is_passed_on_and_not_back() -> None:
    broker = chain()
    effects = broker.handle(Hello("B3", 1, SPACE.to_json(), members=("B3",), durable=True), "B3", 0.0)
    assert greetings(effects) == {"B1": True}
    assert isinstance(effects[0], Persist) and effects[0].records == (LinkRecord(neighbour("B3"), is_durable=True),)


def test_events_for_a_neighbour_that_is_away_are_sent_if_the_driver_keeps_them() -> None:
    for holds in (True, False):
        broker = chain(holds)
        broker.handle(Subscribe(1 << 32 | 2, "B3/bob/s", "price < 10"), "B3", 0.0)
        broker.handle(LinkDown(), "B3", 0.0)
        event = Publish("x:1", {"price": 5})
        assert broker.handle(event, "B1", 0.0) == ([Send("B3", event)] if holds else [])


def test_restored_as_it_was() -> None:
    ann = durable_queue("ann")
    records: list[RecordChange] = [
        LinkRecord(neighbour("B3"), is_durable=True),
        LinkRecord(ann, is_durable=True),
        SubscriptionRecord(ann, "B2/ann/s", "price < 10"),
    ]
    broker = Broker.restored("B2", SPACE, records, Settings(routing="subscriptions", holds_events=True))
    assert [link.is_durable for link in broker.links.values()] == [True, True]
    broker.handle(LinkUp(2, is_client=True, durable=True), "ann", 0.0)
    broker.handle(Hello("ann", 2, SPACE.to_json(), is_client=True), "ann", 0.0)
    event = Publish("ann:1", {"price": 5})
    assert broker.handle(event, "ann", 0.0) == [Deliver("ann", event, ("s",))]
