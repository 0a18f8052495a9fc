"""Policies of links, and why something was forwarded or was not."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from helpers.broker_bench import SPACE, Bench, updates
from thatch.broker import Broker, Policy, Settings
from thatch.broker.inspect import why_forwarded, why_sent
from thatch.broker.policy import CHECKED, Worth
from thatch.errors import CallerError
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import Advertise, Subscribe, Unsubscribe

# --- Policies ---------------------------------------------------------------------------------------------------------


def test_each_link_may_have_a_policy_of_its_own() -> None:
    settings = Settings("subscriptions", Policy(), {"B3": Policy(None)})
    bench = Bench(settings).client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.says("ann", Subscribe, "wide", "x < 50")
    effects = bench.says("ann", Subscribe, "narrow", "x < 5")
    assert (updates(effects, "B2"), updates(effects, "B3")) == ([], ["Subscribe narrow: x < 5"])


@pytest.mark.parametrize("graph", ["traditional", "simplified"])
def test_a_relation_graph_as_policy_covers_by_one_and_retracts(graph: str) -> None:
    bench = Bench(Settings("subscriptions", Policy("pairwise", graph=graph))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "low", "x < 30")
    bench.says("ann", Subscribe, "high", "x >= 20")
    assert updates(bench.says("ann", Subscribe, "inside", "x < 10")) == []
    assert updates(bench.says("ann", Subscribe, "union", "x BETWEEN 10 AND 40")) == [
        "Subscribe union: x BETWEEN 10 AND 40"
    ]
    effects = updates(bench.says("ann", Subscribe, "wide", "x < 50"))
    assert effects[0] == "Subscribe wide: x < 50" and sorted(effects[1:]) == ["Unsubscribe low", "Unsubscribe union"]
    effects = updates(bench.says("ann", Unsubscribe, "wide"))
    assert sorted(effects[:2]) == ["Subscribe low: x < 30", "Subscribe union: x BETWEEN 10 AND 40"]
    assert effects[2:] == ["Unsubscribe wide"]


def test_pairwise_does_not_cover_by_a_union() -> None:
    bench = Bench(Settings("subscriptions", Policy("pairwise"))).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "low", "x < 20")
    bench.says("ann", Subscribe, "high", "x >= 20")
    assert updates(bench.says("ann", Subscribe, "all", "TRUE")) == ["Subscribe all: TRUE"]


def test_checking_stops_for_eight_windows_where_it_does_not_pay() -> None:
    worth = Worth(0.5)
    for covered in (True, False) * (CHECKED // 2):
        assert worth.next()
        worth.saw(covered)
    for _ in range(CHECKED):
        assert worth.next()
        worth.saw(False)
    assert not any(worth.next() for _ in range(8 * CHECKED))
    assert worth.next()


def test_a_link_on_which_checking_does_not_pay_is_sent_all() -> None:
    bench = Bench(Settings("subscriptions", Policy(covered_share_min=0.5))).client("ann").settled_neighbour("B2")
    bench.broker.outbound(SUBSCRIPTIONS, "B2")._worth = Worth(0.5, checked=3)
    for at in range(3):
        bench.says("ann", Subscribe, f"s{at}", f"x BETWEEN {20 * at} AND {20 * at + 10}")
    assert [len(updates(bench.says("ann", Subscribe, f"t{at}", "x = 1"))) for at in range(25)] == [1] * 24 + [0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Policy("nonsense"), "no cover engine 'nonsense'"),
        (lambda: Policy("pairwise", graph="nonsense"), "a relation graph is one of traditional, simplified"),
        (lambda: Policy("exact", graph="simplified"), "a relation graph needs pairwise covering"),
        (lambda: Policy(None, retract=True), "with covering off there is nothing to retract"),
        (lambda: Policy(None, covered_share_min=0.5), "with covering off there is nothing to retract"),
        (lambda: Policy(None, options={"form": "boxes"}), "with covering off there is nothing to retract"),
        (lambda: Policy("exact", options={"nonsense": 1}), "the cover engine 'exact' does not take these options"),
        (lambda: Policy(covered_share_min=1.5), "covered_share_min is a share from 0 to 1, not 1.5"),
        (lambda: Policy(covered_share_min=-0.5), "covered_share_min is a share from 0 to 1, not -0.5"),
        (lambda: Policy(covered_share_min=float("nan")), "covered_share_min is a share from 0 to 1, not nan"),
        (
            lambda: Settings("nonsense"),  # type: ignore[arg-type]
            "routing is one of advertisements, subscriptions, events, not 'nonsense'",
        ),
        *(
            (partial(Broker, name, SPACE), "a text without '/', '~', ':' and '@', of 1 to 255 characters, not")
            for name in ("", "a/b", "a~b", "a:b", "@http", "x" * 256)
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, reason: str) -> None:
    with pytest.raises(CallerError, match=reason):
        make()


# --- Why --------------------------------------------------------------------------------------------------------------


def test_why_a_subscription_was_forwarded_or_not() -> None:
    bench = Bench(Settings()).client("ann").settled_neighbour("B2").settled_neighbour("B3")
    bench.says("B2", Advertise, "B2/p/a", "x < 50")
    for id, where in (("wide", "x < 20"), ("narrow", "x < 5"), ("apart", "x > 90"), ("never", "x < 0")):
        bench.says("ann", Subscribe, id, where)
    bench.says("B2", Subscribe, "B2/c/s", "x < 9")
    why = partial(why_sent, bench.broker)
    assert why("B1/ann/wide", "B2") == "'B1/ann/wide' was sent to 'B2'"
    covered = "'B1/ann/narrow' was not sent to 'B2': it is covered by what was sent there: 'B1/ann/wide'"
    assert why("B1/ann/narrow", "B2") == covered
    nobody = "no publisher there advertised an event that it wants"
    assert why("B1/ann/apart", "B2") == f"'B1/ann/apart' was not sent to 'B2': {nobody}"
    assert why("B1/ann/wide", "B3") == f"'B1/ann/wide' was not sent to 'B3': {nobody}"
    assert why("B2/c/s", "B2") == "'B2/c/s' was not sent to 'B2': it came from there"
    with pytest.raises(CallerError, match="broker 'B1' knows no subscription 'nonsense'"):
        why("nonsense", "B2")


def test_why_nothing_is_forwarded_where_events_flood_or_nothing_matches() -> None:
    bench = Bench(Settings(routing="events")).client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 5")
    assert why_sent(bench.broker, "B1/ann/s", "B2").endswith("events flood, subscriptions stay where they are")
    assert why_forwarded(bench.broker, {"x": 50}, "B2") == "the event goes to 'B2': events flood"
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("ann", Subscribe, "never", "x < 0")
    assert why_sent(bench.broker, "B1/ann/never", "B2").endswith("no event can match it")


def test_why_an_event_goes_somewhere() -> None:
    bench = Bench().client("ann").settled_neighbour("B2")
    bench.says("B2", Subscribe, "B2/c/s", "x < 5")
    bench.says("ann", Subscribe, "t", "x < 9")
    why = partial(why_forwarded, bench.broker)
    assert why({"x": 3}, "B2") == "the event goes to 'B2': it is wanted by 'B2/c/s'"
    assert why({"x": 7}, "B2") == "the event does not go to 'B2': no subscription from there wants it"
    assert why({"x": 7}, "ann") == "the event goes to 'ann': it is wanted by 'B1/ann/t'"


def test_why_of_an_unknown_link_is_the_callers_fault() -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "s", "x < 5")
    for link in ("nonsense", "ann"):
        with pytest.raises(CallerError, match=f"broker 'B1' has no neighbour '{link}'"):
            why_sent(bench.broker, "B1/ann/s", link)
    with pytest.raises(CallerError, match="broker 'B1' has no link 'nonsense'"):
        why_forwarded(bench.broker, {"x": 1}, "nonsense")
