"""Every kind of message that travels: its tag, since which version, who sends it, and what a peer gets that does not
know it.

A kind that must be understood is sent only to a peer that announced it: by its version, or by name among its `kinds`.
Others get the fallback, which says something wider; or there is none, and the link is refused. A kind that may be
ignored goes to every peer that skips what it does not know, and is left out for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import msgspec

from thatch.errors import PeerError
from thatch.protocol import messages as m
from thatch.protocol import wire as w
from thatch.protocol.codec import rigid
from thatch.protocol.versions import FLUSHES, RIGID, VERSION_MAX, VERSION_MIN, Announced, agreed

# Tags of what never travels, or of kinds that are no more: no other kind takes them.
RESERVED = frozenset({"LinkUp", "LinkDown", "Away", "Attached", "Retune", "Tick", "Persisted", "?"})


class Sender(Enum):
    CLIENT = "client"  # to its node
    NODE = "node"  # to a client
    NEIGHBOUR = "neighbour"  # to another node


class Fallback(Enum):
    REFUSE = "the link is refused"


class Kind(msgspec.Struct, frozen=True):
    struct: type[m.Message]
    senders: tuple[Sender, ...]
    since: int = VERSION_MIN
    # For a peer that did not announce it: something wider, under the same number. None for kinds that may be ignored.
    fallback: Fallback | Callable[[Any], m.Message] | None = Fallback.REFUSE

    @property
    def tag(self) -> str:
        return str(self.struct.__struct_config__.tag)

    @property
    def is_ignorable(self) -> bool:
        return w.is_ignorable(self.tag)


class Kinds:
    """By class and by tag."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._of: dict[type[m.Message], Kind] = {}
        self.by_tag: dict[str, Kind] = {}
        for kind in kinds:
            _check_kind(kind)
            if kind.tag in self.by_tag or kind.tag in RESERVED:
                raise ValueError(f"tag {kind.tag!r} is taken: tags are never used again")
            self._of[kind.struct] = self.by_tag[kind.tag] = kind

    def optional(self) -> frozenset[str]:
        """Tags of kinds that a peer of the lowest version may announce by name."""
        return frozenset(each.tag for each in self.by_tag.values() if each.since > VERSION_MIN)

    def readable(self, message: m.Message, peer: Peer) -> m.Message | None:
        """A message as a peer can read it; None if it is left out."""
        kind = self._of[type(message)]
        if kind.is_ignorable:
            return message if peer.is_extensible else None
        if kind.since > peer.version and kind.tag not in peer.kinds:
            if not callable(kind.fallback):
                raise PeerError(
                    f"this link needs {kind.tag!r}, of version {kind.since} of the protocol; the peer speaks version "
                    f"{peer.version}",
                    code="version",
                )
            return self.readable(kind.fallback(message), peer)
        return rigid(message) if message.added and not peer.is_extensible else message

    def agreed(self, hello: m.Hello) -> Announced:
        """What the sender of a greeting and this side have in common."""
        return agreed(hello.name, hello.version, hello.version_max, hello.capabilities, self.optional())


class Peer(msgspec.Struct, frozen=True):
    """What the other end of a connection can read."""

    is_extensible: bool  # the transport says so, before the first message
    version: int = VERSION_MIN
    kinds: frozenset[str] = frozenset()

    def greeted(self, announced: Announced) -> Peer:
        """It has greeted."""
        version = announced.version if self.is_extensible else min(announced.version, RIGID)
        return Peer(self.is_extensible, version, announced.kinds if self.is_extensible else frozenset())


def _check_kind(kind: Kind) -> None:
    is_numbered = issubclass(kind.struct, m.Sequenced)
    if kind.is_ignorable and (is_numbered or kind.fallback is not None):
        raise ValueError(f"{kind.tag!r} may be ignored: it has no sequence number and no fallback")
    if not kind.is_ignorable and kind.fallback is None:
        raise ValueError(f"{kind.tag!r} must be understood, and has no fallback")
    if not VERSION_MIN <= kind.since <= VERSION_MAX + 1:
        raise ValueError(f"{kind.tag!r} is of version {kind.since}")


_CLIENT, _NODE, _NEIGHBOUR = Sender
_EITHER = (_CLIENT, _NEIGHBOUR)
KINDS = Kinds(
    (
        Kind(m.Hello, (_CLIENT, _NODE, _NEIGHBOUR)),
        Kind(m.Subscribe, _EITHER),
        Kind(m.Replace, _EITHER),
        Kind(m.Unsubscribe, _EITHER),
        Kind(m.Advertise, _EITHER),
        Kind(m.Unadvertise, _EITHER),
        Kind(m.Extend, (_NEIGHBOUR,)),
        Kind(m.Grow, (_NEIGHBOUR,), 5, lambda grow: m.Extend(grow.seq, grow.space, grow.opened)),
        Kind(m.Digest, (_NODE, _NEIGHBOUR)),
        Kind(m.Page, (_NEIGHBOUR,), 5),  # an older neighbour gets it all in `Synced`
        Kind(m.Synced, _EITHER),
        Kind(m.Flush, _EITHER),
        Kind(m.Publish, (_CLIENT,)),
        Kind(m.Accepted, (_NODE, _NEIGHBOUR)),
        Kind(m.Settled, (_NODE, _NEIGHBOUR)),
        Kind(m.Flushed, (_NODE, _NEIGHBOUR), FLUSHES, lambda flushed: m.Settled(flushed.seq)),
        Kind(m.Refused, (_CLIENT, _NODE, _NEIGHBOUR)),
        Kind(w.Event, (_NODE,)),
        Kind(w.DurableSubscribe, (_CLIENT,)),
        Kind(w.DurableCancel, (_CLIENT,)),
        Kind(w.DurableStatus, (_NODE,)),
        Kind(w.DurableEvent, (_NODE,)),
        Kind(w.Ack, (_CLIENT,)),
        Kind(w.Refill, (_CLIENT,), 5),
        Kind(w.Published, (_NODE,)),
        Kind(w.Notice, (_NODE,)),
        Kind(w.Resume, (_NEIGHBOUR,)),
        Kind(w.Forward, (_NEIGHBOUR,)),
        Kind(w.Received, (_NEIGHBOUR,)),
        Kind(w.Gap, (_NEIGHBOUR,), 5, None),
        Kind(w.Lost, (_NODE,), 5, None),
        Kind(w.Returned, (_NEIGHBOUR,), 4),
        Kind(m.SettledExcept, (_NODE, _NEIGHBOUR), 5, None),
        Kind(m.Durable, (_NEIGHBOUR,), 5),
    )
)
