"""What outlives a message: a space that grows, leases, and what is restored from the store."""

from __future__ import annotations

import pytest

from helpers.broker_bench import (
    FLOOD,
    KINDS,
    MORE_KINDS,
    SESSION,
    SPACE,
    Bench,
    Overlay,
    as_held,
    policies,
    rejected,
    sent,
    synced,
    updates,
)
from helpers.peers import client, links, neighbour
from thatch import Space
from thatch.broker import Broker, Policy, Settings
from thatch.errors import CallerError
from thatch.protocol.digest import digest
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.messages import (
    OPERATOR,
    Accepted,
    Advertise,
    Deliver,
    Effect,
    Extend,
    Message,
    Persist,
    Persisted,
    Publish,
    Replace,
    Send,
    Subscribe,
    Tick,
    Unsubscribe,
    seq_of,
)
from thatch.protocol.records import Drop, RecordChange, SpaceRecord, SubscriptionKey, SubscriptionRecord
from thatch.sim.topology import chain


def records_of(effect: Effect) -> tuple[RecordChange, ...]:
    assert isinstance(effect, Persist)
    return effect.records


# --- A space that grows -----------------------------------------------------------------------------------------------


def test_extending_promotes_what_a_new_value_uncovers() -> None:
    """`kind <> 'x'` was covered by a and b; with a third value it is not."""
    bench = Bench(space=KINDS).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "both", "kind IN ('a', 'b')")
    assert updates(bench.says("ann", Subscribe, "all", "kind <> 'x'")) == []
    effects = bench.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR)
    assert updates(effects) == ["Grow", "Subscribe all: kind <> 'x'"]
    assert bench.broker.space == MORE_KINDS


def test_events_carry_a_new_value_only_when_everybody_knows_it() -> None:
    bench = Bench(space=KINDS).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "all", "TRUE")
    bench.settles("B2")
    bench.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR)
    event = Publish("ann:1", {"kind": "c"})
    assert "is not a value of enum('a', 'b')" in rejected(bench.handle(event, "ann")).refused.reason
    assert updates(bench.settles("B2")) == ["Grow"]
    assert bench.handle(event, "ann") == [Deliver("ann", event, ("all",))]


def test_a_new_attribute_is_refused_until_it_is_open() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    grown = Space.parse("x int not null 0..100, y int")
    bench.handle(Extend(0, grown.to_json()), OPERATOR)
    reason = rejected(bench.handle(Publish("ann:1", {"x": 1, "y": 2}), "ann")).refused.reason
    assert reason == "attribute 'y' is new, and not known everywhere yet: try again later"
    bench.settles("B2")
    assert bench.handle(Publish("ann:1", {"x": 1, "y": 2}), "ann") == []


def test_a_space_that_grows_spreads_through_the_overlay() -> None:
    overlay = Overlay(chain(["B1", "B2", "B3"]), FLOOD, KINDS)
    overlay.does("S@B3", "subscribe", "both", "kind IN ('a', 'b')")
    overlay.does("T@B3", "subscribe", "all", "kind <> 'x'")
    assert overlay.knows("all") == ["B3"]
    overlay.network.operate("B2", Extend(0, MORE_KINDS.to_json()))
    overlay.network.run()
    overlay.check()
    assert overlay.knows("all") == ["B1", "B2", "B3"]
    assert overlay.publish("P@B1", kind="c") == {"T@B3": ("all",)}


def test_a_neighbour_whose_space_is_ahead_is_accepted_and_brings_it() -> None:
    bench = Bench(space=KINDS).settled_neighbour("B3")
    bench.neighbour("B2", space=MORE_KINDS)
    effects = bench.says("B2", Extend, MORE_KINDS.to_json(), True)
    assert bench.broker.space == bench.broker.open_space == MORE_KINDS
    assert updates(effects, "B3") == ["Grow"]
    assert SpaceRecord(is_open=False, space=MORE_KINDS.to_json(), step=1, origin="B2") in records_of(effects[0])


def test_a_client_may_not_extend_the_space() -> None:
    bench = Bench(space=KINDS).client("ann")
    reject = rejected(bench.says("ann", Extend, MORE_KINDS.to_json(), True))
    assert "a client cannot extend the space" in reject.refused.reason and not reject.close
    assert bench.broker.space == KINDS


def test_what_does_not_extend_the_space_is_the_operators_fault() -> None:
    with pytest.raises(CallerError, match="does not extend"):
        Bench(space=MORE_KINDS).handle(Extend(0, Space.parse("kind enum('a', 'z') not null").to_json()), OPERATOR)


def test_an_older_space_is_ignored() -> None:
    bench = Bench(space=MORE_KINDS).settled_neighbour("B2")
    assert [type(each) for each in bench.says("B2", Extend, KINDS.to_json())] == [Send]
    assert bench.broker.space == MORE_KINDS


# --- Leases -----------------------------------------------------------------------------------------------------------


def test_a_lease_ends_at_the_tick_after_it() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5", 10.0)
    bench.now = 9.9
    assert bench.handle(Tick(), OPERATOR) == []
    bench.now = 10.0
    effects = bench.handle(Tick(), OPERATOR)
    assert effects[0] == Persist(4, (Drop(SubscriptionKey(client("ann"), "B1/ann/s")),)) and updates(effects) == [
        "Unsubscribe s"
    ]
    assert bench.handle(Tick(), OPERATOR) == []


