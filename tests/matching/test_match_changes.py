"""The contract of match indexes: regions come and go, views never change, threads read, and memory is given back."""

from __future__ import annotations

import gc
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from random import Random
from typing import Any

import numpy as np
import pytest

from helpers.cover_oracles import MIXED_SPACES, recode
from helpers.match_contract import NONE, boxes, clauses, filled, thinned, wrong_numbers, wrong_pairs
from helpers.match_oracles import (
    INT_MAX,
    INT_MIN,
    SEED,
    Coordinates,
    Ledger,
    Mask,
    Pairs,
    Pool,
    box_pool,
    inside,
    mixed_pool,
    pairs_by_force,
    scattered,
    telling_points,
)
from helpers.strategies import soaked
from thatch import Space
from thatch.errors import CallerError
from thatch.matching import MATCHERS
from thatch.matching.matcher import Matcher, View
from thatch.region.region import Region

# --- Regions come and go ----------------------------------------------------------------------------------------------


LIMIT = 6000  # numbers in play


@dataclass
class Mover:
    """Changes a matcher at random and keeps the books."""

    matcher: Matcher
    pool: Pool
    random: Random
    plain: tuple[Coordinates, Coordinates, Mask] | None = None  # boxes to add as arrays, and the events inside

    def __post_init__(self) -> None:
        self.ledger = Ledger(len(self.pool.events), LIMIT)

    def grow(self) -> None:
        count = self.random.choice((1, 2, 7, 60, 250, 500))
        free = [number for number in range(LIMIT) if number not in self.ledger.members]
        numbers = self.random.sample(free, min(count, len(free)))
        if self.plain is not None and self.random.random() < 0.7:
            low, high, mask = self.plain
            chosen = [self.random.randrange(len(low)) for _ in numbers]
            self.matcher.add_many(np.array(numbers, np.int64), (low[chosen], high[chosen]))
            self.ledger.add(numbers, mask[:, chosen])
            return
        chosen = [self.random.randrange(len(self.pool.regions)) for _ in numbers]
        if count < 10:
            for number, position in zip(numbers, chosen, strict=True):
                self.matcher.add(number, self.pool.regions[position])
        else:
            self.matcher.add_many(numbers, [self.pool.regions[position] for position in chosen])
        self.ledger.add(numbers, self.pool.mask[:, chosen])

    def shrink(self) -> None:
        members = list(self.ledger.members)
        count = min(len(members), self.random.choice((1, 5, 40, 300, 700)))
        kinds = (members[:count], members[len(members) - count :], self.random.sample(members, count))
        for number in self.random.choice(kinds):
            self.matcher.discard(number)
            self.ledger.discard(number)

    def clear(self) -> None:
        """All but a few."""
        for number in list(self.ledger.members)[3:]:
            self.matcher.discard(number)
            self.ledger.discard(number)

    def refuse(self) -> None:
        """A batch whose last number is taken."""
        taken = next(iter(self.ledger.members), -1)
        free = next(number for number in range(LIMIT) if number not in self.ledger.members)
        with pytest.raises(CallerError):
            self.matcher.add_many([free, taken], self.pool.regions[:2])

    def check(self, where: str) -> None:
        """All events in one batch, and one alone."""
        problem = wrong_pairs(self.matcher.match_batch(self.pool.table), self.ledger.pairs())
        assert not problem, f"{where}: {problem}"
        row = self.random.randrange(len(self.pool.events))
        problem = wrong_numbers(self.matcher.match(self.pool.events[row]), self.ledger.numbers_of(row))
        assert not problem, f"{where}, {self.pool.events[row]}: {problem}"
        assert len(self.matcher) == len(self.ledger.members), where
        for number in self.random.choices(range(LIMIT), k=10):
            assert (number in self.matcher) == (number in self.ledger.members), f"{where}: {number}"


@cache
def moving_boxes() -> tuple[Pool, tuple[Coordinates, Coordinates, Mask]]:
    """Unions of boxes to add as regions, and plain boxes to add as arrays."""
    space = Space.parse("a int not null 0..999, b int 0..999, c int not null, d double not null 0..1")
    rng = np.random.default_rng(SEED)
    axis = space.attributes[3].axis
    choices: list[Any] = [range(1000), range(-1, 1000), [INT_MIN, -5, 0, 5, 10**9, INT_MAX]]
    choices.append([axis.encode(at) for at in (0.0, 0.1, 0.5, 1.0)])
    ends = np.stack([rng.choice(np.array(each, np.int64), (2, 8000)) for each in choices], axis=-1)
    low, high = ends.min(axis=0), ends.max(axis=0)
    points = telling_points(rng, space, low[:40], high[:40])
    points = points[rng.permutation(len(points))[:120]]
    pool = box_pool(rng, space, (low, high), points)
    assert 0.02 < pool.mask.mean() < 0.5
    return pool, (low, high, inside(low, high, points))


