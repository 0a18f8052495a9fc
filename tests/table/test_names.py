"""Ids and their numbers against a plain dict: numbers are never used again, and old directories still tell."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import examples, soaked
from thatch.errors import CallerError
from thatch.table.names import BITS, Chunks, Names, id_of

SEED = 20240302
SIZE = 1 << BITS


class Model:
    """Names compared with a dict, and every directory that a reader may still hold."""

    def __init__(self, bits: int = BITS) -> None:
        self.names = Names(bits)
        self.numbers: dict[Any, int] = {}  # in order of arrival
        self.issued = 0
        self.held: list[tuple[Chunks, dict[int, Any]]] = []

    def add(self, ids: list[Any]) -> None:
        self.names.check_new(ids)
        numbers = self.names.add(ids)
        assert list(numbers) == list(range(self.issued, self.issued + len(ids)))
        self.numbers.update(zip(ids, numbers, strict=True))
        self.issued += len(ids)

    def discard(self, id: Any) -> None:
        self.names.discard(id)
        del self.numbers[id]

    def renew(self, id: Any) -> None:
        assert self.names.renew(id) == self.issued
        self.numbers[id] = self.issued  # in its old place
        self.issued += 1

    def hold(self) -> None:
        """What a reader takes: the directory, and the numbers that it may ask for."""
        self.held.append((self.names.chunks, {number: id for id, number in self.numbers.items()}))

    def check(self) -> None:
        names = self.names
        names.check_invariants()
        assert list(names) == list(self.numbers) and len(names) == len(self.numbers)
        for id, number in self.numbers.items():
            assert id in names and names.number(id) == number and id_of(names.chunks, number, names.bits) == id
        for chunks, known in self.held:
            assert all(id_of(chunks, number, names.bits) == id for number, id in known.items())

    def kept(self) -> int:
        """How many ids the present directory holds on to."""
        return sum(map(len, self.names.chunks.values()))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20)),
        st.tuples(st.just("discard"), st.integers(0, 99)),
        st.tuples(st.just("discard"), st.integers(0, 99)),
        st.tuples(st.just("renew"), st.integers(0, 99)),
        st.just(("hold", 0)),
    ),
    max_size=60,
)


@examples(soaked(60, 120))
@given(steps=steps, text=st.booleans())
def test_names_are_a_dict(steps: list[tuple[str, int]], text: bool) -> None:
    """In chunks of eight, so that they come, shrink and go all the time."""
    model = Model(bits=3)
    for operation, amount in steps:
        if operation == "add":
            new = range(model.issued, model.issued + amount)
            model.add([f"s{number}" if text else -number for number in new])
        elif operation == "hold":
            model.hold()
        elif model.numbers:
            id = list(model.numbers)[amount % len(model.numbers)]
            (model.discard if operation == "discard" else model.renew)(id)
        model.check()


def test_thousands_come_and_go() -> None:
    """In chunks of the real size: what is kept stays in proportion to what is there."""
    model, random = Model(), Random(SEED)
    for turn in range(12):
        model.add([f"{turn}/{at}" for at in random.sample(range(5000), random.choice((1, 700, SIZE, 3 * SIZE + 1)))])
        model.hold()
        for id in random.sample(list(model.numbers), int(len(model.numbers) * random.choice((0.3, 0.6, 0.9)))):
            model.discard(id)
        for id in random.sample(list(model.numbers), len(model.numbers) // 5):
            model.renew(id)
        model.check()
        assert model.kept() <= 4 * len(model.numbers) + 4 * SIZE
    for id in list(model.numbers):
        model.discard(id)
    model.check()
    assert len(model.names) == 0 and model.kept() <= SIZE


def test_churn_keeps_nothing() -> None:
    """One at a time, for ever: chunks are given back, whether the last of a chunk leaves before it is full or after."""
    for living in (0, 1, 5):
        model = Model()
        for number in range(6 * SIZE):
            model.add([number])
            if number >= living:
                model.discard(number - living)
        assert len(model.numbers) == living
        model.names.check_invariants()
        assert len(model.names.chunks) <= 2


def test_one_that_is_renewed_for_ever() -> None:
    model = Model()
    model.add(["stays", "moves", "leaves"])
    for _ in range(5 * SIZE):
        model.renew("moves")
    model.discard("leaves")
    model.check()
    assert list(model.names) == ["stays", "moves"] and len(model.names.chunks) <= 2
    assert model.kept() <= SIZE + 3


def test_a_chunk_is_copied_without_those_that_left() -> None:
    model = Model()
    model.add(list(range(3 * SIZE)))
    model.hold()
    for number in range(SIZE - 10):
        model.discard(number)
    assert len(model.names.chunks[0]) < SIZE and len(model.names.chunks[1]) == SIZE
    assert 0 not in model.names.chunks[0]
    model.check()  # the reader's directory has them still
    for number in range(SIZE - 10, SIZE):
        model.discard(number)
    assert 0 not in model.names.chunks and id_of(model.held[0][0], 7) == 7
    model.check()


def test_a_reader_never_sees_half_of_a_batch() -> None:
    """A directory knows every number that was given out before it was taken, also at the seam of two chunks."""
    model = Model()
    for count in (SIZE - 1, 1, 1, SIZE, 2 * SIZE - 3, 5):
        model.add([f"{model.issued + at}" for at in range(count)])
        model.hold()
    model.check()
    assert [number >> BITS for number in model.numbers.values()] == sorted(at >> BITS for at in range(model.issued))


@pytest.mark.parametrize("wrong", [True, False, None, 1.0, b"a", ("a",), [], 2**63, -(2**63) - 1])
def test_what_is_no_id(wrong: Any) -> None:
    names = Names()
    with pytest.raises(CallerError, match="id"):
        names.check_new([wrong])
    assert len(names) == 0


def test_ids_are_new_different_and_of_one_kind() -> None:
    names = Names()
    for ids in (["a", "a"], ["a", 1], [1, "a"], [0, -0]):
        with pytest.raises(CallerError):
            names.check_new(ids)
    names.check_new([2**63 - 1, -(2**63)])
    names.add([5])
    for ids in (["a"], [5], [6, 5], [6, 6]):
        with pytest.raises(CallerError):
            names.check_new(ids)
    assert list(names) == [5]
    names.check_new([])
    names.check_new([6, 7])


def test_no_ids_at_all() -> None:
    names = Names()
    assert list(names.add([])) == [] and names.chunks == {} and list(names) == []
    names.check_invariants()
