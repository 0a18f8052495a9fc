r"""An index over balls: which one holds this ball, and which does it hold?

The idea: ball (c, r) holds ball (c', r') if |c - c'| <= r - r'. A large set is a k-d tree over centres *and* radii,
whose nodes know the box around their centres and their least and largest radius: a node is left out if even its largest
ball, put at the nearest point of its box, does not reach. A small set is scanned by falling radius, as far as radii
suffice, and past random projections: |<u, c> - <u, c'>| <= |c - c'| for a unit vector u (projection, Proposition 2.4).

        r |  . large  . .         question (c', r'): only what lies above the cone r = r' + |c - c'| can hold it. Nodes
          | \  .  / .  .          are boxes in this picture, and all below the cone are left out. Radii that are all
          |  \   /   .            small (skewed ones mostly are) are boxes near the floor, which only the tip reaches.
          | . \ / .  . small
          +----c'------------ c

Differs from the paper: no range tree over 2k projections, which has billions of entries at k = 2 and n = 1,000,000
(ERRATA, projection). The bounding cubes of Proposition 2.2 are no filter of their own here, because the distance is
summed attribute by attribute and given up as soon as it is too large, which one attribute alone can do.

Errs: never. A candidate is whatever could hold in exact arithmetic, roundings included, and `Ball.holds` then decides.

Cost: O(log n) nodes for a ball that has a coverer, at d = 12 some hundred for one that has none; a build O(n log n).
Where the widest balls hold nearly everything, which skew brings about, one or two tests: they are tried first.
New balls wait in a tail, then become a part of their own, with the smaller parts merged into it (Bentley and
Saxe), so each is built into O(log n) parts. Removed ones keep their place, with radius NaN, until half of a part are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from thatch.cover.balltree import ABOVE, LEAF, RADIUS_MAX, RADIUS_MIN, UNSURE, WIDER, around_many, build, scan, search
from thatch.errors import CallerError, unknown
from thatch.region.ball import Ball
from thatch.space.arrays import Bools, Floats, Ints

FORMS = ("auto", "scan", "tree")
TAIL = 128  # new balls that wait before they become a part
WIDEST = 16  # balls of a tree that are tried before it
# Up to here the two answer alike (2 to 11 us from Python at d = 2 to 40). At 4,096 the tree takes 0.5 to 1 of the
# scan's time, at 16,384 0.3 to 1, with Pareto radii as with uniform ones: it splits radii too, so skew decides nothing.
TREE_MIN = 1_024
LIMITS = f"a ball of the index has a finite centre and a radius of 0 to {RADIUS_MAX!r}"


def random_vectors(attributes: int, count: int, orthonormal: bool, seed: int) -> Floats:
    """Random directions [count, attributes] of length 1, or a trifle less so that no projection is too long. No more
    than `attributes` of them can be orthogonal."""
    draw = np.random.default_rng([seed, attributes]).standard_normal((count, attributes))
    if orthonormal:
        draw = np.linalg.qr(draw[:attributes].T)[0].T
    return np.ascontiguousarray(draw / (np.linalg.norm(draw, axis=1, keepdims=True) * WIDER))


def is_indexed(ball: Ball) -> bool:
    """Whether an index takes it: others are rare, and only balls about the same centre hold them."""
    return 0 <= ball.radius <= RADIUS_MAX and all(map(math.isfinite, ball.centre))


def sure_margin(attributes: int) -> float:
    """Four times that of `Ball.holds`."""
    return (attributes + 8) * 2.0**-48


def surely_held(ball: Ball, rows: Floats) -> Bools:
    """Of many balls at once: True where `ball.holds` is, except inside four times its margin."""
    if not RADIUS_MIN <= ball.radius <= RADIUS_MAX:
        return np.zeros(len(rows), np.bool_)
    margin = sure_margin(len(ball.centre))
    with np.errstate(over="ignore"):  # what is too far to square is not held; what is too near is lost in the margin
        distances = np.sqrt(np.sum((rows[:, :-1] - ball.centre) ** 2, axis=1))
    return (np.maximum(rows[:, -1], RADIUS_MIN) + distances) * (1 + margin) <= ball.radius * (1 - margin)


class BallPart(NamedTuple):
    """Balls that were built together."""

    slots: Ints  # [n]: which balls these are
    rows: Floats  # [n, d + 1]: centres and radii, in the order of leaves or of falling radius
    bounds: Floats  # tree, [nodes, 2d + 2]: least centre and radius, largest centre and radius; none for a scan
    links: Ints  # tree, [nodes, 3]: first row, behind the last row, the first of two halves or -1
    widest: Ints  # tree, [WIDEST]: the rows with the largest radii, falling
    shadows: Floats  # scan, [n, vectors]: projections of the centres
    rising: Floats  # scan, [n]: radii with the sign turned, which removals leave alone
    norm: float  # of the largest centre
    removed: Ints  # [1]: how many of them

    @property
    def is_tree(self) -> bool:
        return len(self.links) > 0


class BallIndex:
    """Balls over one tuple of attributes, in slots.

    >>> index = BallIndex((0, 1))
    >>> wide, narrow = index.insert(Ball((0, 1), (0.0, 0.0), 5.0)), index.insert(Ball((0, 1), (3.0, 0.0), 1.0))
    >>> index.coverer(Ball((0, 1), (0.0, 2.0), 2.5)) == wide
    True
    >>> index.covered(Ball((0, 1), (3.0, 1.0), 2.5)) == [narrow]
    True
    """

    def __init__(
        self,
        attributes: tuple[int, ...],
        vectors: int = 2,
        orthonormal: bool = True,
        seed: int = 0,
        form: str = "auto",
        tail_max: int = TAIL,
    ) -> None:
        if form not in FORMS:
            raise CallerError(f"balls have {unknown('form', form, FORMS)}")
        if vectors < 0:
            raise CallerError(f"{vectors} projections: 0 or more")
        self.attributes = attributes
        self.form, self.tail_max = form, tail_max
        self.vectors = random_vectors(len(attributes), vectors, orthonormal, seed)
        d = len(attributes)
        self.rows: Floats = np.full((2 * tail_max, d + 1), np.nan)  # by slot: centre and radius; free ones are NaN
        self.parts: dict[int, BallPart] = {}  # by serial number; the largest first
        self._free: list[int] = []
        self._used = 0
        self._home: Ints = np.zeros(2 * tail_max, np.int64)  # by slot: the serial number of its part, -1 in the tail
        self._place: Ints = np.zeros(2 * tail_max, np.int64)  # by slot: the row in its part or in the tail
        self._tail: Floats = np.full((tail_max, d + 1), np.nan)
        self._tail_slots: list[int] = []
        self._serial = 0
        self._found: Ints = np.empty(2 * tail_max, np.int64)
        self._no_bounds: Floats = np.empty((0, 2 * d + 2))
        self._no_links: Ints = np.empty((0, 3), np.int64)
        self._no_rows: Ints = np.empty(0, np.int64)
        self._no_shadows: Floats = np.empty((0, 0))
        self._no_radii: Floats = np.empty(0)

    def __len__(self) -> int:
        return self._used - len(self._free)

    @property
    def slots(self) -> Ints:
        """The slots that hold a ball, ascending."""
        return np.flatnonzero(self.rows[: self._used, -1] >= 0)

    @property
    def nbytes(self) -> int:
        arrays = [array for part in self.parts.values() for array in part if isinstance(array, np.ndarray)]
        own = [self.rows, self._home, self._place, self._tail, self._found]
        return sum(array.nbytes for array in [*arrays, *own])

    def ball(self, slot: int) -> Ball:
        *centre, radius = self.rows[slot].tolist()
        return Ball(self.attributes, tuple(centre), radius)

    # --- Changes ---

    def insert(self, ball: Ball) -> int:
        """Put a ball into a slot. It is found by later questions, never by the one it came with."""
        if ball.attributes != self.attributes:
            raise CallerError(f"a ball over attributes {ball.attributes} among those over {self.attributes}")
        if not is_indexed(ball):
            raise CallerError(f"{ball}: {LIMITS}")
        if len(self._tail_slots) == self.tail_max:
            self._build(np.array(self._tail_slots, np.int64))
        slot, place = self._slots(1)[0], len(self._tail_slots)
        self.rows[slot] = self._tail[place] = (*ball.centre, ball.radius)
        self._home[slot], self._place[slot] = -1, place
        self._tail_slots.append(slot)
        return slot

    def insert_all(self, centres: Floats, radii: Floats) -> list[int]:
        """Put balls centres[n, d], radii[n] into slots."""
        rows = self._checked(centres, radii)
        slots = self._slots(len(rows))
        self.rows[slots] = rows
        if len(rows):
            self._build(np.array(self._tail_slots + slots, np.int64))
        return slots

    def _checked(self, centres: Floats, radii: Floats) -> Floats:
        """Balls as rows of centre and radius, checked."""
        rows = np.column_stack((centres, radii)).astype(np.float64)
        if rows.shape[1] != len(self.attributes) + 1:
            raise CallerError(f"centres of {rows.shape[1] - 1} attributes, not {len(self.attributes)}")
        if not (np.isfinite(rows).all() and (rows[:, -1] >= 0).all() and (rows[:, -1] <= RADIUS_MAX).all()):
            raise CallerError(LIMITS)
        return rows

    def remove(self, slot: int) -> None:
        if not (0 <= slot < self._used and self.rows[slot, -1] >= 0):
            raise CallerError(f"slot {slot} holds no ball")
        self.rows[slot, -1] = np.nan
        self._free.append(slot)
        place = int(self._place[slot])
        if self._home[slot] < 0:
            last = self._tail_slots.pop()
            if last != slot:
                self._tail_slots[place] = last
                self._tail[place] = self.rows[last]
                self._place[last] = place
            return
        serial = int(self._home[slot])
        part = self.parts[serial]
        part.rows[place, -1] = np.nan
        part.removed[0] += 1
        if 2 * part.removed[0] > len(part.slots):
            del self.parts[serial]
            self._build(part.slots[part.rows[:, -1] >= 0], with_tail=False)

    def _slots(self, count: int) -> list[int]:
        slots = [self._free.pop() for _ in range(min(count, len(self._free)))]
        fresh = count - len(slots)
        slots += range(self._used, self._used + fresh)
        self._used += fresh
        if self._used > len(self.rows):
            more = self._used + self._used // 4 - len(self.rows)
            self.rows = np.concatenate((self.rows, np.full((more, self.rows.shape[1]), np.nan)))
            self._home, self._place, self._found = (
                np.concatenate((each, np.zeros(more, np.int64))) for each in (self._home, self._place, self._found)
            )
        return slots

    def _build(self, slots: Ints, with_tail: bool = True) -> None:
        """One part of these, which include the tail, and of every part that is not larger than what has come so far."""
        if with_tail:
            self._tail_slots.clear()
        for serial in reversed(list(self.parts)):
            part = self.parts[serial]
            if len(part.slots) - part.removed[0] > len(slots):
                break
            slots = np.concatenate((slots, part.slots[part.rows[:, -1] >= 0]))
            del self.parts[serial]
        if not len(slots):
            return
        rows = self.rows[slots]
        is_tree = self.form == "tree" or (self.form == "auto" and len(slots) >= TREE_MIN)
        part = self._tree(slots, rows) if is_tree else self._sorted(slots, rows)
        self._home[part.slots], self._place[part.slots] = self._serial, np.arange(len(slots))
        self.parts[self._serial] = part
        self._serial += 1
        # A part that shrank may be smaller than one behind it.
        self.parts = dict(sorted(self.parts.items(), key=lambda each: -len(each[1].slots)))

    def _tree(self, slots: Ints, rows: Floats) -> BallPart:
        n, width = rows.shape
        order, most = np.arange(n), 4 * (n // LEAF) + 3
        bounds, links = np.empty((most, 2 * width)), np.empty((most, 3), np.int64)
        used = build(rows, order, np.empty(n), bounds, links)
        rows = rows[order]
        few = min(n, WIDEST)
        widest = np.argpartition(rows[:, -1], n - few)[n - few :]
        widest = widest[np.argsort(-rows[widest, -1])]
        return BallPart(
            slots[order], rows, bounds[:used].copy(), links[:used].copy(), widest, self._no_shadows,
            self._no_radii, 0.0, np.zeros(1, np.int64),
        )  # fmt: skip

    def _sorted(self, slots: Ints, rows: Floats) -> BallPart:
        order = np.argsort(-rows[:, -1], kind="stable")
        rows = rows[order]
        centres = rows[:, :-1]
        with np.errstate(all="ignore"):
            norm = float(np.sqrt((centres * centres).sum(axis=1)).max())
            shadows = centres @ self.vectors.T
        return BallPart(
            slots[order], rows, self._no_bounds, self._no_links, self._no_rows, np.ascontiguousarray(shadows),
            -rows[:, -1], norm, np.zeros(1, np.int64),
        )  # fmt: skip

    # --- Questions ---

    def coverer(self, ball: Ball) -> int | None:
        """A slot whose ball holds this one, which may look at more attributes; None if there is none."""
        asked, answers, is_open = self._asked(ball)[None], np.empty(1, np.int64), False
        for part in self._parts():
            self._around(part, asked, sure_margin(len(ball.attributes)), answers)
            if answers[0] >= 0:
                return self._slot(part, int(answers[0]))
            is_open |= bool(answers[0] == UNSURE)
        return self._exactly(ball) if is_open else None

    def coverers(self, centres: Floats, radii: Floats) -> Ints:
        """The same of balls centres[n, d], radii[n] over the attributes of the index; -1 if there is none."""
        asked = self._checked(centres, radii)
        slots, open_ones = np.full(len(asked), -1, np.int64), np.arange(len(asked))
        unsure: set[int] = set()
        for part in self._parts():
            answers = np.empty(len(open_ones), np.int64)
            self._around(part, asked[open_ones], sure_margin(len(self.attributes)), answers)
            found = answers >= 0
            own = np.array(self._tail_slots, np.int64) if part is None else part.slots
            slots[open_ones[found]] = own[answers[found]]
            unsure.update(open_ones[answers == UNSURE].tolist())
            open_ones = open_ones[~found]
        for question in unsure.intersection(open_ones.tolist()):
            *centre, radius = asked[question].tolist()
            slot = self._exactly(Ball(self.attributes, tuple(centre), radius))
            slots[question] = -1 if slot is None else slot
        return slots

    def _exactly(self, ball: Ball) -> int | None:
        """A candidate was inside the rounding margin, where others may be too: look at all of them."""
        asked = self._asked(ball)
        for part in self._parts():
            for row in self._found[: self._candidates(part, asked, 1, len(self._found))].tolist():
                slot = self._slot(part, row)
                if self._holds(slot, ball):
                    return slot
        return None

    def _holds(self, slot: int, ball: Ball) -> bool:
        """`Ball.holds`, without making the ball in the usual case."""
        if ball.attributes != self.attributes:
            return self.ball(slot).holds(ball)
        *centre, radius = self.rows[slot].tolist()
        return ball.is_within(tuple(centre), radius)

    def covered(self, ball: Ball) -> list[int]:
        """All slots whose balls this one holds, ascending."""
        if ball.attributes != self.attributes:
            raise CallerError(f"a ball over attributes {ball.attributes} asks those over {self.attributes}")
        slots = self.inside(ball.centre, ball.radius)
        held = surely_held(ball, self.rows[slots])
        for position in np.flatnonzero(~held).tolist():
            held[position] = ball.holds(self.ball(int(slots[position])))
        return slots[held].tolist()

    def inside(self, centre: tuple[float, ...], radius: float) -> Ints:
        """The slots whose balls a ball may hold, ascending."""
        return self._all(np.array((*centre, radius)), -1)

    def around(self, centre: tuple[float, ...], radius: float) -> Ints:
        """The slots whose balls may hold a ball, ascending. The radius may be negative: how near is near enough."""
        return self._all(np.array((*centre, radius)), 1)

    def projected(self, ball: Ball, vectors: Floats | None = None) -> Ints:
        """The slots whose projections hold those of a ball, ascending: what the paper reports before any test."""
        vectors = self.vectors if vectors is None else vectors
        slots = self.slots
        asked = self._asked(ball)
        with np.errstate(all="ignore"):
            offsets = np.abs((self.rows[slots, :-1] - asked[:-1]) @ vectors.T)
        reach = self.rows[slots, -1] - asked[-1]
        return slots[(reach >= 0) & ~(offsets > (reach * WIDER)[:, None] + ABOVE).any(axis=1)]

    def _asked(self, ball: Ball) -> Floats:
        if ball.attributes == self.attributes:
            return np.array((*ball.centre, ball.radius))
        at = dict(zip(ball.attributes, ball.centre, strict=True))
        return np.array((*(at[index] for index in self.attributes), ball.radius))

    def _parts(self) -> list[BallPart | None]:
        """All parts; None is the tail."""
        return [*self.parts.values(), None] if self._tail_slots else list(self.parts.values())

    def _slot(self, part: BallPart | None, row: int) -> int:
        return self._tail_slots[row] if part is None else int(part.slots[row])

    def _all(self, asked: Floats, sign: int) -> Ints:
        found = []
        for part in self._parts():
            rows = self._found[: self._candidates(part, asked, sign, len(self._found))]
            found.append(np.array(self._tail_slots, np.int64)[rows] if part is None else part.slots[rows])
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _candidates(self, part: BallPart | None, asked: Floats, sign: int, most: int) -> int:
        """How many rows of a part were written to `_found`."""
        if part is None:
            return scan(
                self._tail, len(self._tail_slots), self._no_radii, self._no_shadows, 0.0, self.vectors, asked, sign,
                self._found, most,
            )  # fmt: skip
        if part.is_tree:
            return search(part.bounds, part.links, part.rows, asked, sign, self._found, most)
        return scan(
            part.rows, len(part.rows), part.rising, part.shadows, part.norm, self.vectors, asked, sign,
            self._found, most,
        )  # fmt: skip

    def _around(self, part: BallPart | None, asked: Floats, margin: float, answers: Ints) -> None:
        """Write to `answers` which row of a part surely holds each ball."""
        if part is None:
            around_many(
                self._tail, len(self._tail_slots), self._no_bounds, self._no_links, self._no_rows, self._no_radii,
                self._no_shadows, 0.0, self.vectors, asked, margin, self._found, answers,
            )  # fmt: skip
        else:
            around_many(
                part.rows, len(part.rows), part.bounds, part.links, part.widest, part.rising, part.shadows,
                part.norm, self.vectors, asked, margin, self._found, answers,
            )  # fmt: skip

    def check_invariants(self) -> None:
        slots = self.slots.tolist()
        assert len(slots) == len(self) and sorted({*slots, *self._free}) == list(range(self._used))
        assert len(set(self._free)) == len(self._free)
        live = set(self._tail_slots)
        assert len(live) == len(self._tail_slots) <= self.tail_max
        for place, slot in enumerate(self._tail_slots):
            assert self._home[slot] == -1 and self._place[slot] == place
            assert (self._tail[place] == self.rows[slot]).all()
        sizes = [len(part.slots) for part in self.parts.values()]
        assert sizes == sorted(sizes, reverse=True)
        for serial, part in self.parts.items():
            kept = np.flatnonzero(part.rows[:, -1] >= 0)
            assert len(part.slots) - len(kept) == part.removed[0] <= len(part.slots) / 2
            own = part.slots[kept]
            assert live.isdisjoint(own.tolist()) and len(set(own.tolist())) == len(own)
            live.update(own.tolist())
            assert (self._home[own] == serial).all() and (self._place[own] == kept).all()
            assert (part.rows[kept] == self.rows[own]).all()
            if part.is_tree:
                self._check_nodes(part)
                assert len(set(part.widest.tolist())) == min(WIDEST, len(part.slots))
            else:
                assert (np.diff(part.rising) >= 0).all() and (part.rising[kept] == -part.rows[kept, -1]).all()
                assert np.allclose(part.shadows[kept], part.rows[kept, :-1] @ self.vectors.T, equal_nan=True)
        assert live == set(slots)

    @staticmethod
    def _check_nodes(part: BallPart) -> None:
        width = part.rows.shape[1]
        leaves: NDArray[Any] = np.zeros(len(part.rows), np.int64)
        for node, (start, stop, child) in enumerate(part.links.tolist()):
            rows = part.rows[start:stop]
            rows = rows[rows[:, -1] >= 0]
            assert (rows >= part.bounds[node, :width]).all() and (rows <= part.bounds[node, width:]).all()
            if child < 0:
                leaves[start:stop] += 1
                assert stop - start <= LEAF
            else:
                assert part.links[child, 0] == start and part.links[child + 1, 1] == stop
                assert part.links[child, 1] == part.links[child + 1, 0]
        assert (leaves == 1).all()
