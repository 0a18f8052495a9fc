"""Who may come. A greeting is judged once, by role and name, before anything is kept: one that is refused leaves no
link, no timer and no record.

    overlay port   Hello ─▶ a broker, with a name that is expected ─▶ Resume ─▶ its store, its life ─▶ LinkUp
    client port    Hello ─▶ a client, with a name that no neighbour has ─▶ LinkUp

A neighbour is expected if the settings name it, as one to dial or to accept, or if an operator has accepted it. The
names of clients and of neighbours are spaces of their own: a client cannot have the name of a neighbour that is
expected or was met, whether it is there or away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from thatch.delivery.history import ACCEPTED, ACCEPTING
from thatch.errors import Code, PeerError, shown
from thatch.protocol import wire
from thatch.protocol.ids import check_name, is_name
from thatch.protocol.kinds import KINDS
from thatch.protocol.messages import Hello, Message

NOTED_SECONDS = 60.0  # between two lines of the log about peers that are refused for one reason


class Doors:
    def __init__(
        self, name: str, dialled: Collection[str], accepted: Collection[str], admitted: Collection[str]
    ) -> None:
        """`name` of the broker; those that it dials, those that the settings accept, and those that an operator has."""
        self._name, self._dialled, self._accepted = name, frozenset(dialled), frozenset(accepted)
        self._admitted = set(admitted)
        self._lost: frozenset[str] = frozenset()

    def is_expected(self, neighbour: str) -> bool:
        return neighbour in self._dialled or neighbour in self._accepted or neighbour in self._admitted

    def admit(self, neighbour: str) -> None:
        """An operator accepts it."""
        self._admitted.add(neighbour)

    def forget(self, neighbour: str) -> None:
        """An operator forgets it: it may come only if the settings say so."""
        self._admitted.discard(neighbour)

    def give_up(self, lost: Collection[str]) -> None:
        """These are lost, and others are in their place: they may not come."""
        self._lost = frozenset(lost)

    def is_lost(self, neighbour: str) -> bool:
        return neighbour in self._lost

    @property
    def expected(self) -> frozenset[str]:
        return self._dialled | self._accepted | self._admitted

    def why_expected(self, neighbour: str) -> str:
        if neighbour in self._dialled:
            return "dialled"
        if neighbour in self._accepted:
            return "settings"
        return "operator" if neighbour in self._admitted else "not expected"

    def check_client(self, message: Message, was_met: bool) -> Hello:
        """The greeting of a client; an error if it cannot come in. `was_met`: there is a neighbour of its name."""
        if not isinstance(message, Hello) or not message.is_client:
            raise PeerError(f"a client begins with Hello, not with {_said(message)}")
        check_name(message.name)
        if was_met or self.is_expected(message.name):  # also one that is away: what is kept for it is its own
            raise PeerError(f"{message.name!r} is the name of a neighbour of this broker, not of a client", code="name")
        return message

    def check_neighbour(self, message: Message, dialled: str = "") -> Hello:
        """The greeting of a neighbour; an error if it cannot come in. `dialled`: who it should be."""
        if not isinstance(message, Hello) or message.is_client:
            raise PeerError(f"a neighbour begins with Hello, not with {_said(message)}")
        name = message.name
        check_name(name)
        KINDS.agreed(message)  # without a common version nothing that follows can be read
        if dialled and name != dialled:
            raise PeerError(f"link {dialled!r}: the peer calls itself {name!r}", code="name")
        if name == self._name:
            raise PeerError(f"{name!r} is the name of this broker itself", code="name")
        if name in self._lost:
            raise PeerError(
                f"{name!r} was given up as lost by broker {self._name!r}, and others are attached in its place: it may "
                f"come again after `thatch admin forget {name}` there",
                code="unaccepted",
            )
        if not self.is_expected(name):
            raise PeerError(
                f"broker {self._name!r} does not expect a neighbour {name!r}: name it there in the setting `accept`, "
                f"or say `thatch admin accept {name}`",
                code="unaccepted",
            )
        return message


def claimed_name(message: Message) -> str:
    """Who a peer says that it is, for the log, whatever it says."""
    if not isinstance(message, Hello):
        return "a peer"
    return message.name if is_name(message.name) else shown(message.name)


def _said(message: Message) -> str:
    if isinstance(message, Hello):
        return "that of a client" if message.is_client else "that of a broker"
    return type(message).__name__


class Identity(NamedTuple):
    """Who is behind a connection, beyond the name."""

    store: str
    life: str  # empty if it does not say: before version 4

    @classmethod
    def of(cls, resume: wire.Resume) -> Identity:
        return cls(resume.store, resume.lives[max(resume.lives)] if resume.lives else "")


class Greeting:
    """What a neighbour says first, `Hello` and `Resume`: held until both are there, so that nothing of a peer that is
    refused has come into the broker."""

    def __init__(self, doors: Doors, dialled: str = "") -> None:
        self._doors, self._dialled = doors, dialled
        self._hello: Hello | None = None

    def take(self, message: Message) -> tuple[Hello, wire.Resume] | None:
        """Both, once they have come."""
        if isinstance(message, wire.Resume) and self._hello is not None:
            return self._hello, message
        if self._hello is not None and not isinstance(message, Hello):
            raise PeerError(f"after Hello comes Resume, not {type(message).__name__}")
        self._hello = self._doors.check_neighbour(message, self._dialled)  # a later one says more
        return None


def check_rival(name: str, newcomer: Identity, connected: Identity) -> None:
    """Refuse a newcomer that is not the one who is connected under this name. One who comes again over another
    connection takes the place of the old one; a broker that was started again waits until its old connection has
    ended, which a heartbeat finds out."""
    if newcomer != connected:
        raise PeerError(
            f"another broker is connected as {name!r}, from another store or another run of it: each broker has a "
            "name, and a store, of its own",
            code="name",
        )


class Refusal(NamedTuple):
    """Peers that were refused for one reason."""

    total: int
    name: str  # of the last one
    reason: str
    at: float


class Refusals:
    """Whom the doors have refused, by reason: bounded, whatever peers do."""

    def __init__(self) -> None:
        self.by_code: dict[Code, Refusal] = {}
        self._logged: dict[Code, tuple[float, int]] = {}  # when, and how many there had been

    def note(self, code: Code, name: str, reason: str, now: float) -> int:
        """How many such refusals the log does not have yet, with this one; 0 if it is not time for a line."""
        count = self.by_code[code].total + 1 if code in self.by_code else 1
        self.by_code[code] = Refusal(count, name[:80], reason, now)
        at, logged = self._logged.get(code, (now - NOTED_SECONDS, 0))
        if 0 <= now - at < NOTED_SECONDS:
            return 0
        self._logged[code] = now, count
        return count - logged


def expected_of(neighbours: Mapping[str, str]) -> set[str]:
    """The names of those that an operator has accepted, of states by name."""
    return {name for name, state in neighbours.items() if state in (ACCEPTED, ACCEPTING)}
