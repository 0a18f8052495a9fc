"""Peers of other versions: what is agreed on, what neighbours are told of it, and what exceeds their limits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from helpers.broker_bench import FLOOD, NOTHING, SESSION, SPACE, Bench, Overlay, rejected, sent, synced, updates
from thatch import Space
from thatch.broker import Policy, Settings
from thatch.broker.fitting import fitted, written
from thatch.broker.policy import ClientLimits
from thatch.errors import CallerError
from thatch.protocol.digest import digest
from thatch.protocol.ids import SUBSCRIPTIONS
from thatch.protocol.messages import (
    Digest,
    Hello,
    LinkDown,
    LinkUp,
    Listing,
    Send,
    Subscribe,
    Synced,
    UnknownKind,
    seq_of,
)
from thatch.protocol.versions import LIMITS, OWN_LIMITS, VERSION_MAX, VERSION_MIN

STRINGS = Space.parse("s string, x int not null 0..100")


def greeting(bench: Bench, link: str) -> Hello:
    """How the broker greets a link when it comes up."""
    session = bench.broker.links[link].session + 1 if link in bench.broker.links else 1
    (hello,) = [
        each.message
        for each in bench.handle(LinkUp(session), link)
        if isinstance(each, Send) and each.link == link and isinstance(each.message, Hello)
    ]
    return hello


# --- Versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lowest", "highest", "agreed"),
    [(2, 0, 2), (2, 2, 2), (2, 3, 3), (3, 3, 3), (1, 2, 2), (3, 4, 4), (2, 7, 5), (5, 9, 5), (2, 2**63, 5)],
)
def test_the_highest_common_version_is_used(lowest: int, highest: int, agreed: int) -> None:
    bench = Bench()
    bench.handle(LinkUp(1), "B2")
    bench.handle(Hello("B2", SESSION, SPACE.to_json(), version=lowest, version_max=highest), "B2")
    assert bench.broker.links["B2"].is_met and bench.broker.links["B2"].version == agreed


def test_a_greeting_names_the_versions_that_this_side_speaks() -> None:
    hello = greeting(Bench(), "B2")
    assert (hello.version, hello.version_max, hello.members_version) == (VERSION_MIN, VERSION_MAX, VERSION_MAX)


@pytest.mark.parametrize("capabilities", [{"kinds": 5}, {"kinds": [1, "nobody"]}, {"unknown": {"deep": [1]}}])
def test_what_a_peer_can_and_nobody_knows_here_is_ignored(capabilities: dict[str, object]) -> None:
    bench = Bench()
    bench.handle(LinkUp(1), "B2")
    bench.handle(Hello("B2", SESSION, SPACE.to_json(), version_max=3, capabilities=capabilities), "B2")
    assert bench.broker.links["B2"].is_met


def test_neighbours_learn_the_version_that_all_brokers_on_this_side_speak() -> None:
    """What every hop must keep holds only if all brokers behind the link announce it."""
    bench = Bench()
    bench.neighbour("B2")
    hello = Hello("B2", SESSION, SPACE.to_json(), members=("B2",))
    assert bench.broker.links["B2"].members_version == 2 and greeting(bench, "B3").members_version == 2
    bench.handle(Hello("B3", SESSION, SPACE.to_json(), members=("B3",), version_max=3, members_version=3), "B3")
    (effect,) = bench.handle(replace(hello, version_max=3, members_version=3), "B2")
    assert isinstance(effect, Send) and effect.link == "B3" and isinstance(effect.message, Hello)
    assert effect.message.members_version == 3, "B2 has been upgraded, and those behind it: B3 learns of it"
    bench.handle(LinkDown(), "B2")
    assert greeting(bench, "B3").members_version == 3, "cut, not gone"
    bench.handle(LinkUp(4), "B2")
    bench.handle(Hello("B2", SESSION + 1, SPACE.to_json(), members=("B2", "B4")), "B2")
    assert greeting(bench, "B3").members_version == 2, "one behind B2 is older"


def test_along_a_chain_all_learn_of_the_oldest() -> None:
    overlay = Overlay([("B1", "B2"), ("B2", "B3"), ("B3", "B4")])
    versions = {
        name: {link.name: link.members_version for link in overlay[name].links.values()}
        for name in ("B1", "B2", "B3", "B4")
    }
    assert all(version == VERSION_MAX for each in versions.values() for version in each.values()), versions
    old = Hello("B3", overlay["B2"].links["B3"].peer_session, SPACE.to_json(), members=("B3", "B4"), members_version=2)
    overlay.network._take("B2", old, "B3")
    overlay.network.run()
    assert overlay["B1"].links["B2"].members_version == 2 and overlay["B3"].links["B2"].members_version == VERSION_MAX


def test_an_unknown_kind_is_refused_with_its_number_and_ends_the_session() -> None:
    for link in ("ann", "B2"):
        bench = Bench().client("ann")
        bench.neighbour("B2")
        reject = rejected(bench.handle(UnknownKind(seq_of(SESSION, 9), "Conjure"), link))
        assert reject.close and reject.refused.seq == seq_of(SESSION, 9) and reject.refused.code == "kind"
        assert reject.refused.reason == "'Conjure' is not a kind of message that this broker knows"
        assert not bench.broker.links[link].is_met and bench.says(link, Subscribe, "s", "x < 5") == []


# --- A client that cannot hash ----------------------------------------------------------------------------------------


def test_a_client_that_cannot_hash_gets_no_digest_and_sends_its_subscriptions_again() -> None:
    bench = Bench().client("ann")
    bench.says("ann", Subscribe, "stays", "x < 5")
    bench.says("ann", Subscribe, "goes", "x < 6")
    bench.handle(LinkUp(2, is_client=True), "ann")
    hello = Hello("ann", SESSION + 1, SPACE.to_json(), is_client=True, version_max=3, capabilities={"digest": "none"})
    assert bench.handle(hello, "ann") == []
    listed: Listing = {0: {"stays": ("x < 5", None), "new": ("x < 7", None), "wrong": ("y < 7", None)}}
    effects = bench.handle(Synced(seq_of(SESSION + 1, 1), 1, listed, {0: {}}), "ann")
    assert sent(effects, "ann") == ["Accepted", "Settled"] and rejected(effects).refused.code == "clause"
    assert bench.broker.received_from(SUBSCRIPTIONS, "ann") == {"B1/ann/stays": "x < 5", "B1/ann/new": "x < 7"}


# --- Limits -----------------------------------------------------------------------------------------------------------


def test_a_merger_that_no_clause_can_say_is_sent_as_its_hull() -> None:
    """Two clauses within the limits: merged they have more characters than a clause may. The neighbour would refuse
    the merger, and the link would never stay up."""
    bench = Bench(Settings("subscriptions", Policy(None, merge=0.0)), STRINGS).client("ann")
    bench.neighbour("B2")
    texts = [f"{number}{'x' * 60_000}" for number in range(10, 84)]
    for at, half in enumerate((texts[:37], texts[37:])):
        listed = ", ".join(f"'{text}'" for text in half)
        (update,) = updates(bench.says("ann", Subscribe, f"s{at}", f"x < 5 AND s IN ({listed})"))
    hull = update.partition(": ")[2]
    assert len(hull) < 200_000
    region = STRINGS.where(hull)
    assert all(region.contains({"s": text, "x": 4}) for text in (texts[0], texts[40], texts[-1]))
    assert not region.contains({"s": texts[0], "x": 5}) and not region.contains({"s": "9", "x": 4})


def test_a_clause_beyond_the_limits_of_a_neighbour_is_sent_as_its_hull() -> None:
    """Which a later version may allow: the neighbour would refuse it, and the link would never stay up."""
    for policy in (Policy(None), Policy(None, merge=0.0)):
        bench = Bench(Settings("subscriptions", policy)).client("ann")
        bench.handle(LinkUp(1), "B2")
        bench.counts["B2"] = 0
        bench.handle(Hello("B2", SESSION, SPACE.to_json(), members=("B2",)), "B2")
        bench.broker.links["B2"].outbound.subscriptions.set_limits(replace(OWN_LIMITS, clause_characters_max=20))
        long = "x = 10 OR x = 17 OR x = 20 OR x = 30"
        bench.says("ann", Subscribe, "many", long)
        (bucket,) = synced(bench.says("B2", Digest, 1, *NOTHING)).subscriptions.values()
        assert [where for where, _ in bucket.values()] == ["x > 9 AND x <= 30"]
        (update,) = updates(bench.says("ann", Subscribe, "more", "x = 40 OR x = 50 OR x = 60"))
        assert update.endswith(": x BETWEEN 40 AND 60" if policy.merge is None else ": x > 9 AND x <= 60")
        held = bench.broker.links["B2"].outbound.subscriptions.forwarded()
        hashes = digest([(id, where, None) for id, where in held.items()], 1).hashes, (0,)
        assert synced(bench.neighbour("B2", session=5, hashes=hashes)).subscriptions.keys() == {0}, "whole again"


def test_what_has_no_hull_within_the_limits_is_everything() -> None:
    region = SPACE.where("x = 10 OR x = 17")
    tight = replace(OWN_LIMITS, clause_characters_max=10)
    assert fitted("x = 10 OR x = 17", region, tight) == written(region, tight) == "TRUE"
    assert written(region, OWN_LIMITS) == "x IN (10, 17)"
    assert written(region, replace(OWN_LIMITS, terms_max=0)) == "TRUE"


def test_settings_lower_the_limits_of_clients_only() -> None:
    bench = Bench(replace(FLOOD, limits=ClientLimits(clause_characters_max=20, terms_max=1))).client("ann")
    long = "x < 5" + " " * 20
    for kind in (Subscribe, Synced):
        fields = ("s", long) if kind is Subscribe else (1, {0: {"s": (long, None)}})
        refused = rejected(bench.says("ann", kind, *fields)).refused
        assert refused.code == "limit" and "at most 20 are allowed here" in refused.reason
    bench.neighbour("B2")
    assert bench.says("B2", Subscribe, "B2/bob/s", long) and bench.broker.table_size() == 1
    with pytest.raises(CallerError, match="terms_max is from 1 to 1,024"):
        ClientLimits(terms_max=1_025)


def test_every_version_has_limits() -> None:
    assert sorted(LIMITS) == list(range(VERSION_MIN, VERSION_MAX + 1))
