"""An index that was packed into bytes and mapped from a file answers as the one that it was made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.match_oracles import CLAUSES, Case, box_case
from thatch import Space
from thatch.errors import SnapshotError
from thatch.matching.index import TreeMatcher, TreeView
from thatch.matching.mapped import opened, packed

BOXES = ("0 boxes", "1 boxes", "257 boxes", "4097 boxes", "extreme 4", "zipf", "few_of_twenty", "some_empty")


def mapped(view: TreeView, folder: Path) -> TreeView:
    path = folder / "index"
    path.write_bytes(packed(view))
    return opened(path)


def check(case: Case, matcher: TreeMatcher, folder: Path) -> None:
    view = mapped(matcher.view(), folder)
    assert view.space == case.space and view.space is not case.space
    rows, numbers = view.match_points(view.space.encode_batch(case.table))
    assert rows.tolist() == case.pairs[0].tolist()
    assert numbers.tolist() == case.pairs[1].tolist()
    for row in case.singles(12):
        assert view.match_point(view.space.encode(case.events[row])) == case.numbers_of(row)


@pytest.mark.parametrize("name", BOXES)
def test_boxes(name: str, tmp_path: Path) -> None:
    case = box_case(name)
    matcher = TreeMatcher(case.space)
    matcher.add_many(case.numbers, case.regions)
    check(case, matcher, tmp_path)


@pytest.mark.parametrize("name", CLAUSES)
def test_clauses_with_sets_balls_and_strings(name: str, tmp_path: Path) -> None:
    case = CLAUSES[name]()
    matcher = TreeMatcher(case.space)
    matcher.add_many(case.numbers, case.regions)
    check(case, matcher, tmp_path)


def test_a_view_with_the_dead_and_a_buffer(tmp_path: Path) -> None:
    space = Space.parse("x int not null 0..1000")
    matcher = TreeMatcher(space)
    for number in range(700):  # two trees and a buffer
        matcher.add(number, space.where(f"x BETWEEN {number} AND {number + 3}"))
    for number in range(0, 700, 3):
        matcher.discard(number)
    points = [np.arange(1001)]
    before = matcher.view().match_points(points)
    view = mapped(matcher.view(), tmp_path)
    matcher.add(9_999, space.where("TRUE"))  # later, so not in there
    assert [each.tolist() for each in view.match_points(points)] == [each.tolist() for each in before]


def test_two_readers_share_the_file_and_outlive_its_name(tmp_path: Path) -> None:
    space = Space.parse("x int not null, s string")
    matcher = TreeMatcher(space)
    matcher.add_many(range(300), [space.where(f"x = {number} AND s < 'k'") for number in range(300)])
    path = tmp_path / "index"
    path.write_bytes(packed(matcher.view()))
    one, two = opened(path), opened(path)
    path.unlink()
    for view in (one, two):
        assert view.match_point(view.space.encode({"x": 7, "s": "abc"})) == [7]
        assert view.match_point(view.space.encode({"x": 7, "s": "xyz"})) == []


def test_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"PAR1 and more")
    with pytest.raises(SnapshotError, match="not a match index"):
        opened(path)
