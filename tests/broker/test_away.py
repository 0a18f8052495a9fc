"""Neighbours that are away for long: nobody waits for them, and nothing that they may want is lost."""

from __future__ import annotations

from typing import Any

from helpers.broker_bench import NOTHING, SESSION, SPACE, Bench, Overlay, is_settled, rejected, sent, updates
from helpers.peers import neighbour
from thatch import Space
from thatch.broker import Broker, Settings
from thatch.broker.waits import EXCEPTED_MAX, NAMES_MAX, Missing, together
from thatch.protocol.digest import bucket_of, digest
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.messages import (
    Advertise,
    Away,
    Digest,
    Durable,
    Effect,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Persist,
    Publish,
    Send,
    SettledExcept,
    Subscribe,
    Synced,
    Unadvertise,
    seq_of,
)
from thatch.protocol.records import Drop, LinkRecord, RecordChange, SubscriptionKey, SubscriptionRecord
from thatch.sim.topology import chain

BY_ADVERTISEMENTS = Settings(holds_events=True)
HELD = "B1/~~B2/B1/ann/a"  # what B1 holds for B2 of ann's advertisement


class AwayBench(Bench):
    """Its peers speak the present version, and what is to be kept is gathered."""

    def __init__(self, settings: Settings = BY_ADVERTISEMENTS, broker: Broker | None = None) -> None:
        super().__init__(settings, broker=broker)
        self.records: list[RecordChange] = []

    def handle(self, message: Message, link: str) -> list[Effect]:
        effects = super().handle(message, link)
        self.records += [record for effect in effects if isinstance(effect, Persist) for record in effect.records]
        return effects

    def client(self, name: str, version: int = 5) -> AwayBench:
        super().client(name, version)
        return self

    def neighbour(
        self, name: str, session: int = 1, space: Space | None = None, hashes: Any = NOTHING, version: int = 5
    ) -> list[Effect]:
        return super().neighbour(name, session, space, hashes, version or 5)

    def goes(self, name: str) -> list[Effect]:
        """A neighbour leaves, and stays away."""
        self.handle(LinkDown(), name)
        return self.handle(Away(), name)

    def settles_except(self, link: str, *brokers: str) -> list[Effect]:
        peer = self.broker.links[link]
        return self.handle(SettledExcept(seq_of(peer.session, peer.sent_count), brokers), link)

    def held(self) -> list[str]:
        """What is held on behalf of B2."""
        return [*self.broker.links["B2"].pending.placeholders.values()]

    def is_durable(self) -> bool:
        return self.broker.links["B2"].is_durable


def excepted(effects: list[Effect], link: str = "ann") -> SettledExcept | None:
    found = [each.message for each in effects if isinstance(each, Send) and each.link == link]
    messages = [each for each in found if isinstance(each, SettledExcept)]
    assert len(messages) <= 1
    return messages[0] if messages else None


def said_except(effects: list[Effect], link: str = "ann") -> tuple[str, ...]:
    """The brokers that are missing."""
    message = excepted(effects, link)
    assert message is not None and not is_settled(effects, link)
    return message.brokers


def bench_without_b2() -> AwayBench:
    """Broker B1 with a client ann and a neighbour B2 that has settled and has been away for long."""
    bench = AwayBench().client("ann")
    bench.settled_neighbour("B2")
    bench.goes("B2")
    return bench


# --- Nobody waits -----------------------------------------------------------------------------------------------------


def test_what_waits_settles_except_behind_a_neighbour_that_is_away_for_long() -> None:
    bench = AwayBench().client("ann")
    bench.settled_neighbour("B2")
    bench.handle(LinkDown(), "B2")
    effects = bench.says("ann", Advertise, "a", "x < 50")
    assert not is_settled(effects) and excepted(effects) is None
    assert excepted(bench.handle(Away(), "B2")) == SettledExcept(seq_of(SESSION, 1), ("B2",))
    assert said_except(bench.says("ann", Advertise, "b", "x > 50")) == ("B2",)
    assert bench.handle(Away(), "B2") == [], "it was said"


def test_the_second_notice_follows_when_the_neighbour_has_settled() -> None:
    bench = bench_without_b2()
    bench.says("ann", Advertise, "a", "x < 50")
    assert not is_settled(bench.neighbour("B2", session=2))
    effects = bench.settles("B2")
    assert sent(effects, "ann") == ["Settled"]
    assert is_settled(bench.says("ann", Subscribe, "s", "x < 50")), "and nothing is missing from then on"


