"""A space grows by numbered steps, whoever proposes them, restarts, loses its disk or is away."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.broker_bench import FLOOD, SESSION, Bench, Overlay, rejected, sent, updates
from thatch import Space
from thatch.broker import Broker
from thatch.errors import CallerError
from thatch.protocol.kinds import KINDS, Peer
from thatch.protocol.messages import OPERATOR, Effect, Extend, Grow, Hello, LinkDown, LinkUp, Publish, Send, Subscribe
from thatch.protocol.records import Drop, RecordChange, SpaceRecord
from thatch.protocol.versions import STEP
from thatch.sim.topology import chain

BASE = Space.parse("x int not null 0..9, kind enum('a', 'b')")
MORE = Space.parse("x int not null 0..9, kind enum('a', 'b', 'c'), more int")
OTHER = Space.parse("x int not null 0..9, kind enum('a', 'b', 'd'), other bool")
BOTH = Space.parse("x int not null 0..9, kind enum('a', 'b', 'c', 'd'), more int, other bool")


def overlay(*names: str) -> Overlay:
    return Overlay(chain(names), FLOOD, BASE)


def grows(net: Overlay, broker: str, space: Space) -> None:
    net.network.operate(broker, Extend(0, space.to_json()))


def spaces(net: Overlay) -> list[tuple[Space, Space, int]]:
    return [(each.broker.space, each.broker.open_space, each.broker.open_step) for each in net.network.nodes.values()]


def said(effects: list[Effect], link: str) -> list[Grow]:
    sends = [each for each in effects if isinstance(each, Send) and each.link == link]
    return [each.message for each in sends if isinstance(each.message, Grow)]


def cut(net: Overlay, one: str, other: str) -> Any:
    wire = net.network.wire(one, other)
    assert wire is not None
    net.network.cut(wire)
    return wire


# --- What may be used, and when (T2.11a) ------------------------------------------------------------------------------


def test_a_clause_may_use_what_is_new_only_when_it_has_opened() -> None:
    bench = Bench(space=BASE).client("ann").settled_neighbour("B2")
    bench.handle(Extend(0, MORE.to_json()), OPERATOR)
    refused = rejected(bench.says("ann", Subscribe, "s", "more > 3")).refused
    assert refused.code == "later" and "not known everywhere yet" in refused.reason
    assert rejected(bench.says("ann", Subscribe, "s", "mor > 3")).refused.code == "clause"
    assert updates(bench.says("ann", Subscribe, "t", "x > 3")) == ["Subscribe t: x > 3"]
    bench.settles("B2")
    assert updates(bench.says("ann", Subscribe, "s", "more > 3")) == ["Subscribe s: more > 3"]


def test_nothing_opens_while_a_broker_is_away_and_all_when_it_is_back() -> None:
    net = overlay("B1", "B2", "B3")
    wire = cut(net, "B2", "B3")
    grows(net, "B1", MORE)
    net.network.run()
    assert [opened for _, opened, _ in spaces(net)] == [BASE] * 3
    net.network.heal(wire)
    net.network.run()
    assert spaces(net) == [(MORE, MORE, 1)] * 3


def test_what_waits_opens_when_the_missing_broker_is_forgotten() -> None:
    bench = Bench(space=BASE).settled_neighbour("B2").settled_neighbour("B3")
    bench.handle(LinkDown(), "B3")
    bench.handle(Extend(0, MORE.to_json()), OPERATOR)
    assert said(bench.settles("B2"), "B2") == [] and bench.broker.open_space == BASE
    effects = bench.handle(LinkDown(forget=True), "B3")
    assert [each.opened for each in said(effects, "B2")] == [True] and bench.broker.open_space == MORE


# --- Two proposals (T2.11b) -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [("B1", "B4"), ("B4", "B1"), ("B2", "B3")])
def test_of_two_proposals_one_wins_and_the_other_is_proposed_on_top(at: tuple[str, str]) -> None:
    """Hole 11: two operators at once split the overlay for good."""
    net = overlay("B1", "B2", "B3", "B4")
    grows(net, at[0], MORE)
    grows(net, at[1], OTHER)
    net.network.run()
    first = at[0] < at[1]
    wanted = BOTH if first else Space.parse("x int not null 0..9, kind enum('a', 'b', 'd', 'c'), other bool, more int")
    assert spaces(net) == [(wanted, wanted, 2)] * 4


def test_a_better_proposal_is_heard_of_before_the_own_one_settles() -> None:
    bench = Bench(space=BASE, broker=Broker("B2", BASE, FLOOD)).settled_neighbour("B3")
    bench.says("B3", Grow, 1, "B3", OTHER.to_json())
    bench.neighbour("B1")
    effects = bench.says("B1", Grow, 1, "B1", MORE.to_json())
    assert bench.broker.space == MORE
    assert [(each.step, each.origin) for each in said(effects, "B3")] == [(1, "B1")]
    assert [each for each in sent(effects, "B3") if each in ("Grow", "Settled")] == ["Grow"]


def test_a_neighbour_that_is_met_hears_of_the_better_proposal_at_once() -> None:
    """Its own proposal might settle before the link is synced in this direction."""
    bench = Bench(space=BASE, broker=Broker("B2", BASE, FLOOD)).settled_neighbour("B1")
    bench.says("B1", Grow, 1, "B1", MORE.to_json())
    bench.counts["B3"] = 0
    bench.handle(LinkUp(1), "B3")
    bench.handle(Hello("B3", SESSION, BASE.to_json(), members=("B3",)), "B3")
    effects = bench.says("B3", Grow, 1, "B3", OTHER.to_json())
    assert bench.broker.space == MORE
    assert [(each.origin, each.opened) for each in said(effects, "B3")] == [("", True), ("B1", False)]


def test_a_neighbour_that_is_met_hears_of_a_better_proposal_that_comes_later() -> None:
    bench = Bench(space=BASE, broker=Broker("B2", BASE, FLOOD)).settled_neighbour("B1")
    bench.counts["B3"] = 0
    bench.handle(LinkUp(1), "B3")
    bench.handle(Hello("B3", SESSION, BASE.to_json(), members=("B3",)), "B3")
    bench.says("B3", Grow, 1, "B3", OTHER.to_json())
    assert bench.broker.space == OTHER
    effects = bench.says("B1", Grow, 1, "B1", MORE.to_json())
    assert [(each.origin, each.opened) for each in said(effects, "B3")] == [("", True), ("B1", False)]


def test_a_neighbour_that_is_met_hears_what_has_opened_before_the_next_step() -> None:
    """It may have lost its disk."""
    bench = Bench(space=BASE, broker=Broker("B2", BASE, FLOOD)).settled_neighbour("B1").settled_neighbour("B3")
    bench.handle(LinkDown(), "B3")
    bench.says("B1", Grow, 1, "B1", MORE.to_json(), True)
    bench.counts["B3"] = 0
    bench.handle(LinkUp(2), "B3")
    bench.handle(Hello("B3", SESSION, BASE.to_json(), members=("B3",)), "B3")
    effects = bench.says("B1", Grow, 2, "B1", BOTH.to_json())
    assert [(each.step, each.opened) for each in said(effects, "B3")] == [(1, True), (2, False)]


def test_a_neighbour_that_was_greeted_before_a_step_opened_hears_of_it_before_any_event() -> None:
    bench = Bench(space=BASE).client("ann").settled_neighbour("B2")
    bench.neighbour("B3")
    bench.says("B3", Subscribe, "B3/c/s", "TRUE")
    bench.handle(LinkDown(), "B3")
    bench.handle(LinkUp(2), "B3")
    bench.says("B2", Grow, 1, "B2", MORE.to_json(), True)
    bench.counts["B3"] = 0
    effects = bench.handle(Hello("B3", SESSION, BASE.to_json(), members=("B3",)), "B3")
    assert [(each.step, each.opened) for each in said(effects, "B3")] == [(1, True)]
    effects = bench.handle(Publish("ann:1", {"x": 1, "more": 2}), "ann")
    assert sent(effects, "B3") == ["Publish ann:1"]


def test_what_cannot_be_added_any_longer_is_said_and_left_out() -> None:
    bench = Bench(space=BASE, broker=Broker("B2", BASE, FLOOD)).settled_neighbour("B1")
    clash = Space.parse("x int not null 0..9, kind enum('a', 'b'), more string, other bool")
    bench.handle(Extend(0, clash.to_json()), OPERATOR)
    bench.says("B1", Grow, 1, "B1", MORE.to_json())
    effects = bench.says("B1", Grow, 1, "B1", MORE.to_json(), True)
    assert "more string: there is more int" in rejected(effects).refused.reason
    assert (bench.broker.open_space, bench.broker.space.names) == (MORE, MORE.names | {"other"})


# --- Restarts ---------------------------------------------------------------------------------------------------------


def restarted(bench: Bench, records: list[RecordChange]) -> Bench:
    return Bench(broker=Broker.restored(bench.broker.name, BASE, records, FLOOD))


def recorded(effects: list[Effect]) -> list[RecordChange]:
    return [record for each in effects if hasattr(each, "records") for record in each.records]


def test_a_proposal_survives_a_restart_of_whoever_proposed_it() -> None:
    """Hole 11: it never opened."""
    bench = Bench(space=BASE)
    bench.counts["B2"] = 0
    records = recorded(bench.handle(LinkUp(1), "B2")) + recorded(bench.handle(Extend(0, MORE.to_json()), OPERATOR))
    again = restarted(bench, records)
    answer = again.neighbour("B2", session=2, space=BASE)
    assert [(each.step, each.origin, each.opened) for each in said(answer, "B2")] == [(0, "", True), (1, "B1", False)]
    assert again.broker.open_space == BASE
    assert [each.opened for each in said(again.settles("B2"), "B2")] == [True]
    assert again.broker.open_space == MORE


def test_what_lost_is_proposed_again_after_a_restart() -> None:
    bench = Bench(space=BASE, broker=Broker("B2", BASE, FLOOD))
    records = recorded(bench.handle(LinkUp(1), "B1"))
    bench.counts["B1"] = 0
    bench.handle(Hello("B1", SESSION, BASE.to_json(), members=("B1",)), "B1")
    records += recorded(bench.handle(Extend(0, OTHER.to_json()), OPERATOR))
    records += recorded(bench.says("B1", Grow, 1, "B1", MORE.to_json()))
    again = restarted(bench, records)
    again.neighbour("B1", session=2)
    effects = again.says("B1", Grow, 1, "B1", MORE.to_json(), True)
    assert [(each.step, each.opened) for each in said(effects, "B1")] == [(2, False)]
    assert again.broker.open_space == MORE and again.broker.space == BOTH


def test_another_operator_opens_the_step_of_a_broker_that_is_gone_for_good() -> None:
    bench = Bench(space=BASE, broker=Broker("B2", BASE, FLOOD)).settled_neighbour("B1").settled_neighbour("B3")
    bench.says("B1", Grow, 1, "B1", MORE.to_json())
    bench.settles("B3")
    bench.handle(LinkDown(forget=True), "B1")
    assert bench.broker.open_space == BASE
    effects = bench.handle(Extend(0, MORE.to_json()), OPERATOR)
    assert [each.opened for each in said(effects, "B3")] == [False]
    assert [each.opened for each in said(bench.settles("B3"), "B3")] == [True]


def test_an_unopened_step_of_an_older_version_opens_after_the_restart() -> None:
    text = MORE.to_json()
    bench = Bench(broker=Broker.restored("B1", BASE, [SpaceRecord(is_open=False, space=text)], FLOOD))
    bench.client("ann")
    assert (bench.broker.open_space, bench.broker.open_step) == (MORE, 1)


# --- Never taken back, and lost disks (T2.11d, e) ---------------------------------------------------------------------


def test_an_opened_step_is_never_taken_back() -> None:
    bench = Bench(space=BASE).settled_neighbour("B2")
    bench.says("B2", Grow, 1, "B2", MORE.to_json(), True)
    bench.says("B2", Grow, 1, "B0", OTHER.to_json())
    bench.says("B2", Grow, 0, "", BASE.to_json(), True)
    assert (bench.broker.space, bench.broker.open_space, bench.broker.open_step) == (MORE, MORE, 1)
    refused = rejected(bench.says("B2", Grow, 2, "B2", OTHER.to_json(), True)).refused
    assert refused.code == "space" and "has opened another space" in refused.reason


def test_a_lost_disk_takes_the_space_of_its_neighbour() -> None:
    """Hole 11: its settings have what it proposed at another place, and it could never join again."""
    net = overlay("B1", "B2", "B3")
    grows(net, "B1", MORE)
    net.network.run()
    grows(net, "B3", Space.parse(f"{MORE}, other bool"))
    net.network.run()
    grown = net["B1"].space
    net.network.crash("B3", keep_store=False)
    net.network.nodes["B3"].lose_space(Space.parse(f"{BASE}, other bool, last int"))
    net.network.restart("B3")
    net.network.run()
    assert net.network.hang_ups == []
    wanted = Space.parse(f"{grown}, last int")
    assert spaces(net) == [(wanted, wanted, 3)] * 3


def test_two_spaces_that_have_both_opened_are_refused_by_name() -> None:
    bench = Bench(space=BASE).settled_neighbour("B3")
    bench.says("B3", Grow, 1, "B3", MORE.to_json(), True)
    bench.handle(LinkUp(1), "B2")
    hello = Hello("B2", SESSION, OTHER.to_json(), members=("B2",), capabilities={STEP: 1})
    refused = rejected(bench.handle(hello, "B2")).refused
    assert refused.code == "space" and "uses another space" in refused.reason


def test_clauses_that_mean_nothing_in_the_space_that_is_taken_over_go() -> None:
    own = Space.parse(f"{BASE}, last string")
    bench = Bench(space=own).client("ann")
    bench.says("ann", Subscribe, "gone", "last = 'z'")
    bench.says("ann", Subscribe, "kept", "x < 5")
    bench.counts["B2"] = 0
    bench.handle(LinkUp(1), "B2")
    bench.handle(Hello("B2", SESSION, MORE.to_json(), members=("B2",), capabilities={STEP: 1}), "B2")
    effects = bench.says("B2", Grow, 1, "B2", MORE.to_json(), True)
    assert rejected(effects).close and bench.broker.open_space == MORE
    assert list(bench.broker.received_from("subscriptions", "ann")) == ["B1/ann/kept"]
    assert [each for each in recorded(effects) if isinstance(each, Drop)] != []


# --- Neighbours that count no steps -----------------------------------------------------------------------------------


def test_an_older_neighbour_gets_extend() -> None:
    grow = Grow(7 << 32 | 1, 2, "B1", MORE.to_json(), True)
    assert KINDS.readable(grow, Peer(True, 4)) == Extend(grow.seq, grow.space, True)
    assert KINDS.readable(grow, Peer(True, 5)) is grow


def test_an_older_neighbour_spreads_a_space_as_before() -> None:
    bench = Bench(space=BASE).settled_neighbour("B2").settled_neighbour("B3")
    effects = bench.says("B2", Extend, MORE.to_json())
    assert [(each.step, each.origin, each.opened) for each in said(effects, "B3")] == [(1, "B2", False)]
    effects = bench.says("B2", Extend, MORE.to_json(), True)
    assert [(each.step, each.opened) for each in said(effects, "B3")] == [(1, True)]
    assert bench.handle(Publish("z:1", {"x": 1, "more": 2}), "B2") == []
    with pytest.raises(CallerError, match="does not extend"):
        bench.handle(Extend(0, OTHER.to_json()), OPERATOR)