def test_subscribing_again_renews_a_lease_and_sends_nothing() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5", 10.0)
    bench.settles("B2")
    effects = bench.says("ann", Subscribe, "s", "x < 5", 20.0)
    assert sent(effects, "ann") == ["Accepted", "Settled"] and updates(effects) == []
    bench.now = 15.0
    assert bench.handle(Tick(), OPERATOR) == []
    bench.says("ann", Subscribe, "s", "x < 5")
    bench.now = 1e9
    assert bench.handle(Tick(), OPERATOR) == []


def test_a_replacement_keeps_the_lease() -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5", 10.0)
    bench.says("ann", Replace, "s", "x < 6")
    bench.now = 10.0
    bench.handle(Tick(), OPERATOR)
    assert bench.broker.table_size() == 0


def test_advertisements_have_leases_too() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2")
    bench.says("ann", Advertise, "a", "x < 5", 10.0)
    bench.now = 11.0
    assert updates(bench.handle(Tick(), OPERATOR)) == ["Unadvertise a"]


def test_a_lease_in_the_past_is_refused() -> None:
    bench = Bench().client("ann")
    bench.now = 100.0
    reject = rejected(bench.says("ann", Subscribe, "s", "x < 5", 97.5))
    assert reject.refused.reason == "the lease of 's', to 97.5, is over at 100.0"
    assert bench.broker.table_size() == 0


def test_a_lease_that_is_no_time_is_refused() -> None:
    bench = Bench().client("ann")
    assert "to nan, is over" in rejected(bench.says("ann", Subscribe, "s", "x < 5", float("nan"))).refused.reason
    assert bench.broker.table_size() == 0


# --- The store --------------------------------------------------------------------------------------------------------


def test_records_come_first_and_are_a_barrier_for_the_rest() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    effects = bench.says("ann", Subscribe, "s", "x < 5")
    assert effects == [
        Persist(3, (SubscriptionRecord(client("ann"), "B1/ann/s", "x < 5"),)),
        Send("ann", Accepted(seq_of(SESSION, 1))),
        Send("B2", Subscribe(seq_of(1, 4), "B1/ann/s", "x < 5")),
    ]


def test_a_refused_message_writes_nothing() -> None:
    bench = Bench().client("ann")
    effects = bench.says("ann", Subscribe, "s", "nonsense")
    assert not any(isinstance(effect, Persist) for effect in effects)


def test_persisted_numbers_are_checked() -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5")
    assert bench.handle(Persisted(2), OPERATOR) == [] and bench.broker.persisted == 2
    for number in (1, 3, -1):
        with pytest.raises(CallerError, match="are not between 2 and 2"):
            bench.handle(Persisted(number), OPERATOR)


@policies
def test_a_restored_broker_forwards_the_same(policy: Policy) -> None:
    settings = Settings("advertisements", policy)
    bench, records = Bench(settings), list[RecordChange]()
    inner = bench.handle

    def recording(message: Message, link: str) -> list[Effect]:
        effects = inner(message, link)
        if effects and isinstance(effects[0], Persist):
            records.extend(effects[0].records)
        return effects

    bench.handle = recording  # type: ignore[method-assign]
    bench.client("ann").settled_neighbour("B2")
    bench.says("B2", Advertise, "B2/p/a", "TRUE")
    for id, where in (("wide", "x < 50"), ("gone", "x > 90"), ("narrow", "x < 10"), ("other", "x BETWEEN 40 AND 60")):
        bench.says("ann", Subscribe, id, where, 10.0 if id == "other" else None)
    bench.says("ann", Unsubscribe, "gone")
    bench.says("ann", Replace, "narrow", "x BETWEEN 5 AND 10")
    restored = Bench(broker=Broker.restored("B1", SPACE, records, settings))
    restored.broker.check_invariants()
    for link in ("ann", "B2"):
        for table in (SUBSCRIPTIONS, ADVERTISEMENTS):
            assert restored.broker.received_from(table, link) == bench.broker.received_from(table, link)
            assert restored.broker.outbound(table, link).forwarded() == bench.broker.outbound(table, link).forwarded()
    held = as_held(bench.broker.outbound(SUBSCRIPTIONS, "B2").forwarded())
    answer = synced(restored.neighbour("B2", session=2, hashes=(digest(held, 1).hashes, (0,))))
    assert answer.subscriptions == {}
    restored.now = 10.0
    restored.handle(Tick(), OPERATOR)
    assert "B1/ann/other" not in restored.broker.received_from(SUBSCRIPTIONS, "ann")


def test_a_restored_broker_has_the_space_that_had_grown() -> None:
    bench = Bench(space=KINDS).settled_neighbour("B2")
    grown = records_of(bench.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR)[0])
    restored = Broker.restored("B1", KINDS, [*links(neighbour("B2")), *grown])
    assert (restored.space, restored.open_space) == (MORE_KINDS, KINDS)
    opened = records_of(bench.settles("B2")[0])
    restored = Broker.restored("B1", KINDS, [*links(neighbour("B2")), *grown, *opened])
    assert restored.space is restored.open_space and restored.space == MORE_KINDS


def test_extending_again_after_a_restart_still_waits_for_neighbours_that_are_down() -> None:
    records: list[RecordChange] = [*links(neighbour("B2")), SpaceRecord(is_open=False, space=MORE_KINDS.to_json())]
    broker = Broker.restored("B1", KINDS, records, FLOOD)
    broker.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR, 0.0)
    assert broker.open_space == KINDS