def test_the_second_notice_waits_for_what_is_behind_the_neighbour() -> None:
    """T1.4: B2 has resynchronised, and B3 behind it does not know the advertisement yet."""
    bench = bench_without_b2()
    bench.says("ann", Advertise, "a", "x < 50")
    bench.neighbour("B2", session=2)
    effects = bench.settles_except("B2", "B3")
    assert sent(effects, "ann") == []
    assert is_settled(bench.settles("B2"))


def test_what_a_neighbour_settles_except_behind_others_is_passed_on_with_their_names() -> None:
    bench = AwayBench().client("ann")
    for name in ("B2", "B3"):
        bench.settled_neighbour(name)
    bench.says("ann", Advertise, "a", "x < 50")
    assert excepted(bench.settles_except("B2", "B7", "B8")) is None, "B3 has not settled"
    assert said_except(bench.settles_except("B3", "B9", "B7")) == ("B7", "B8", "B9")
    assert not is_settled(bench.settles("B2"))
    assert is_settled(bench.settles("B3"))


def test_a_part_that_has_settled_is_not_named() -> None:
    bench = AwayBench().client("ann")
    for name in ("B2", "B3"):
        bench.settled_neighbour(name)
    bench.says("ann", Advertise, "a", "x < 50")
    bench.settles("B3")
    assert said_except(bench.settles_except("B2", "B7")) == ("B7",)


def test_names_are_bounded_and_the_rest_is_counted() -> None:
    many = [Missing(tuple(f"B{at}" for at in range(12)), 3), Missing(tuple(f"B{at}" for at in range(8, 30)), 1)]
    found = together(many)
    assert len(found.brokers) == NAMES_MAX and found.others == 4 + 30 - NAMES_MAX
    assert together([Missing(("B2",))] * 5) == Missing(("B2",))
    bench = AwayBench().client("ann")
    bench.settled_neighbour("B2")
    bench.says("ann", Advertise, "a", "x < 50")
    message = excepted(bench.settles_except("B2", *(f"B{at}" for at in range(100))))
    assert message is not None and len(message.brokers) == NAMES_MAX and message.others == 100 - NAMES_MAX


def test_what_waits_while_a_neighbour_is_away_is_bounded() -> None:
    bench = bench_without_b2()
    bench.settled_neighbour("B3")
    for at in range(3 * EXCEPTED_MAX):
        bench.says("ann", Advertise, f"a{at % 7}", f"x < {at % 90 + 5}")
        assert said_except(bench.settles_except("B3", "B9")) == ("B2", "B9")
    assert len(bench.broker.links["ann"].waiting) == EXCEPTED_MAX
    bench.settles("B3")
    bench.neighbour("B2", session=2)
    assert is_settled(bench.settles("B2")) and not bench.broker.links["ann"].waiting


def test_who_does_not_know_exceptions_waits_as_before() -> None:
    """A neighbour and a client of version 4 hear nothing before all has settled."""
    bench = bench_without_b2()
    bench.neighbour("B3", version=4)
    bench.settles("B3")
    effects = bench.says("B3", Advertise, "B3/pub/a", "TRUE")
    assert excepted(effects, "B3") is None and "Settled" not in sent(effects, "B3")
    bench.neighbour("B2", session=2)
    assert is_settled(bench.settles("B2"), "B3")


def test_a_flush_never_settles_with_an_exception() -> None:
    """T1.6: what is kept for a neighbour that is away has not arrived."""
    overlay = Overlay(chain(["B0", "B1", "B2"]), BY_ADVERTISEMENTS)
    overlay.client("ann@B1")
    overlay.network.cut(cut_wire(overlay, "B0", "B1"))
    overlay.network.go_away("B1", "B0")
    overlay.does("ann@B1", "advertise", "a", "TRUE")
    overlay.does("ann@B1", "flush")
    ann = overlay.network.clients["ann@B1"]
    assert ann.missing("B1", ADVERTISEMENTS, "a") == Missing(("B0",))
    assert not ann.is_flushed("B1")
    heal(overlay, "B0", "B1")
    assert overlay.network.clients["ann@B1"].is_flushed("B1")
    assert ann.missing("B1", ADVERTISEMENTS, "a") == Missing()


