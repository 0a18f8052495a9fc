"""Kinds of messages: the registry is whole, peers get what they can read, and unknown kinds do as their tags say."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from helpers.paths import DATA
from thatch import Space
from thatch.errors import PeerError
from thatch.protocol import messages as m
from thatch.protocol import wire as w
from thatch.protocol.codec import encode
from thatch.protocol.kinds import KINDS, RESERVED, Fallback, Kind, Kinds, Peer, Sender
from thatch.protocol.versions import LIMITS, VERSION_MAX, VERSION_MIN
from thatch.where import lexer

SPACE = Space.parse("x int")
PINNED = dict(line.split() for line in (DATA / "formats" / "messages-1.txt").read_text().splitlines())
GROWN = dict(
    line.split() for at in (3, 4) for line in (DATA / "formats" / f"messages-{at}.txt").read_text().splitlines()
)
NEIGHBOUR = (Sender.NEIGHBOUR,)
OLD, NEW = Peer(False), Peer(True, VERSION_MAX)


class Hint(m.Message, frozen=True, tag="hint", array_like=True):
    text: str


class Narrow(m.Sequenced, frozen=True, tag="Narrow", array_like=True):
    """Something that a newer version says more exactly."""

    id: str
    where: str
    but: str


class Vow(m.Sequenced, frozen=True, tag="Vow", array_like=True):
    """Something for which nothing wider can be said."""


LATER = Kinds(
    (
        *KINDS.by_tag.values(),
        Kind(Hint, NEIGHBOUR, VERSION_MAX + 1, None),
        Kind(Narrow, NEIGHBOUR, VERSION_MAX + 1, lambda each: m.Subscribe(each.seq, each.id, each.where)),
        Kind(Vow, NEIGHBOUR, VERSION_MAX + 1),
    )
)


# --- The registry -----------------------------------------------------------------------------------------------------


def test_every_kind_that_is_read_is_registered_under_its_tag() -> None:
    read = {kind for union in (w.FromClient, w.FromNode, w.FromNeighbour) for kind in get_args(union)}
    assert {kind.struct for kind in KINDS.by_tag.values()} == read
    for sender, union in zip(Sender, (w.FromClient, w.FromNode, w.FromNeighbour), strict=True):
        sends = {kind.struct for kind in KINDS.by_tag.values() if sender in kind.senders}
        assert sends <= set(get_args(union)), sender


def test_no_tag_is_missing_or_used_again() -> None:
    never = {"LinkUp", "LinkDown", "Tick", "Persisted"}
    tags = {tag for tag in PINNED if tag != "frame"}
    assert {tag for tag, kind in KINDS.by_tag.items() if kind.since == VERSION_MIN} == tags - never
    local = (m.LinkUp, m.LinkDown, m.Away, m.Attached, m.Retune, m.Tick, m.Persisted, m.UnknownKind)
    assert {each.__struct_config__.tag for each in local} == RESERVED
    for kind in KINDS.by_tag.values():
        assert kind.is_ignorable is (kind.fallback is None) and not (kind.is_ignorable and _is_numbered(kind))
        if callable(kind.fallback):
            fields = kind.struct.__struct_fields__
            assert fields[0] == "seq", "what goes in its place has the same number, or answers the same one"
    with pytest.raises(ValueError, match="'Flush' is taken"):
        Kinds([Kind(m.Flush, NEIGHBOUR), Kind(m.Flush, NEIGHBOUR)])
    with pytest.raises(ValueError, match="'Tick' is taken"):
        Kinds([Kind(m.Tick, NEIGHBOUR)])
    with pytest.raises(ValueError, match="must be understood, and has no fallback"):
        Kinds([Kind(Vow, NEIGHBOUR, fallback=None)])
    with pytest.raises(ValueError, match="may be ignored"):
        Kinds([Kind(Hint, NEIGHBOUR, fallback=Fallback.REFUSE)])


def _is_numbered(kind: Kind) -> bool:
    return issubclass(kind.struct, m.Sequenced)


def test_fields_come_later_only_at_the_end_and_are_empty_by_default() -> None:
    for tag, kind in KINDS.by_tag.items():
        fields, added = kind.struct.__struct_fields__, kind.struct.added
        assert list(fields[len(fields) - len(added) :]) == list(added)
        assert list(added.values()) == sorted(added.values()) and all(kind.since < each for each in added.values())
        written = msgspec.msgpack.decode(bytes.fromhex(PINNED[tag])) if kind.since == VERSION_MIN else None
        assert written is None or len(written) == 1 + len(fields) - len(added), "no field of version 2 has gone"


def test_what_was_added_keeps_its_bytes_and_is_left_out_for_old_peers() -> None:
    grown = {
        "Hello": m.Hello(
            "B1", 7, "{}", False, 2, ("B1", "B2"), True, "abc", 3, 2, {"digest": "none", "kinds": ["Narrow"]}
        ),
        "Refused": m.Refused(7 << 32 | 1, "s", "no", "subscriptions", "clause"),
        "Standing": w.DurableStatus("alerts", "price < 20", "refused", "why", "disk_full"),
    }
    grown["Digest"] = m.Digest(7 << 32 | 1, 2, (1, 2**64 - 1), (0, 3), bytes(range(16)), (1, 0), (0, 2))
    grown["Done"] = w.Ack("alerts", 2**40 + 1, "life1")
    grown["Received"] = w.Received(2**40 + 2, 2**40 + 1)
    lives = {1: "life1", 2: "life2"}
    grown["Resume"] = w.Resume(
        "store1", "store2", 2**40, lives, ("life2",), {"other": 2**40 + 3}, "other", {"life1": 5}, "life2", 1.5, 2.5
    )
    assert grown.keys() == {tag for tag, kind in KINDS.by_tag.items() if kind.struct.added}
    for tag, message in grown.items():
        assert encode(message).hex() == GROWN[tag] and KINDS.readable(message, NEW) == message
        short = KINDS.readable(message, OLD)
        assert short is not None and len(msgspec.msgpack.decode(encode(short))) == 1 + len(
            message.__struct_fields__
        ) - len(message.added)


def test_clauses_within_the_limits_are_read() -> None:
    for limits in LIMITS.values():
        assert limits.clause_characters_max <= lexer.CLAUSE_SIZE_MAX and limits.terms_max <= 1_024


# --- What a peer gets -------------------------------------------------------------------------------------------------


def test_a_kind_that_must_be_understood_goes_only_to_peers_that_announced_it() -> None:
    narrow, wide = Narrow(7, "s", "x < 5", "x = 3"), m.Subscribe(7, "s", "x < 5")
    for peer in (OLD, NEW):
        assert LATER.readable(narrow, peer) == wide
        with pytest.raises(PeerError, match=f"this link needs 'Vow', of version {VERSION_MAX + 1}") as caught:
            LATER.readable(Vow(7), peer)
        assert caught.value.code == "version"
    by_name = NEW.greeted(LATER.agreed(m.Hello("B2", 1, "", version_max=9, capabilities={"kinds": ["Narrow", "hint"]})))
    assert LATER.readable(narrow, by_name) is narrow and LATER.readable(
        Vow(7), msgspec.structs.replace(NEW, version=VERSION_MAX + 1)
    )
    rigid = OLD.greeted(LATER.agreed(m.Hello("B2", 1, "", version_max=9, capabilities={"kinds": ["Narrow"]})))
    assert LATER.readable(narrow, rigid) == wide, "nothing that came later goes to a peer whose transport is rigid"


def test_a_kind_that_may_be_ignored_goes_to_all_that_skip_what_they_do_not_know() -> None:
    assert LATER.readable(Hint("x"), OLD) is None and LATER.readable(Hint("x"), NEW) == Hint("x")


# --- What comes -------------------------------------------------------------------------------------------------------


def test_unknown_kinds_in_a_frame() -> None:
    skipped: list[str] = []
    frames = w.Frames(SPACE, w.FromNeighbour, skipped=skipped.append)
    flush, more = encode(m.Flush(7)), encode(m.Flush(9))
    hints = [encode(Hint("x")), msgspec.msgpack.encode(["hint"]), msgspec.msgpack.encode(["x-1", {"a": [1]}, 2])]
    assert frames.decode(w.frame([hints[0], flush, *hints[1:], more])) == [m.Flush(7), m.Flush(9)]
    assert skipped == ["hint", "hint", "x-1"]
    unknown = [["Vow", 8], ["Vow"], ["Vow", "text", 9], ["Vow", -1], ["Éclair", 2**64 - 1], ["Ack", "id", 5]]
    came = frames.decode(w.frame([flush, *map(msgspec.msgpack.encode, unknown)]))
    assert came == [
        m.Flush(7),
        m.UnknownKind(8, "Vow"),
        m.UnknownKind(0, "Vow"),
        m.UnknownKind(0, "Vow"),
        m.UnknownKind(0, "Vow"),
        m.UnknownKind(2**64 - 1, "Éclair"),
        m.UnknownKind(0, "Ack"),
    ]


@pytest.mark.parametrize(
    "part",
    [b"\x90", b"\xc0", b"\xa4hint", b"\x91\x01", b"\x91\xa0", b"\x91\xd9\x41" + b"x" * 65, b"\x92\xa5Flush\xa1x"]
    + [b"\x92\xa4hint" + deep for deep in (b"\x91" * 200_000, b"\x81\xa1a" * 200_000, b"\xdd\xff\xff\xff\xff")],
    ids=lambda part: part[:12].hex(),
)
def test_what_is_no_message_of_any_version_is_the_peers_fault(part: bytes) -> None:
    with pytest.raises(PeerError, match="not a frame of this protocol"):
        w.Frames(SPACE, w.FromNeighbour).decode(w.frame([encode(m.Flush(7)), part]))
