"""Hostile input: nothing that a peer says escapes or breaks the tables."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.broker_bench import KINDS, MORE_KINDS, SESSION, SPACE, Bench, is_settled, rejected, sent, updates
from helpers.strategies import examples
from thatch import Space
from thatch.broker import Settings
from thatch.errors import CallerError
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.messages import (
    OPERATOR,
    Accepted,
    Advertise,
    Deliver,
    Digest,
    Extend,
    Flush,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Publish,
    Refused,
    Reject,
    Replace,
    Send,
    Settled,
    Subscribe,
    Synced,
    Tick,
    Unadvertise,
    Unsubscribe,
    seq_of,
)


@pytest.mark.parametrize(
    "where", ["", "nonsense", "(" * 5000, "y = 1", "\0", "x IN (SELECT 1)", "x < 5; DROP", "x = 'a'"]
)
def test_a_bad_clause_of_a_client_is_refused_and_the_link_stays(where: str) -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    for kind in (Subscribe, Advertise):
        effects = bench.says("ann", kind, "s", where)
        reject = rejected(effects)
        assert reject.refused.id == "s" and not reject.close and updates(effects) == []
    assert bench.says("ann", Subscribe, "s", "x < 5")


def test_a_bad_clause_of_a_neighbour_closes_the_link() -> None:
    bench = Bench()
    bench.neighbour("B2")
    assert rejected(bench.says("B2", Subscribe, "B2/c/s", "nonsense")).close


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (Subscribe, ("", "TRUE"), "an id must not be empty"),
        (Replace, ("t", "TRUE"), "no subscription 't' to replace"),
        (Unsubscribe, ("t",), "no subscription 't'"),
        (Unadvertise, ("t",), "no advertisement 't'"),
        (Replace, ("s", "nonsense"), "no attribute 'nonsense'"),
    ],
)
def test_what_a_client_may_not_say_is_refused_and_changes_nothing(kind: Any, fields: Any, reason: str) -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5")
    reject = rejected(bench.says("ann", kind, *fields))
    assert not reject.close and reason in reject.refused.reason
    assert bench.broker.received_from(SUBSCRIPTIONS, "ann") == {"B1/ann/s": "x < 5"}


def test_a_client_cannot_reach_the_subscriptions_of_another() -> None:
    bench = Bench().client("ann").client("bob")
    bench.says("ann", Subscribe, "s", "x < 5")
    for id in ("s", "B1/ann/s", "../ann/s"):
        assert rejected(bench.says("bob", Unsubscribe, id))
    assert bench.broker.table_size() == 1


def test_bad_clauses_in_a_resynchronisation_of_a_client_are_refused_one_by_one() -> None:
    bench = Bench().client("ann")
    listing = {0: {"bad": ("nonsense", None), "": ("TRUE", None), "good": ("x < 5", None), "late": ("TRUE", -1.0)}}
    effects = bench.says("ann", Synced, 1, listing)
    assert [each.refused.id for each in effects if isinstance(each, Reject)] == ["bad", "", "late"]
    assert bench.broker.received_from(SUBSCRIPTIONS, "ann") == {"B1/ann/good": "x < 5"}


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize("is_client", [True, False])
def test_a_resynchronisation_of_no_buckets_is_the_peers_fault(is_client: bool, size: int) -> None:
    bench = Bench().client("peer")
    if not is_client:
        bench = Bench()
        bench.neighbour("peer")
    bench.says("peer", Subscribe, "s", "x < 5")
    reject = rejected(bench.says("peer", Synced, size, {0: {}}))
    assert reject.close and reject.refused.reason == f"a listing has at least 1 bucket, not {size}"
    assert bench.broker.table_size() == 1


ids = st.sampled_from(["s", "t", "", "B1/ann/s", "B2/c/s", "~~B1/ann/s", "~~B2/c/s", "~B3~B2/c/s", "x" * 5000])


wheres = st.sampled_from(["TRUE", "FALSE", "x < 5", "x > 3", "x IN (1, 5, 9)", "nonsense", "", "x < 'a'"])
leases = st.sampled_from([None, -1.0, 5.0, 1e300, float("inf"), float("nan")])


sizes = st.sampled_from([0, 1, 2, -1, 2**63])


listings = st.dictionaries(
    st.sampled_from([0, 1, 7]), st.dictionaries(ids, st.tuples(wheres, leases), max_size=3), max_size=2
)


hashes = st.lists(st.integers(0, 3), max_size=2).map(tuple)


spaces = st.sampled_from(
    [SPACE.to_json(), KINDS.to_json(), "{}", "", Space.parse("x int not null 0..100, y int").to_json()]
)


seqs = st.sampled_from([-1, 0, 1, seq_of(1, 1), seq_of(1, 3), seq_of(1, 9), seq_of(SESSION, 1), 2**64 - 1])


values: st.SearchStrategy[Any] = st.sampled_from([1, 5, 101, "1", None, 1.5, True, [1], {}, b"1", 2**70, float("nan")])


numbered = st.one_of(
    st.tuples(st.sampled_from([Subscribe, Advertise]), ids, wheres, leases),
    st.tuples(st.just(Replace), ids, wheres),
    st.tuples(st.sampled_from([Unsubscribe, Unadvertise]), ids),
    st.tuples(st.just(Extend), spaces, st.booleans()),
    st.tuples(st.just(Digest), sizes, hashes, hashes),
    st.tuples(st.just(Synced), sizes, listings, listings),
    st.tuples(st.just(Flush)),
)


others = st.one_of(
    st.builds(
        Publish, st.just("ann:1") | ids, st.dictionaries(st.sampled_from(["x", "X", "y", ""]), values, max_size=3)
    ),
    st.builds(
        Hello, st.sampled_from(["ann", "B2", ""]), st.sampled_from([0, SESSION, SESSION + 1]), spaces, st.booleans()
    ),
    st.builds(Settled, seqs),
    st.builds(Accepted, seqs),
    st.builds(Refused, seqs, ids, ids, ids),
    st.builds(Flush, seqs),
    st.builds(LinkDown, st.booleans()),
    st.builds(LinkUp, st.just(9), st.booleans()),
    st.just(Tick()),
)


@examples(40)
@given(
    st.sampled_from(["advertisements", "subscriptions", "events"]),
    st.lists(st.tuples(st.sampled_from(["ann", "B2"]), numbered | others), max_size=12),
)
def test_nothing_that_a_peer_says_escapes_or_breaks_the_tables(routing: Any, said: list[tuple[str, Any]]) -> None:
    bench = Bench(Settings(routing)).client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.says("B3", Subscribe, "B3/c/s", "x < 50")
    for link, message in said:
        is_known = link in bench.broker.links
        if isinstance(message, LinkUp):  # of the driver, who may be mistaken, but must not break anything either
            with suppress(CallerError):
                bench.handle(message, link)
            bench.broker.check_invariants()
        else:
            effects = bench.says(link, *message) if isinstance(message, tuple) else bench.handle(message, link)
            assert is_known or effects == []
        bench.now += 1.0


@pytest.mark.parametrize("count", [10**6, 2**32 - 1])
def test_a_neighbour_that_settles_what_it_was_never_sent_is_hung_up_on(count: int) -> None:
    bench = Bench()
    bench.neighbour("B2")
    assert rejected(bench.handle(Settled(seq_of(1, count)), "B2")).close


@pytest.mark.parametrize("seq", [-1, 0, 2**63, 2**64 - 1])
def test_absurd_numbers_are_ignored(seq: int) -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    for link in ("ann", "B2"):
        assert bench.handle(Settled(seq), link) == []
        assert bench.handle(Flush(seq), link) == []


def test_what_a_broker_does_not_take_closes_the_link() -> None:
    assert rejected(Bench().client("ann").handle(Accepted(1), "ann")).close


@pytest.mark.parametrize("message", [Accepted(1), LinkDown(), LinkDown(forget=True), Tick(), Refused(0, "", "")])
def test_whatever_comes_over_a_link_that_is_gone_is_ignored(message: Message) -> None:
    bench = Bench()
    assert bench.handle(message, "ghost") == [] and not bench.broker.links


@pytest.mark.parametrize(
    "message",
    [
        Subscribe(1, "s", "TRUE"),
        Unadvertise(1, "a"),
        Flush(1),
        Settled(1),
        Accepted(1),
        Hello("", 1, SPACE.to_json()),
        LinkUp(1),
        LinkDown(),
        pytest.param(
            Publish(":1", {"x": 1}),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_operator_only_extends_and_says_the_time_and_what_is_on_disk(message: Message) -> None:
    with pytest.raises(CallerError, match=f"an operator has no {type(message).__name__}: it comes over a link"):
        Bench().handle(message, OPERATOR)


def test_a_hello_within_a_session_that_begins_another_closes_the_link() -> None:
    bench = Bench().client("ann")
    assert rejected(bench.handle(Hello("ann", SESSION + 1, SPACE.to_json(), is_client=True), "ann")).close
    bench = Bench().client("ann")
    assert bench.handle(Hello("ann", SESSION - 1, SPACE.to_json(), is_client=True), "ann") == []


def test_a_client_of_a_wider_space_is_refused_and_of_a_narrower_one_is_not() -> None:
    bench = Bench(space=KINDS)
    bench.handle(LinkUp(1, is_client=True), "ann")
    assert rejected(bench.handle(Hello("ann", SESSION, MORE_KINDS.to_json(), is_client=True), "ann")).close
    bench = Bench(space=MORE_KINDS)
    bench.handle(LinkUp(1, is_client=True), "ann")
    assert sent(bench.handle(Hello("ann", SESSION, KINDS.to_json(), is_client=True), "ann"), "ann") == ["Digest"]


@pytest.mark.parametrize("id", ["bob:1", "1", "", "mallor", "mallory", "mallory2:1", " mallory:1", "B1/mallory:1"])
def test_the_id_of_an_event_is_of_the_client_that_published_it(id: str) -> None:
    """Else it could make the events of another look like copies."""
    bench = Bench().client("ann").client("mallory")
    bench.says("ann", Subscribe, "s", "TRUE")
    reason = f"ids of events of 'mallory' begin with 'mallory:', unlike {id!r}"
    assert bench.handle(Publish(id, {"x": 1}), "mallory") == [Reject("mallory", Refused(0, id, reason, code="id"))]
    event = Publish("mallory:1:1", {"x": 1})
    assert bench.handle(event, "mallory") == [Deliver("ann", event, ("s",))]


def test_a_refusal_says_of_which_table_it_is() -> None:
    bench = Bench(Settings()).client("ann")
    for kind, table in ((Subscribe, SUBSCRIPTIONS), (Replace, SUBSCRIPTIONS), (Advertise, ADVERTISEMENTS)):
        assert rejected(bench.says("ann", kind, "s", "nonsense")).refused.table == table
    for leaving, table in ((Unsubscribe, SUBSCRIPTIONS), (Unadvertise, ADVERTISEMENTS)):
        assert rejected(bench.says("ann", leaving, "s")).refused.table == table
    bad = {0: {"s": ("nonsense", None)}}
    effects = bench.says("ann", Synced, 1, bad, bad)
    assert [each.refused.table for each in effects if isinstance(each, Reject)] == [SUBSCRIPTIONS, ADVERTISEMENTS]


def test_what_waits_while_a_link_is_down_does_not_grow_without_end() -> None:
    """However much changed: a link that is not synced has one number for all of it."""
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.handle(LinkDown(), "B2")
    before = bench.broker.links["B2"].sent_total
    for _ in range(20):
        assert not is_settled(bench.says("ann", Subscribe, "s", "x < 5"))
        assert not is_settled(bench.says("ann", Unsubscribe, "s"))
        assert not is_settled(bench.says("ann", Flush))
    assert bench.broker.links["B2"].sent_total == before + 1
    assert len(bench.broker.links["ann"].waiting) == 3
    bench.neighbour("B2", session=2)
    assert bench.settles("B2") == [Send("ann", Settled(seq_of(SESSION, 60)))]