def test_a_neighbour_that_is_forgotten_is_not_missing_any_more() -> None:
    bench = bench_without_b2()
    bench.says("ann", Advertise, "a", "x < 50")
    assert bench.held() == [HELD]
    effects = bench.handle(LinkDown(forget=True), "B2")
    assert is_settled(effects) and Drop(SubscriptionKey(neighbour("B2"), HELD)) in bench.records
    assert bench.broker.table_size() == 0


def test_a_client_and_a_neighbour_that_is_there_are_not_away() -> None:
    bench = AwayBench().client("ann").settled_neighbour("B2")
    for name in ("ann", "B2"):
        assert bench.handle(Away(), name) == [] and bench.broker.links[name].is_up


# --- Nothing is lost --------------------------------------------------------------------------------------------------


def test_all_that_is_advertised_meanwhile_is_kept_for_the_neighbour() -> None:
    bench = bench_without_b2()
    effects = bench.says("ann", Advertise, "a", "x < 50")
    assert SubscriptionRecord(neighbour("B2"), HELD, "x < 50") in bench.records and bench.held() == [HELD]
    assert isinstance(effects[0], Persist) and said_except(effects) == ("B2",)
    assert bench.is_durable(), "what is kept survives a crash"
    assert bench.handle(Publish("ann:1", {"x": 3}), "ann") == [Send("B2", Publish("ann:1", {"x": 3}), suspected=True)]
    bench.says("ann", Advertise, "a", "x < 60")
    assert SubscriptionRecord(neighbour("B2"), HELD, "x < 60") in bench.records
    assert len(bench.handle(Publish("ann:2", {"x": 55}), "ann")) == 1
    bench.says("ann", Unadvertise, "a")
    assert bench.held() == [] and not bench.is_durable()
    assert bench.records[-1] == Drop(SubscriptionKey(neighbour("B2"), HELD))


def test_what_had_settled_before_is_not_kept_on_suspicion() -> None:
    """The neighbour has said what it wants of it."""
    bench = AwayBench().client("ann")
    bench.settled_neighbour("B2")
    bench.says("ann", Advertise, "a", "x < 50")
    bench.says("B2", Subscribe, "B2/bob/s", "x < 10")
    bench.settles("B2")
    bench.goes("B2")
    assert bench.held() == []
    assert bench.handle(Publish("ann:1", {"x": 30}), "ann") == []
    bench.says("ann", Advertise, "b", "x > 5")
    assert bench.held() == ["B1/~~B2/B1/ann/b"]
    found = {event["x"]: bench.handle(Publish(f"ann:{event['x']}", event), "ann") for event in ({"x": 7}, {"x": 30})}
    assert [[each.suspected for each in effects if isinstance(each, Send)] for effects in found.values()] == [
        [False], [True]
    ]  # fmt: skip


def test_an_advertisement_that_was_under_way_counts_as_not_known() -> None:
    bench = AwayBench().client("ann")
    bench.settled_neighbour("B2")
    bench.says("ann", Advertise, "a", "x < 50")
    bench.handle(LinkDown(), "B2")
    assert bench.held() == [] and excepted(bench.handle(Away(), "B2")) is not None
    assert bench.held() == [HELD]


def test_a_placeholder_goes_toward_publishers_before_its_exception_is_said() -> None:
    """T1.3, seen from the broker before the gap: the publisher is two hops away."""
    bench = AwayBench()
    for name in ("B0", "B2"):
        bench.settled_neighbour(name)
    bench.goes("B2")
    effects = bench.says("B0", Advertise, "B0/pub/a", "x < 50")
    messages = [each.message for each in effects if isinstance(each, Send) and each.link == "B0"]
    assert [type(each) for each in messages] == [Durable, Subscribe, SettledExcept]
    assert isinstance(effects[0], Persist) and isinstance(messages[1], Subscribe)
    assert (messages[1].id, messages[1].where) == ("B1/~~B2/B0/pub/a", "x < 50")


def test_a_placeholder_is_there_after_a_crash_and_goes_when_it_has_settled() -> None:
    bench = bench_without_b2()
    bench.says("ann", Advertise, "a", "x < 50")
    records = [*bench.records]
    restored = Broker.restored("B1", SPACE, records, BY_ADVERTISEMENTS)
    restored.check_invariants()
    assert restored.links["B2"].pending.placeholders == {"B1/ann/a": HELD} and restored.links["B2"].is_durable
    again = AwayBench(broker=restored).client("ann2")
    again.counts["B2"] = 0
    again.neighbour("B2", session=9)
    assert again.held() == [HELD], "B2 has not settled yet"
    again.says("B2", Subscribe, "B2/bob/s", "x < 10")
    again.settles("B2")
    assert again.held() == [] and not again.broker.links["B2"].is_durable
    assert again.broker.received_from(SUBSCRIPTIONS, "B2") == {"B2/bob/s": "x < 10"}