@pytest.mark.parametrize("run", range(soaked(1, 2)))
def test_thousands_come_and_go(matcher_class: type[Matcher], run: int) -> None:
    """Arrays, regions, single ones and departures in any order; a view goes on to see its own moment."""
    pool, plain = moving_boxes()
    mover = Mover(matcher_class(pool.space), pool, Random(f"{SEED}/{run}"), plain)
    matcher, ledger, random = mover.matcher, mover.ledger, mover.random
    views: list[tuple[int, View, Pairs]] = []
    columns = pool.space.encode_batch(pool.table)
    most = 0
    for step in range(thinned(matcher_class, 25, soaked(70, 100))):
        where = f"{matcher.name}, run {run}, step {step}, {len(ledger.members)} members"
        if step % 40 == 30:
            mover.clear()
        elif random.random() < 0.7:
            mover.grow()
        else:
            mover.shrink()
        most = max(most, len(ledger.members))
        if step % 3 == 0:
            mover.check(where)
        if step % 10 == 0:
            mover.refuse()
            matcher.check_invariants()
            mover.check(where)
            views.append((step, matcher.view(), ledger.pairs()))
        if views and step % 4 == 0:
            taken, view, expected = random.choice(views)
            problem = wrong_pairs(view.match_points(columns), expected)
            assert not problem, f"{where}: the view of step {taken}: {problem}"
    for taken, view, expected in views:
        problem = wrong_pairs(view.match_points(columns), expected)
        assert not problem, f"{matcher.name}, run {run}: at the end the view of step {taken}: {problem}"
    assert most > 1000


@pytest.mark.parametrize("which", [1, 2])
def test_clauses_come_and_go_while_strings_move(matcher_class: type[Matcher], which: int) -> None:
    """Strings are recoded, and new ones mentioned, between any two operations."""
    text = MIXED_SPACES[which]
    pool = mixed_pool(text)
    space = pool.space
    mover = Mover(matcher_class(space), pool, Random(f"{SEED}/{text}"))
    matcher, ledger, random = mover.matcher, mover.ledger, mover.random
    moved = 0
    for step in range(thinned(matcher_class, soaked(12, 16), soaked(25, 40))):
        where = f"{matcher.name}, {text}, step {step}, {len(ledger.members)} members"
        mover.shrink() if random.random() < 0.35 else mover.grow()
        if random.random() < 0.4:
            view, expected = matcher.view(), ledger.pairs()
            space.where(f"name IN ('ab{step}', 'b{step}') OR name LIKE 'c{step}%'")
            if view.label_codes is space.label_codes:  # cut further, but numbered as before
                problem = wrong_pairs(view.match_points(space.encode_batch(pool.table)), expected)
                assert not problem, f"{where}: a view from before new strings: {problem}"
        if random.random() < 0.4:
            view = matcher.view()
            recode(space)
            moved += 1
            assert view.label_codes is not space.label_codes
            assert matcher.view().label_codes is space.label_codes
        if random.random() < 0.5:
            mover.check(where)
        if step % 12 == 0:
            matcher.check_invariants()
            mover.check(where)
    mover.check(f"{matcher.name}, {text}, at the end")
    assert moved > 3


# --- Views ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scattered", "every type", "watchlists"])
def test_a_view_never_changes(matcher_class: type[Matcher], name: str) -> None:
    """Not while everything that it shows goes, and others come under the same numbers."""
    case = boxes("4 attributes") if name == "scattered" else clauses(name)
    matcher = filled(matcher_class, case)
    empty, view = matcher_class(case.space).view(), matcher.view()
    columns, asked = case.space.encode_batch(case.table), case.regions[1]
    meeting = view.meeting(asked)
    later: list[View] = []
    more = range(10**6, 10**6 + thinned(matcher_class, soaked(100, 300), soaked(700, 1500)))
    for _ in range(3):
        for number in case.numbers.tolist():
            matcher.discard(number)
        assert len(matcher) == 0
        later.append(matcher.view())
        matcher.add_many(case.numbers, [Region.everything(case.space)] * len(case.regions))
        matcher.add_many(more, case.regions[:1] * len(more))
        later.append(matcher.view())
        for number in more:
            matcher.discard(number)
    matcher.check_invariants()
    assert not wrong_pairs(view.match_points(columns), case.pairs)
    assert view.meeting(asked) == meeting
    for row in case.singles(20):
        point = [int(column[row]) for column in columns]
        assert not wrong_numbers(view.match_point(point), case.numbers_of(row))
        for number, each in enumerate(later):
            assert len(each.match_point(point)) >= len(case.numbers) * (number % 2)
            assert number % 2 or each.match_point(point) == []
    assert not wrong_pairs(empty.match_points(columns), NONE)
    assert not wrong_pairs(later[0].match_points(columns), NONE)


