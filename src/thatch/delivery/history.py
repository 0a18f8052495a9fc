"""The lives of a store. Each start draws one; the number of an event means something only within the life that counts.

    number = ordinal of the life << 40 | count of the stream in this life, from 1

    lives     1 a   2 b   3 c  4 d                      the store goes on
                      └─ backup ─ restore ─ 3 e  4 f     a backup of life b was restored: e takes the place of c

Two stores that have a life in common were one store then. A number of life c says nothing to a store with the lives
a, b, e; its ordinal, 3, is another life there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from thatch.delivery.journal import LifeRow, NeighbourRow
from thatch.errors import PeerError
from thatch.protocol.wire import Resume

LIFE_SHIFT = 40
LIFE_BYTES = 16
LIVES_SENT = 64  # at least, of those before the present one
RESTORES_MAX = 10_000  # that a store says it has had, and that are known of a neighbour's
# Why a life began: as usual, or in the past. After "restore" stands the mark that `thatch admin restore` has drawn: of
# two copies of one restored file, one is admitted. If there is none, the id of the life takes its place.
START, RESTORE, ROLLBACK = "start", "restore", "rollback"
KNOWN, ACCEPTED, FORGOTTEN = "known", "accepted", "forgotten"  # states of a neighbour
ACCEPTING = "accepting"  # by an operator: the next store that comes under the name is admitted, whatever it is


def ordinal_of(number: int) -> int:
    return number >> LIFE_SHIFT


def derived_life(store: str, ordinal: int) -> str:
    """The id of a life from before stores drew them: the same on both sides of a link.

    >>> derived_life("a", 1) == derived_life("a", 1) != derived_life("a", 2)
    True
    """
    return blake2b(f"{store} {ordinal}".encode(), digest_size=LIFE_BYTES).hexdigest()


def next_life(
    lives: Sequence[LifeRow],
    id: str,
    now: float,
    *,
    noted: str = "",
    copied_at: float | None = None,
    restored: str = "",
    kept_at: float = 0.0,
) -> LifeRow:
    """The life that begins now. `noted`: the newest life that the file beside the store names; `copied_at`: when the
    backup was made that this store is; `restored`: the mark of a restore by an operator; `kept_at`: of the last event
    that it keeps."""
    ordinal = lives[-1].ordinal + 1 if lives else 1
    is_behind = bool(noted and lives) and all(each.id != noted for each in lives)  # a new store begins anew
    if copied_at is None and not is_behind and not restored:
        return LifeRow(ordinal, id, now, START, None)
    last = max([kept_at, *(each.at for each in lives)])
    cause = f"{RESTORE} {restored}" if restored else ROLLBACK
    return LifeRow(ordinal, id, now, cause, last if copied_at is None else copied_at)


def _mark_of(row: LifeRow) -> str:
    """Of the restore that a life began with; empty if it began in another way."""
    cause, _, mark = row.cause.partition(" ")
    return (mark or row.id) if cause == RESTORE else ""


class Rollback(NamedTuple):
    """A life that began in the past: what was acknowledged from `since` to `at` may be missing."""

    life: str
    since: float
    at: float


class History:
    """The lives of a store, in order; the last one is the present."""

    def __init__(self, lives: Iterable[LifeRow]) -> None:
        self._rows = {each.ordinal: each for each in lives}
        self._ordinals = {each.id: each.ordinal for each in self._rows.values()}
        self.present = self._rows[max(self._rows)]

    @property
    def first_number(self) -> int:
        """What the numbers of the present life follow."""
        return self.present.ordinal << LIFE_SHIFT

    def __contains__(self, life: str) -> bool:
        return life in self._ordinals

    def ordinal(self, life: str) -> int:
        """0 if the store does not have this life."""
        return self._ordinals.get(life, 0)

    def life_of(self, number: int) -> str:
        """The life that counted a number; empty if there is none."""
        row = self._rows.get(ordinal_of(number))
        return "" if row is None else row.id

    def since(self, knows: str, oldest: int) -> dict[int, str]:
        """What a neighbour is told: by ordinal, the last lives, and all since the one that it knows and since that of
        the oldest number that is kept for it."""
        first = min(self.present.ordinal - LIVES_SENT, self.ordinal(knows), ordinal_of(oldest))
        return {ordinal: row.id for ordinal, row in self._rows.items() if ordinal >= first}

    def last_of(self, numbers: Mapping[str, int]) -> dict[str, int]:
        """Those of the last lives, of numbers by life."""
        lives = sorted((life for life in numbers if life in self), key=self.ordinal)
        return {life: numbers[life] for life in lives[-LIVES_SENT:]}

    @property
    def restored(self) -> tuple[str, ...]:
        """The marks of its restores, the last ones."""
        return tuple(mark for row in self._rows.values() if (mark := _mark_of(row)))[-RESTORES_MAX:]

    @property
    def last_rollback(self) -> LifeRow | None:
        """The last life that began in the past."""
        return next((each for each in reversed(self._rows.values()) if each.since is not None), None)

    def rollbacks_after(self, life: str) -> list[Rollback]:
        """Of the lives that followed one, those that began in the past; of all, if the store does not have it."""
        first = self.ordinal(life)
        rows = [row for row in self._rows.values() if row.ordinal > first]
        return [Rollback(row.id, row.since, row.at) for row in rows if row.since is not None]

    def note_rollback(self, message: Resume) -> LifeRow:
        """The present life began in the past: a neighbour knows more. From when on something is missing is known no
        better than that it was not before the last life that the neighbour knows, too."""
        known = (message.known, *message.holds)
        past = [row for row in self._rows.values() if row.ordinal < self.present.ordinal] or [self.present]
        since = max((row.at for row in past if row.id in known), default=past[0].at)
        self.present = self.present._replace(cause=ROLLBACK, since=since)
        self._rows[self.present.ordinal] = self.present
        return self.present

    def lacks(self, message: Resume) -> bool:
        """Whether a neighbour knows a life that is not here: this store has lost some of what it knew itself."""
        return bool(message.known) and message.known not in self

    def is_behind(self, message: Resume, taken: Mapping[str, int]) -> bool:
        """Whether a neighbour knows more of this store than it knows itself: a life that it does not have, or that it
        held, on disk, what it does not hold. One that began in the past itself is no witness. `taken`: what came from
        the neighbour, by its lives."""
        if message.asks or not message.known:
            return False
        last = last_of(message.confirmed, message.lives)
        return self.lacks(message) or message.confirmed.get(last, 0) > taken.get(last, 0)


def last_of(numbers: Mapping[str, int], lives: Mapping[int, str]) -> str:
    """Of the lives that there are numbers of, the last one; empty if there is none."""
    return next((lives[each] for each in sorted(lives, reverse=True) if lives[each] in numbers), "")


def missing(wanted: Mapping[str, int], there: Mapping[str, int], lives: Mapping[int, str]) -> int:
    """How many events are not there any more, of those that were, by life."""
    ordinals = {id: ordinal for ordinal, id in lives.items()}
    first = min((ordinals[life] for life in there if life in ordinals), default=0)  # of the lives before little is kept
    count = 0
    for life, number in wanted.items():
        ordinal = ordinals.get(life, -1)
        if ordinal >= first:
            start, end = ordinal << LIFE_SHIFT, (ordinal + 1 << LIFE_SHIFT) - 1  # whatever a peer says
            count += max(0, min(number, end) - max(there.get(life, 0), start))
    return count


def check_admitted(row: NeighbourRow | None, message: Resume, own: History) -> None:
    """Refuse a neighbour whose store is not the one that is known under its name, or has not lived on from where it was
    known. If this store, of `own` history, went back to the past, it knew the neighbour too long ago to judge."""
    if row is None or row.state == ACCEPTING:
        return
    if row.store and row.store != message.store:
        raise PeerError(
            f"{row.name!r} has another store than the one that is known here; if that is right, run `thatch admin "
            f"accept {row.name}` here",
            code="store",
        )
    if not row.life or not message.lives or row.life in message.lives.values() or own.lacks(message):
        return
    if not set(message.restored).difference(row.restored.split()):
        raise PeerError(
            f"the store of {row.name!r} is an old copy, or another copy of it is in use: it does not have the life "
            f"that is known here; if it is the one to go on with, run `thatch admin accept {row.name}` here",
            code="history",
        )


def known_after(row: NeighbourRow | None, name: str, message: Resume) -> NeighbourRow:
    """What is known of a neighbour that was admitted."""
    if row is None or row.state == FORGOTTEN:
        row = NeighbourRow(name, KNOWN)
    restored = dict.fromkeys((*row.restored.split(), *message.restored))
    return row._replace(
        state={FORGOTTEN: KNOWN, ACCEPTING: ACCEPTED}.get(row.state, row.state),
        store=message.store,
        life=message.lives[max(message.lives)] if message.lives else row.life,
        knows=message.known or row.knows,
        restored=" ".join([*restored][-RESTORES_MAX:]),
    )
