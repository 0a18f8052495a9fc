"""Messages handled together have the effects that they have one after the other, whichever of them fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.peers import neighbour
from helpers.strategies import examples
from thatch.broker import Broker, Settings
from thatch.broker.tables import Entry, ReceivedTable
from thatch.errors import CallerError
from thatch.protocol.messages import (
    Advertise,
    Digest,
    Hello,
    LinkUp,
    Listing,
    Message,
    Persist,
    Publish,
    Subscribe,
    Synced,
    Unsubscribe,
)
from thatch.protocol.records import LinkKey, SubscriptionKey
from thatch.region.region import Region
from thatch.space.space import Space

SPACE = Space.parse("price int not null 0..20, kind string")
CLAUSES = ("price < 5", "price BETWEEN 3 AND 9", "kind = 'a'", "kind > 'b' OR price = 7", "kind IS NULL", "TRUE")


def overlay(routing: Any, clauses: list[int]) -> Broker:
    broker = Broker("B1", SPACE, Settings(routing=routing, holds_events=True))
    for name in ("ann", "bob", "B2", "B3"):
        is_client = not name.startswith("B")
        broker.handle(LinkUp(1, is_client), name, 0.0)
        members = () if is_client else (name,)
        broker.handle(Hello(name, 1, SPACE.to_json(), is_client, members=members), name, 0.0)
        if not is_client:
            broker.handle(Digest(1 << 32 | 1, 1, (0,), (0,)), name, 0.0)
    broker.handle(Advertise(1 << 32 | 1, "x", "price < 12"), "ann", 0.0)
    broker.handle(Advertise(1 << 32 | 2, "y", "price = 15"), "ann", 0.0)
    for count, which in enumerate(clauses):
        link = ("bob", "B2", "B3")[count % 3]
        id = f"s{count}" if link == "bob" else f"{link}/c/s{count}"
        broker.handle(Subscribe(broker.links[link].last_seq_received + 1, id, CLAUSES[which]), link, 0.0)
    return broker


events = st.fixed_dictionaries(
    {"price": st.integers(-1, 21)}, optional={"kind": st.sampled_from(["a", "b", "c", None, 5]), "what": st.just(1)}
)


@examples(60)
@given(
    routing=st.sampled_from(["advertisements", "subscriptions", "events"]),
    clauses=st.lists(st.integers(0, len(CLAUSES) - 1), max_size=12),
    link=st.sampled_from(["ann", "B2", "nobody"]),
    published=st.lists(st.tuples(st.sampled_from(["ann", "eve"]), events), min_size=1, max_size=30),
)
def test_many_as_one_by_one(routing: Any, clauses: list[int], link: str, published: list[tuple[str, Any]]) -> None:
    messages = [Publish(f"{name}:{count}", event) for count, (name, event) in enumerate(published)]
    together, one_by_one = overlay(routing, clauses), overlay(routing, clauses)
    assert together.handle(messages, link, 0.0) == [one_by_one.handle(each, link, 0.0) for each in messages]
    for name, each in together.links.items():
        assert each.counts == one_by_one.links[name].counts
        assert each.is_met == one_by_one.links[name].is_met


class Odd(dict[str, Any]):
    """An event that nobody can read."""

    def keys(self) -> Any:
        raise ZeroDivisionError("odd")

    __getitem__ = get = __iter__ = __contains__ = keys  # type: ignore[assignment]


def test_one_that_fails_leaves_the_others_their_effects() -> None:
    """Control messages and events; errors of the driver, and such as nobody expects."""
    together, one_by_one = overlay("subscriptions", [0, 1, 2]), overlay("subscriptions", [0, 1, 2])
    seq = together.links["bob"].last_seq_received
    messages: list[Message] = [
        Subscribe(seq + 1, "new", "price = 3"),
        LinkUp(1, is_client=True),  # sessions must rise
        Publish("bob:1", {"price": 3}),
        Publish("bob:2", Odd(price=3)),
        Publish("bob:3", {"price": 4}),
        Unsubscribe(seq + 2, "who"),  # refused
        Unsubscribe(seq + 3, "new"),
    ]
    found = together.handle(messages, "bob", 0.0)
    failing = {1: CallerError, 3: ZeroDivisionError}
    for at, message in enumerate(messages):
        if at in failing:
            assert [type(each) for each in found[at]] == [failing[at]]
        else:
            assert found[at] == one_by_one.handle(message, "bob", 0.0) and found[at]
    together.check_invariants()


def test_what_a_failing_message_brought_about_comes_before_its_error() -> None:
    """The first of two subscriptions is held when the second fails: its record is not lost."""

    def compile(where: str, space: Space) -> Region:
        if where == "price = 13":
            raise ZeroDivisionError(where)
        return space.where(where)

    broker = Broker("B1", SPACE, Settings(routing="subscriptions"), compile)
    broker.handle([LinkUp(1), Hello("B2", 1, SPACE.to_json(), members=("B2",))], "B2", 0.0)
    listing: Listing = {0: {"B2/c/s": ("price = 1", None), "B2/c/t": ("price = 13", None)}}
    messages = [Synced(1 << 32 | 1, 1, listing), Subscribe(1 << 32 | 2, "B2/c/u", "price = 2")]
    (persist, *_, error), (after, *_) = broker.handle(messages, "B2", 0.0)
    assert isinstance(persist, Persist) and [record.key for record in persist.records] == [
        LinkKey(neighbour("B2")),
        SubscriptionKey(neighbour("B2"), "B2/c/s"),
    ]
    assert isinstance(error, ZeroDivisionError)
    assert isinstance(after, Persist) and (persist.number, after.number) == (1, 2)
    with pytest.raises(ZeroDivisionError):
        broker.handle(Subscribe(1 << 32 | 3, "B2/c/v", "price = 13"), "B2", 0.0)


def test_events_looked_up_together_fail_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = overlay("subscriptions", [0, 1, 2])
    holding = ReceivedTable.holding

    def fails(self: ReceivedTable, point: Sequence[int]) -> list[Entry]:
        if point[0] == SPACE.encode({"price": 4})[0]:
            raise ZeroDivisionError("4")
        return holding(self, point)

    def fails_together(self: ReceivedTable, columns: Sequence[Any]) -> list[list[Entry]]:
        raise ZeroDivisionError("some")

    monkeypatch.setattr(ReceivedTable, "holding", fails)
    monkeypatch.setattr(ReceivedTable, "holding_all", fails_together)
    messages = [Publish(f"ann:{price}", {"price": price}) for price in (3, 4, 5)]
    first, second, third = broker.handle(messages, "ann", 0.0)
    assert [type(each) for each in second] == [ZeroDivisionError]
    assert first == broker.handle(messages[0], "ann", 0.0) and third == broker.handle(messages[2], "ann", 0.0)