def test_the_neighbours_own_interest_is_forwarded_before_its_placeholder_goes() -> None:
    bench = AwayBench()
    for name in ("B0", "B2"):
        bench.settled_neighbour(name)
    bench.goes("B2")
    bench.says("B0", Advertise, "B0/pub/a", "x < 50")
    bench.neighbour("B2", session=2)
    assert updates(bench.says("B2", Subscribe, "B2/bob/s", "x < 10"), "B0") == [], "the placeholder covers it"
    assert updates(bench.settles("B2"), "B0") == ["Durable", "Subscribe s: x < 10", "Unsubscribe a"]


def test_a_placeholder_stays_while_the_neighbour_has_greeted_and_says_nothing() -> None:
    """T1.5: nobody is held up, and the session ends."""
    bench = AwayBench().client("ann")
    bench.settled_neighbour("B2")
    bench.handle(LinkDown(), "B2")
    bench.handle(LinkUp(2), "B2")
    bench.handle(Hello("B2", SESSION, SPACE.to_json(), members=("B2",), version_max=5), "B2")
    assert not is_settled(bench.says("ann", Advertise, "a", "x < 50"))
    effects = bench.handle(Away(), "B2")
    assert rejected(effects).close and said_except(effects) == ("B2",)
    bench.handle(LinkDown(), "B2")
    bench.handle(LinkUp(3), "B2")
    bench.handle(Hello("B2", SESSION + 1, SPACE.to_json(), members=("B2",), version_max=5), "B2")
    assert bench.held() == [HELD] and bench.broker.links["B2"].is_away
    assert bench.handle(Publish("ann:1", {"x": 3}), "ann") == [Send("B2", Publish("ann:1", {"x": 3}), suspected=True)]


def test_a_neighbour_that_settles_with_an_exception_holds_the_placeholder_itself() -> None:
    bench = bench_without_b2()
    bench.says("ann", Advertise, "a", "x < 50")
    bench.neighbour("B2", session=2)
    bench.says("B2", Durable, True)
    bench.says("B2", Subscribe, "B2/~~B3/B1/ann/a", "x < 50")
    bench.settles_except("B2", "B3")
    assert bench.held() == [] and bench.broker.links["B2"].is_durable
    (send,) = bench.handle(Publish("ann:1", {"x": 30}), "ann")
    assert isinstance(send, Send) and not send.suspected


def test_placeholders_are_not_compared_when_the_neighbour_returns() -> None:
    """It does not know of them: they are neither in the digest nor missing in its listing."""
    bench = bench_without_b2()
    bench.says("ann", Advertise, "a", "x < 50")
    bench.handle(LinkUp(2, key=b"k" * 16), "B2")
    greeting = Hello("B2", SESSION, SPACE.to_json(), members=("B2",), version_max=5)
    (digested,) = [
        each.message
        for each in bench.handle(greeting, "B2")
        if isinstance(each, Send) and isinstance(each.message, Digest)
    ]
    assert digested.subscriptions == digest([], digested.size, b"k" * 16).hashes
    bench.counts["B2"] = 0
    bench.says("B2", Synced, 1, {0: {}}, {0: {}})
    assert bench.held() == [HELD] and bench.broker.table_size() == 1
    assert bucket_of(HELD, 1) == 0


def test_a_neighbour_says_nothing_in_the_name_of_a_placeholder() -> None:
    bench = bench_without_b2()
    bench.says("ann", Advertise, "a", "x < 50")
    bench.neighbour("B2", session=2)
    bench.says("B2", Subscribe, HELD, "x < 5")
    assert bench.broker.received_from(SUBSCRIPTIONS, "B2") == {HELD: "x < 50"}


# --- What is durable settles with its subscription --------------------------------------------------------------------