def test_a_view_outlives_its_matcher(matcher_class: type[Matcher]) -> None:
    case = boxes("257 boxes")
    view = filled(matcher_class, case, "arrays").view()
    assert not wrong_pairs(view.match_points(case.space.encode_batch(case.table)), case.pairs)


# --- Threads ----------------------------------------------------------------------------------------------------------


@contextmanager
def hasty_switches() -> Iterator[None]:
    """Threads take turns more often, in the middle of more things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def together(jobs: Sequence[Callable[[], None]]) -> None:
    """Run all at once; the first exception is raised here."""
    errors: list[BaseException] = []

    def guarded(job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    with hasty_switches():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


@dataclass
class Writer:
    """The one writer. `states` are the regions (by position in the pool) under each number, -1 for none, of every
    version that was begun; `done` is the last one that is complete. An answer that took from `done` to the last one
    begun must be that of a version between."""

    matcher: Matcher
    pool: Pool
    numbers: int = 400

    def __post_init__(self) -> None:
        self.random = Random(SEED)
        self.states = [np.full(self.numbers, -1)]
        self.done = 0
        self.finished = False
        self.add(150)

    def add(self, count: int) -> None:
        free = np.flatnonzero(self.states[-1] < 0).tolist()
        chosen = self.random.sample(free, min(count, len(free)))
        regions = [self.random.randrange(len(self.pool.regions)) for _ in chosen]
        state = self.states[-1].copy()
        state[chosen] = regions
        self.states.append(state)
        if len(chosen) == 1:
            self.matcher.add(chosen[0], self.pool.regions[regions[0]])
        else:
            self.matcher.add_many(chosen, [self.pool.regions[position] for position in regions])
        self.done = len(self.states) - 1

    def discard(self) -> None:
        state = self.states[-1].copy()
        number = self.random.choice(np.flatnonzero(state >= 0).tolist() or [0])
        state[number] = -1
        self.states.append(state)
        self.matcher.discard(number)
        self.done = len(self.states) - 1

    def run(self, rounds: int, answers: Sized) -> None:
        """Between any two rounds of updates the readers give some answers more."""
        try:
            for number in range(rounds):
                if number % 2:
                    self.add(self.random.choice((1, 40, 120)))
                for _ in range(self.random.choice((1, 10, 60))):
                    self.discard()
                if self.pool.space.label_codes and number % 6 == 0:
                    self.pool.space.where(f"name = 'ab{number}'")
                    recode(self.pool.space)
                wanted, stop = len(answers) + 6, time.monotonic() + 0.1
                while len(answers) < wanted and time.monotonic() < stop:
                    time.sleep(0.0005)
        finally:
            self.finished = True


@pytest.mark.parametrize("kind", ["boxes", "strings"])
def test_four_threads_match_while_one_writes(matcher_class: type[Matcher], kind: str) -> None:
    pool = moving_boxes()[0] if kind == "boxes" else mixed_pool(MIXED_SPACES[1])
    matcher = matcher_class(pool.space)
    writer = Writer(matcher, pool)
    assert len(matcher.match_batch(pool.table)[0]) > 0  # kernels are compiled by now
    records: list[tuple[int, int, int, Any]] = []  # done before, begun after, row or -1 for the batch, answer

    def read(seed: int) -> None:
        random = Random(seed)
        while not writer.finished:
            row = -1 if random.random() < 0.2 else random.randrange(len(pool.events))
            done = writer.done
            answer = matcher.match_batch(pool.table) if row < 0 else matcher.match(pool.events[row])
            records.append((done, len(writer.states) - 1, row, answer))

    together([lambda: writer.run(soaked(12, 20), records), *(lambda seed=seed: read(seed) for seed in range(4))])
    matcher.check_invariants()
    mask = np.concatenate([pool.mask, np.zeros((len(pool.events), 1), np.bool_)], axis=1)  # of -1: nothing

    def same(answer: Any, expected: Any) -> bool:
        if isinstance(answer, list):
            return answer == expected
        return np.array_equal(answer[0], expected[0]) and np.array_equal(answer[1], expected[1])

    @cache
    def truth(version: int, row: int) -> Any:
        state = writer.states[version]
        return np.nonzero(mask[:, state]) if row < 0 else np.flatnonzero(mask[row, state]).tolist()

    for done, begun, row, answer in records:
        right = any(same(answer, truth(version, row)) for version in range(done, begun + 1))
        where = f"{matcher.name}, {kind}, row {row}, at no version of {done}..{begun}"
        assert right, f"{where}; at the first {(wrong_pairs if row < 0 else wrong_numbers)(answer, truth(done, row))}"
    assert len({done for done, _, _, _ in records}) > 10
    assert any(begun > done for done, begun, _, _ in records)
    assert {row < 0 for _, _, row, _ in records} == {True, False}


def test_four_threads_share_a_view(matcher_class: type[Matcher]) -> None:
    """No scratch space of one call is written by another."""
    case = boxes("slabs")
    view, columns = filled(matcher_class, case).view(), case.space.encode_batch(case.table)

    def read(seed: int) -> None:
        for row in Random(seed).sample(range(len(case.events)), soaked(25, 60)):
            problem = wrong_numbers(view.match_point([int(column[row]) for column in columns]), case.numbers_of(row))
            assert not problem, f"row {row}: {problem}"
            if row % 10 == 0:
                part = [column[row:] for column in columns]
                mine = case.pairs[0] >= row
                assert not wrong_pairs(view.match_points(part), (case.pairs[0][mine] - row, case.pairs[1][mine]))

    together([partial(read, seed) for seed in range(4)])


# --- Memory -----------------------------------------------------------------------------------------------------------


def comes_and_goes(matcher: Matcher, data: tuple[Coordinates, Coordinates], stay: int, more: int) -> tuple[int, int]:
    """Fill, let all but some go, add a few more: nbytes when full and in the end."""
    low, high = data
    count = len(low) - more
    for start in range(0, count, 1000):
        chunk = slice(start, min(start + 1000, count))
        matcher.add_many(np.arange(count)[chunk], (low[chunk], high[chunk]))
    full = matcher.nbytes
    for number in np.random.default_rng(SEED).permutation(count)[stay:].tolist():
        matcher.discard(number)
    for number in range(count, len(low)):
        matcher.add_many([number], (low[[number]], high[[number]]))
    assert len(matcher) == stay + more
    return full, matcher.nbytes


def test_memory_is_given_back(matcher_class: type[Matcher]) -> None:
    count, more = thinned(matcher_class, soaked(1000, 2000), soaked(10_000, 20_000)), thinned(matcher_class, 30, 300)
    space, low, high = scattered(np.random.default_rng(SEED), 4, count + more, 0.2)
    matcher = matcher_class(space)
    full, end = comes_and_goes(matcher, (low, high), 5, more)
    assert end <= full / 10, f"{matcher.name}: {full:,} bytes when full, {end:,} with {len(matcher)} boxes left"
    assert full > 0 or matcher.name == "scan"
    matcher.check_invariants()
    kept = np.array([number for number in range(len(low)) if number in matcher])
    points = telling_points(np.random.default_rng(SEED), space, low[kept], high[kept])
    problem = wrong_pairs(
        matcher.match_batch({f"a{axis}": points[:, axis] for axis in range(4)}),
        pairs_by_force(kept, low[kept], high[kept], points),
    )
    assert not problem, problem


def test_what_is_given_back_is_free(matcher_class: type[Matcher]) -> None:
    """`nbytes` is what a matcher says of itself; this is what Python and NumPy allocated, exact bounds and all."""
    count = thinned(matcher_class, 700, soaked(2600, 5100))
    space, low, high = scattered(np.random.default_rng(SEED), 4, count, 0.2)
    comes_and_goes(matcher_class(space), (low, high), 5, 100)  # whatever is compiled or cached, is so by now
    matcher = matcher_class(space)
    tracemalloc.start()
    try:
        matcher.add_many(np.arange(len(low)), (low, high))
        full = tracemalloc.get_traced_memory()[0]
        for number in range(5, len(low)):
            matcher.discard(number)
        for number in range(10**5, 10**5 + 100):
            matcher.add_many([number], (low[:1], high[:1]))
        gc.collect()
        end = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert end < full / 4, f"{matcher.name}: {full:,} bytes when full, {end:,} with {len(matcher)} boxes left"


@pytest.mark.parametrize("batches", [1, 20])
def test_bytes_a_box(batches: int) -> None:
    space, low, high = scattered(np.random.default_rng(SEED), 4, 20_000, 0.1)
    matcher = MATCHERS["tree"](space)
    for numbers in np.array_split(np.arange(20_000), batches):
        matcher.add_many(numbers, (low[numbers], high[numbers]))
    assert 20_000 < matcher.nbytes <= 40 * 20_000, f"{matcher.nbytes / 20_000:.1f} bytes a box"
