"""What files are made of: regions and the labels of strings, there and back, and what is refused."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from helpers.clause_rows import SPACE
from helpers.clauses import ClauseWriter
from helpers.match_oracles import STRINGS
from thatch import Space
from thatch.region import packing
from thatch.region.region import Region
from thatch.space.axis import StringAxis
from thatch.space.labels import FIRST, LAST, Labels

SEED = 20240304


def test_labels_there_and_back() -> None:
    random = Random(SEED)
    labels = Labels()
    for text in random.sample(STRINGS, len(STRINGS)):
        labels.cut(text)
    for _ in range(200):
        labels.cut("".join(random.choices("ab\0é😀", k=random.randint(0, 5))))
    cuts, numbers = labels.to_pairs()
    assert cuts == sorted(cuts) and numbers == sorted(numbers) and len(cuts) == len(labels)
    again = Labels.of_pairs(cuts, numbers)
    again.check_invariants()
    assert again.to_pairs() == (cuts, numbers)
    for text in [*STRINGS, *(cut + "x" for cut in cuts)]:
        assert again.of(text) == labels.of(text)
    assert again.cut("abq") == labels.cut("abq") and again.to_pairs() == labels.to_pairs()
    cuts.append("changed")
    again.check_invariants()
    assert Labels.of_pairs(*Labels().to_pairs()).to_pairs() == ([""], [FIRST])


@pytest.mark.parametrize(
    ("cuts", "numbers"),
    [
        ([], []),
        (["a"], [FIRST]),
        (["", "a"], [FIRST]),
        ([""], [FIRST, 5]),
        (["", "b", "a"], [FIRST, 5, 9]),
        (["", "a", "a"], [FIRST, 5, 9]),
        (["", "a", "b"], [FIRST, 9, 5]),
        (["", "a", "b"], [FIRST, 5, 5]),
        (["", "a"], [FIRST + 1, 5]),
        (["", "a"], [FIRST, LAST + 1]),
        (["", "a"], [-5, FIRST]),
    ],
)
def test_what_are_no_labels(cuts: list[str], numbers: list[int]) -> None:
    with pytest.raises(ValueError):
        Labels.of_pairs(cuts, numbers)


def test_strings_that_stand_alone() -> None:
    """`singles` is the runs of those that are cut before and after: what `= 's'` and IN lists are made of."""
    axis, random = StringAxis(), Random(SEED)
    alone = random.sample([text for text in STRINGS if not text.endswith("\0")], 8)
    lows, highs = axis.singles()
    assert len(lows) == len(highs) == 0 and lows.dtype == np.int64
    axis.cut_many([each for text in alone for each in (text, text + "\0")])
    axis.cut_many(["k", "m", "only before"])

    def cut(text: str) -> int:
        found = axis.labels.cut(text)
        assert found is not None
        return found

    for _ in range(2):
        lows, highs = axis.singles()
        expected = sorted((cut(text), cut(text + "\0") - 1) for text in alone)
        assert list(zip(lows.tolist(), highs.tolist(), strict=True)) == expected
        assert sorted(axis.labels.cut_at(low) for low in lows.tolist()) == sorted(alone)
        assert lows.flags.c_contiguous and highs.flags.c_contiguous and (highs[:-1] < lows[1:]).all()
        axis.labels = axis.labels.recoded(["another"])


def test_regions_there_and_back() -> None:
    """Packed and unpacked: the same terms, without a look at the normal form."""
    space, random = Space.parse(SPACE), Random(SEED)
    writer = ClauseWriter(random)
    regions = [space.where(writer.clause().ours) for _ in range(80)]
    regions += [Region.nothing(space), Region.everything(space)]
    packed = packing.pack_regions([region.terms for region in regions])
    again = packing.unpack_regions(packed, space)
    assert [region.terms for region in again] == [region.terms for region in regions]
    for region in again:
        region.check_invariants()
    assert packing.unpack_regions(packing.pack_regions([]), space) == []
