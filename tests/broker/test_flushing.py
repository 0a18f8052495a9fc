"""A `Flush`, and what answers it: nothing but the answers to what was asked of every other neighbour."""

from __future__ import annotations

import pytest

from helpers.broker_bench import SESSION, Bench, rejected, sent, updates
from thatch.protocol.messages import Flush, Flushed, LinkDown, Send, Settled, Subscribe, Unsubscribe, seq_of

ANSWER = "Flushed"


def bench_of(*neighbours: str) -> Bench:
    bench = Bench().client("ann", version=5)
    for name in neighbours:
        bench.settled_neighbour(name, version=5)
    return bench


def answers(bench: Bench, link: str) -> list[Send]:
    """What ann hears when a neighbour answers what it was asked last."""
    peer = bench.broker.links[link]
    effects = bench.handle(Flushed(seq_of(peer.session, peer.sent_count)), link)
    return [each for each in effects if isinstance(each, Send) and each.link == "ann"]


def test_settled_says_nothing_about_a_flush_before_it() -> None:
    """T1.1: the neighbour settles a subscription that came behind the flush; what was on its way comes later."""
    bench = bench_of("B2")
    assert updates(bench.says("ann", Flush)) == ["Flush"]
    asked = bench.broker.links["B2"].sent_count
    bench.says("ann", Subscribe, "s", "x < 5")
    effects = bench.settles("B2")
    assert Send("ann", Settled(seq_of(SESSION, 2))) in effects and ANSWER not in sent(effects, "ann")
    effects = bench.handle(Flushed(seq_of(bench.broker.links["B2"].session, asked)), "B2")
    assert effects == [Send("ann", Flushed(seq_of(SESSION, 1)))]


def test_every_other_neighbour_is_asked_and_waited_for() -> None:
    bench = bench_of("B2", "B3")
    effects = bench.says("B2", Flush)
    assert updates(effects, "B3") == ["Flush"] and "Flush" not in sent(effects, "B2")
    effects = bench.says("ann", Flush)
    assert updates(effects, "B2") == ["Flush"] and updates(effects, "B3") == [], "the next round, for ann"
    assert answers(bench, "B2") == []
    peer = bench.broker.links["B3"]
    effects = bench.handle(Flushed(seq_of(peer.session, peer.sent_count)), "B3")
    assert ANSWER in sent(effects, "B2") and ANSWER not in sent(effects, "ann")
    assert updates(effects, "B3") == ["Flush"]
    assert answers(bench, "B3") == [Send("ann", Flushed(seq_of(SESSION, 1)))]


def test_without_neighbours_a_flush_is_answered_at_once() -> None:
    assert sent(bench_of().says("ann", Flush), "ann") == [ANSWER, "Settled"]


def test_a_flush_waits_until_a_neighbour_that_is_away_returns() -> None:
    """T1.6: it never settles with an exception."""
    bench = bench_of("B2", "B3")
    bench.handle(LinkDown(), "B3")
    bench.says("ann", Flush)
    assert answers(bench, "B2") == []
    assert updates(bench.neighbour("B3", session=2, version=5), "B3")[-2:] == ["Synced", "Flush"]
    assert ANSWER not in sent(bench.settles("B3"), "ann")
    assert answers(bench, "B3") == [Send("ann", Flushed(seq_of(SESSION, 1)))]


def test_a_flush_does_not_wait_for_a_neighbour_that_is_forgotten() -> None:
    bench = bench_of("B2")
    bench.handle(LinkDown(), "B2")
    assert ANSWER not in sent(bench.says("ann", Flush), "ann")
    assert ANSWER in sent(bench.handle(LinkDown(forget=True), "B2"), "ann")


def test_a_flush_that_a_cut_has_met_is_said_again() -> None:
    bench = bench_of("B2")
    bench.says("ann", Flush)
    late = Flushed(seq_of(bench.broker.links["B2"].session, bench.broker.links["B2"].sent_count))
    bench.handle(LinkDown(), "B2")
    assert bench.handle(late, "B2") == []
    bench.neighbour("B2", session=2, version=5)
    assert bench.handle(late, "B2") == []
    assert answers(bench, "B2") == [Send("ann", Flushed(seq_of(SESSION, 1)))]


def test_flushes_without_end_cost_one_message_at_a_time() -> None:
    bench = bench_of("B2").client("bob", version=5)
    before = bench.broker.links["B2"].sent_total
    for _ in range(50):
        bench.says("ann", Flush)
        bench.says("bob", Flush)
    assert bench.broker.links["B2"].sent_total == before + 1
    assert answers(bench, "B2") == [Send("ann", Flushed(seq_of(SESSION, 1)))]
    assert bench.broker.links["B2"].sent_total == before + 2
    assert answers(bench, "B2") == [Send("ann", Flushed(seq_of(SESSION, 50)))]


def test_who_has_gone_is_not_answered() -> None:
    bench = bench_of("B2")
    bench.says("ann", Flush)
    bench.handle(LinkDown(), "ann")
    assert answers(bench, "B2") == []


def test_a_client_of_an_older_version_hears_settled_and_not_too_early() -> None:
    bench = Bench().client("ann").settled_neighbour("B2", version=5)
    bench.says("ann", Subscribe, "s", "x < 5")
    bench.says("ann", Flush)
    bench.says("ann", Unsubscribe, "s")
    assert Send("ann", Settled(seq_of(SESSION, 1))) in bench.settles("B2")
    asked = seq_of(bench.broker.links["B2"].session, bench.broker.links["B2"].sent_count - 1)
    assert bench.handle(Flushed(asked), "B2") == [Send("ann", Settled(seq_of(SESSION, 3)))]


def test_settled_of_an_older_neighbour_is_its_answer() -> None:
    bench = Bench().client("ann", version=5).settled_neighbour("B2", version=4)
    assert sent(bench.says("ann", Flush), "ann") == ["Settled"]
    assert sent(bench.settles("B2"), "ann") == [ANSWER]


@pytest.mark.parametrize("count", [0, 2])
def test_an_answer_to_what_was_not_asked_is_the_neighbours_fault(count: int) -> None:
    bench = bench_of("B2")
    bench.says("ann", Flush)
    peer = bench.broker.links["B2"]
    answer = Flushed(seq_of(peer.session, peer.sent_count + count))
    if not count:
        bench.handle(answer, "B2")
    assert rejected(bench.handle(answer, "B2")).close
