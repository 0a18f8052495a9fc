"""Events looked up together have the effects that they have one after the other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples
from thatch.broker import Broker, Settings
from thatch.protocol.messages import Advertise, Digest, Hello, LinkUp, Publish, Subscribe
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
    assert together.publish_all(messages, link, 0.0) == [one_by_one.handle(each, link, 0.0) for each in messages]
    for name, each in together.links.items():
        assert each.counts == one_by_one.links[name].counts
        assert each.is_met == one_by_one.links[name].is_met
