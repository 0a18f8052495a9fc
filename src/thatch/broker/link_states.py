"""The states of a link: what each input does in each of them, and which state follows. `Link` moves by this table
alone, and docs/link-states.svg is drawn from it (scripts/link_states.py).

    down ── LinkUp ─▶ greeting ── Hello ─▶ met ── Digest ─▶ listing ── all is listed ─▶ synced

What differs is listed in pages, each after the neighbour has accepted the one before; most often there is one. The two
directions of a link are synced independently: `synced` is about what goes out. What comes in is compared, too,
by the digest that the broker sends when it meets the peer. Only neighbours are synced; a client's link stays at `met`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from thatch.protocol.messages import (
    Accepted,
    Advertise,
    Digest,
    Durable,
    Extend,
    Flush,
    Flushed,
    Grow,
    Hello,
    LinkDown,
    LinkUp,
    Page,
    Publish,
    Replace,
    Settled,
    SettledExcept,
    Subscribe,
    Synced,
    Unadvertise,
    Unsubscribe,
)


class LinkState(Enum):
    DOWN = "down"  # not connected, or hung up on
    GREETING = "greeting"  # connected: the peer has not said who it is
    MET = "met"  # the peer has greeted, and has not said what it holds
    LISTING = "listing"  # the neighbour is sent what it should hold, a page at a time
    SYNCED = "synced"  # the neighbour was sent all that it should hold, and gets every change as it happens


class LinkInput(Enum):
    LINK_UP = "LinkUp"
    LINK_DOWN = "LinkDown"
    HELLO = "Hello"
    DIGEST = "Digest"
    ACCEPTED = "Accepted"  # of a page
    LISTED = "all is listed"  # the page before the last was accepted, or there is only one
    NUMBERED = "Subscribe, …"  # every other message with a sequence number
    SETTLED = "Settled"  # and `Flushed`
    PUBLISH = "Publish"
    FAULT = "a fault"  # of the peer: a message that breaks a rule


class LinkAction(Enum):
    CONNECT = "begin a session, greet"
    END = "end the session"
    MEET = "send a digest"
    NOTE = "note what is new"
    LIST = "list what differs"
    GO_ON = "send the next page"
    SYNC = "send the last page"
    TAKE = "handle it"
    HANG_UP = "say why, hang up"
    IGNORE = "ignore it"


class LinkStep(NamedTuple):
    next: LinkState
    action: LinkAction


_DOWN, _GREETING, _MET, _LISTING, _SYNCED = LinkState
_I, _A = LinkInput, LinkAction
_ANY = {  # in every state
    _I.LINK_UP: LinkStep(_GREETING, _A.CONNECT),
    _I.LINK_DOWN: LinkStep(_DOWN, _A.END),
    _I.FAULT: LinkStep(_DOWN, _A.HANG_UP),
}
_EARLY = (  # from before a cut, or before the greeting
    _I.DIGEST,
    _I.ACCEPTED,
    _I.LISTED,
    _I.NUMBERED,
    _I.SETTLED,
    _I.PUBLISH,
)
STEPS: dict[LinkState, dict[LinkInput, LinkStep]] = {
    _DOWN: _ANY | {each: LinkStep(_DOWN, _A.IGNORE) for each in (_I.HELLO, *_EARLY)},
    _GREETING: _ANY | {_I.HELLO: LinkStep(_MET, _A.MEET)} | {each: LinkStep(_GREETING, _A.IGNORE) for each in _EARLY},
    _MET: _ANY
    | {
        _I.HELLO: LinkStep(_MET, _A.NOTE),
        _I.DIGEST: LinkStep(_LISTING, _A.LIST),
        _I.ACCEPTED: LinkStep(_DOWN, _A.HANG_UP),  # it was sent no page
        _I.LISTED: LinkStep(_MET, _A.IGNORE),
        _I.NUMBERED: LinkStep(_MET, _A.TAKE),
        _I.SETTLED: LinkStep(_MET, _A.IGNORE),  # of what was sent before `Synced`
        _I.PUBLISH: LinkStep(_MET, _A.TAKE),
    },
    _LISTING: _ANY
    | {
        _I.HELLO: LinkStep(_LISTING, _A.NOTE),
        _I.DIGEST: LinkStep(_DOWN, _A.HANG_UP),  # nobody asked for it
        _I.ACCEPTED: LinkStep(_LISTING, _A.GO_ON),
        _I.LISTED: LinkStep(_SYNCED, _A.SYNC),
        _I.NUMBERED: LinkStep(_LISTING, _A.TAKE),
        _I.SETTLED: LinkStep(_LISTING, _A.IGNORE),  # of what was sent before `Synced`
        _I.PUBLISH: LinkStep(_LISTING, _A.TAKE),
    },
    _SYNCED: _ANY
    | {
        _I.HELLO: LinkStep(_SYNCED, _A.NOTE),
        _I.DIGEST: LinkStep(_DOWN, _A.HANG_UP),  # nobody asked for it
        _I.ACCEPTED: LinkStep(_DOWN, _A.HANG_UP),  # no page waits for it
        _I.LISTED: LinkStep(_SYNCED, _A.IGNORE),
        _I.NUMBERED: LinkStep(_SYNCED, _A.TAKE),
        _I.SETTLED: LinkStep(_SYNCED, _A.TAKE),
        _I.PUBLISH: LinkStep(_SYNCED, _A.TAKE),
    },
}
INPUTS: dict[type, LinkInput] = {
    LinkUp: _I.LINK_UP, LinkDown: _I.LINK_DOWN, Hello: _I.HELLO, Digest: _I.DIGEST,
    Accepted: _I.ACCEPTED, Settled: _I.SETTLED, SettledExcept: _I.SETTLED, Flushed: _I.SETTLED, Publish: _I.PUBLISH,
    **dict.fromkeys(
        (Subscribe, Replace, Unsubscribe, Advertise, Unadvertise, Extend, Grow, Page, Synced, Flush, Durable),
        _I.NUMBERED,
    ),
}  # fmt: skip