def test_what_is_durable_about_a_subscription_settles_together_with_it() -> None:
    """HOLES 7: a plain subscription covers the durable one, so that no subscription goes on; what is durable does."""
    bench = AwayBench(Settings(routing="subscriptions", holds_events=True)).client("ann")
    bench.settled_neighbour("B2")
    bench.says("ann", Subscribe, "s", "x < 50")
    bench.settles("B2")
    bench.counts["bob@alerts"] = 0
    effects = bench.handle(LinkUp(2, is_client=True, durable=True), "bob@alerts")
    assert sent(effects, "B2") == ["Durable"]
    bench.handle(Hello("bob@alerts", SESSION, SPACE.to_json(), is_client=True, version_max=5), "bob@alerts")
    assert not is_settled(bench.says("bob@alerts", Subscribe, "alerts", "x < 10"), "bob@alerts")
    assert is_settled(bench.settles("B2"), "bob@alerts")


def test_it_is_passed_on_in_order_and_recorded() -> None:
    bench = AwayBench()
    for name in ("B2", "B3"):
        bench.settled_neighbour(name)
    effects = bench.says("B2", Durable, True)
    assert LinkRecord(neighbour("B2"), is_durable=True) in bench.records
    assert sent(effects, "B3") == ["Durable"] and not is_settled(effects, "B2")
    assert is_settled(bench.settles("B3"), "B2")
    assert sent(bench.says("B2", Durable, False), "B3") == ["Durable"] and not bench.broker.links["B2"].is_durable


def test_who_does_not_know_it_is_greeted_again() -> None:
    bench = AwayBench()
    for name in ("B2", "B3"):
        bench.neighbour(name, version=4 if name == "B3" else 5)
        bench.settles(name)
    effects = bench.says("B2", Durable, True)
    assert sent(effects, "B3") == ["Hello"] and is_settled(effects, "B2")


def test_a_link_that_is_down_settles_it_when_it_is_synced() -> None:
    bench = AwayBench()
    for name in ("B2", "B3"):
        bench.settled_neighbour(name)
    bench.handle(LinkDown(), "B3")
    assert not is_settled(bench.says("B2", Durable, True), "B2")
    bench.neighbour("B3", session=2)
    assert is_settled(bench.settles("B3"), "B2")


def test_a_client_says_nothing_of_the_kind() -> None:
    bench = AwayBench().client("ann")
    assert rejected(bench.says("ann", Durable, True)).refused.code == "not_allowed"
    assert not bench.broker.links["ann"].is_durable


# --- Overlays ---------------------------------------------------------------------------------------------------------


def cut_wire(overlay: Overlay, one: str, other: str) -> Any:
    wire = overlay.network.wire(one, other)
    assert wire is not None
    return wire


def heal(overlay: Overlay, one: str, other: str) -> None:
    overlay.network.heal(cut_wire(overlay, one, other))
    overlay.network.run()
    overlay.check()


def test_exceptions_and_placeholders_go_all_the_way() -> None:
    """T1.3: the publisher is two hops from the gap, and the broker before it is killed."""
    overlay = Overlay(chain(["B0", "B1", "B2", "B3"]), BY_ADVERTISEMENTS)
    network = overlay.network
    overlay.client("pub@B0")
    network.cut(cut_wire(overlay, "B2", "B3"))
    network.go_away("B2", "B3")
    overlay.does("pub@B0", "advertise", "a", "TRUE")
    pub = network.clients["pub@B0"]
    assert pub.missing("B0", ADVERTISEMENTS, "a") == Missing(("B3",)) and not pub.is_settled("B0", ADVERTISEMENTS, "a")
    id = "B2/~~B3/B0/pub@B0/a"
    for broker, link in (("B2", "B3"), ("B1", "B2"), ("B0", "B1")):
        assert overlay[broker].received_from(SUBSCRIPTIONS, link) == {id: "TRUE"}
        assert overlay[broker].links[link].is_durable
    network.crash("B1", keep_store=True)
    network.restart("B1")
    network.run()
    assert overlay["B1"].received_from(SUBSCRIPTIONS, "B2") == {id: "TRUE"}
    assert pub.missing("B0", ADVERTISEMENTS, "a") == Missing(("B3",))
    heal(overlay, "B2", "B3")
    assert pub.is_settled("B0", ADVERTISEMENTS, "a")
    for broker, link in (("B2", "B3"), ("B1", "B2"), ("B0", "B1")):
        assert overlay[broker].received_from(SUBSCRIPTIONS, link) == {} and not overlay[broker].links[link].is_durable
