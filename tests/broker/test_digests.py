"""Digests against clients that choose their ids: sets whose hashes cancel out are taken to be held by nobody."""

from __future__ import annotations

import pytest

from helpers.broker_bench import SESSION, Bench
from helpers.overlays import SPACE, Deliveries
from thatch.broker import ClientState, Settings
from thatch.errors import PeerError
from thatch.protocol.digest import Hashed, differing, digest
from thatch.protocol.ids import overlay_id
from thatch.protocol.messages import Digest, Hello, LinkUp, Send, Synced, seq_of
from thatch.protocol.versions import KEYED_DIGESTS, VERSION_MAX
from thatch.sim.overlay import Overlay

CLIENT = "at B1"
KEY = bytes(range(16))


def cancelling(prefix: str = "") -> dict[str, str]:
    """Ids and clauses that no other covers, and the exclusive or of whose hashes without a key is 0: of 65 that are
    drawn, those that Gaussian elimination over bits picks."""
    drawn = [(f"s{at}", f"x = {at % 10} AND y = {at // 10}") for at in range(65)]
    rows: dict[int, tuple[int, int]] = {}  # by highest bit: hash, which of the drawn ones are in it
    for at, (id, where) in enumerate(drawn):
        hash, chosen = digest([(prefix + id, where, None)], 1).hashes[0], 1 << at
        while hash and hash.bit_length() in rows:
            other, those = rows[hash.bit_length()]
            hash, chosen = hash ^ other, chosen ^ those
        if not hash:
            return {id: where for at, (id, where) in enumerate(drawn) if chosen >> at & 1}
        rows[hash.bit_length()] = hash, chosen
    raise AssertionError("65 numbers of 64 bits are linearly dependent")


def entries(wheres: dict[str, str]) -> list[tuple[str, str, float | None]]:
    return [(id, where, None) for id, where in wheres.items()]


def test_after_a_cut_a_neighbour_is_not_taken_to_hold_what_a_client_chose_to_cancel_out() -> None:
    chosen = cancelling(overlay_id("B1", CLIENT, ""))
    deliveries = Deliveries()
    overlay = Overlay(SPACE, [("B1", "B2")], ["B1"], ["B2"], Settings(), observer=deliveries)
    wire = overlay.network.wire("B1", "B2")
    assert wire is not None
    overlay.network.cut(wire)
    for id, where in chosen.items():
        overlay.subscribe(id, where, broker="B1")
    overlay.network.run()
    overlay.network.heal(wire)
    overlay.network.run()
    held = overlay.network.nodes["B2"].broker.received_from("subscriptions", "B1")
    assert held.keys() == {overlay_id("B1", CLIENT, id) for id in chosen}
    for where in chosen.values():
        x, y = (int(part[-1]) for part in where.split(" AND "))
        overlay.publish({"x": x, "y": y})
    overlay.network.run()
    assert len(deliveries.got) == len(chosen)


def test_a_client_does_not_take_its_broker_to_hold_them_either() -> None:
    client = ClientState("ann", SPACE)
    client.connect("B1", SESSION)
    for id, where in cancelling().items():
        client.subscribe("B1", id, where)
    client.handle(Hello("B1", 9, SPACE.to_json(), version_max=VERSION_MAX), "B1")
    (send,) = client.handle(Digest(seq_of(9, 1), 1, (0,), (0,), KEY, (0,), (0,)), "B1")
    assert isinstance(send.message, Synced)
    assert {id for held in send.message.subscriptions.values() for id in held} == cancelling().keys()


def test_a_key_is_used_once_and_only_with_peers_that_know_of_it() -> None:
    keys = []
    for session, version in enumerate((KEYED_DIGESTS, KEYED_DIGESTS, KEYED_DIGESTS - 1, 0), 1):
        bench = Bench()
        bench.handle(LinkUp(session, key=KEY + bytes([session])), "B2")
        hello = Hello("B2", SESSION, bench.broker.space.to_json(), members=("B2",), version_max=version)
        sends = [each for each in bench.handle(hello, "B2") if isinstance(each, Send)]
        (message,) = [each.message for each in sends if isinstance(each.message, Digest)]
        counts = message.subscription_counts, message.advertisement_counts
        assert counts == (((0,), (0,)) if message.key else ((), ()))
        keys.append(message.key)
    assert keys == [KEY + b"\1", KEY + b"\2", b"", b""]


# --- Hashes and counts ------------------------------------------------------------------------------------------------


def test_equal_tables_have_equal_digests_in_any_order_and_others_do_not() -> None:
    held = entries(cancelling())
    for key in (b"", KEY):
        whole = digest(held, 4, key)
        assert digest(held[::-1], 4, key) == whole and sum(whole.counts) == (len(held) if key else 0)
        assert digest(held[1:], 4, key).hashes != whole.hashes
        assert differing({id: (where, expires) for id, where, expires in held}, whole, 4, key) == {}
    assert digest(held, 4, KEY).hashes != digest(held, 4, KEY[::-1]).hashes
    assert not any(digest(held, 1).hashes) and any(digest(held, 1, KEY).hashes)


def test_a_bucket_differs_if_only_the_count_of_its_entries_does() -> None:
    held = {id: (where, None) for id, where in cancelling().items()}
    hashed = digest(entries(cancelling()), 2, KEY)
    theirs = Hashed(hashed.hashes, (hashed.counts[0], hashed.counts[1] + 1))
    assert differing(held, theirs, 2, KEY).keys() == {1}


@pytest.mark.parametrize("counts", [(), (0,), (0, 0, 0)])
def test_counts_that_are_not_one_for_each_bucket_are_the_peers_fault(counts: tuple[int, ...]) -> None:
    with pytest.raises(PeerError, match=rf"a digest says that it has 2 buckets, and has {len(counts)}"):
        differing({}, Hashed((0, 0), counts), 2, KEY)
