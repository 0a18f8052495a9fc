"""Each kernel against a plain twin: loops over Python ints, and brute force over all points of a small lattice."""

from __future__ import annotations

import math
import os
import pickle
import shutil
import subprocess
import sys
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import thatch
from helpers.strategies import examples
from thatch.region import boxes

LOW, HIGH = -(2**63), 2**63 - 1
SIDE = 4  # small boxes lie in 0..SIDE-1 on each axis
edge_ints = st.integers(LOW, LOW + 2) | st.integers(-2, 2) | st.integers(HIGH - 2, HIGH)
Box = tuple[tuple[int, int], ...]  # one (low, high) an axis


def one_box(axes: int, ends: st.SearchStrategy[int]) -> st.SearchStrategy[Box]:
    side = st.tuples(ends, ends).map(lambda pair: (min(pair), max(pair)))
    return st.tuples(*[side] * axes)


@st.composite
def box_sets(draw: st.DrawFn, ends: st.SearchStrategy[int], size_max: int = 5) -> tuple[int, list[Box], list[Box]]:
    """A number of axes, and two sets of boxes."""
    axes = draw(st.integers(1, 3))
    boxes_of = st.lists(one_box(axes, ends), max_size=size_max)
    return axes, draw(boxes_of), draw(boxes_of)


small_sets = box_sets(st.integers(0, SIDE - 1))
edge_sets = box_sets(edge_ints)


def arrays(found: list[Box], axes: int) -> tuple[Any, Any]:
    ends = np.array(found, np.int64).reshape(len(found), axes, 2)
    return np.ascontiguousarray(ends[:, :, 0]), np.ascontiguousarray(ends[:, :, 1])


def listed(low: Any, high: Any) -> list[Box]:
    assert low.dtype == high.dtype == np.int64 and low.shape == high.shape
    return [tuple(zip(one, other, strict=True)) for one, other in zip(low.tolist(), high.tolist(), strict=True)]


def points(found: list[Box]) -> set[tuple[int, ...]]:
    return {point for box in found for point in product(*(range(low, high + 1) for low, high in box))}


def probes(axes: int) -> list[tuple[int, ...]]:
    """Points that tell boxes with ends near int64's own ends, and near zero, apart."""
    near = [*range(LOW, LOW + 4), -3, -2, -1, 0, 1, 2, 3, *range(HIGH - 3, HIGH + 1)]
    return list(product(near if axes < 3 else [*near[::2], LOW + 3, HIGH], repeat=axes))


def holds(box: Box, point: tuple[int, ...]) -> bool:
    return all(low <= value <= high for (low, high), value in zip(box, point, strict=True))


def meet(one: Box, other: Box) -> Box | None:
    both = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(one, other, strict=True))
    return both if all(low <= high for low, high in both) else None


def check_disjoint(found: list[Box]) -> None:
    assert all(low <= high for box in found for low, high in box)
    assert all(meet(found[i], found[j]) is None for i in range(len(found)) for j in range(i))


# --- Columns ----------------------------------------------------------------------------------------------------------

columns = st.lists(st.tuples(st.booleans(), edge_ints | st.integers(-9, 9)), max_size=12)


@examples(40)
@given(columns, edge_ints, edge_ints)
def test_and_interval(rows: list[tuple[bool, int]], low: int, high: int) -> None:
    mask = np.array([kept for kept, _ in rows], np.bool_)
    boxes.and_interval(mask, np.array([value for _, value in rows], np.int64), low, high)
    assert mask.tolist() == [kept and low <= value <= high for kept, value in rows]


@examples(40)
@given(columns, st.sets(st.integers(-9, 9) | edge_ints))
def test_and_intervals(rows: list[tuple[bool, int]], chosen: set[int]) -> None:
    ordered = sorted(chosen)[: len(chosen) // 2 * 2]
    mask = np.array([kept for kept, _ in rows], np.bool_)
    boxes.and_intervals(mask, np.array([value for _, value in rows], np.int64), np.array(ordered, np.int64))
    pairs = list(zip(ordered[::2], ordered[1::2], strict=True))
    assert mask.tolist() == [kept and any(low <= value <= high for low, high in pairs) for kept, value in rows]


@examples(40)
@given(st.data())
def test_and_ball(data: st.DataObject) -> None:
    axes, rows = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 8))
    numbers = st.floats() | st.floats(-2, 2) | st.sampled_from([0.0, 1e200, -1e-200, 5e-324, math.inf])
    table = [[data.draw(numbers) for _ in range(rows)] for _ in range(axes)]
    centre = [data.draw(numbers) for _ in range(axes)]
    radius = abs(data.draw(numbers))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), np.bool_)
    expected = []
    for row in range(rows):
        total = (table[0][row] - centre[0]) * (table[0][row] - centre[0])
        for axis in range(1, axes):
            total += (table[axis][row] - centre[axis]) * (table[axis][row] - centre[axis])
        expected.append(bool(mask[row]) and total <= radius * radius)
    boxes.and_ball(mask, np.array(table, np.float64).reshape(axes, rows), np.array(centre), radius)
    assert mask.tolist() == expected


def test_and_ball_never_contracts_a_product_and_a_sum() -> None:
    """A fused multiply-add rounds once where Spark rounds twice."""
    random = np.random.default_rng(5)
    x, y = random.uniform(0, 1, (2, 20_000))
    squares = np.array([float(a) * float(a) + float(b) * float(b) for a, b in zip(x, y, strict=True)])
    for radius in (0.5, 0.25, 1.0):
        mask = np.ones(len(x), np.bool_)
        boxes.and_ball(mask, np.stack([x, y]), np.zeros(2), radius)
        assert (mask == (squares <= radius * radius)).all()
    exact = np.sqrt(squares[:2_000])  # radii for which the comparison is a matter of the last bit
    for row, radius in enumerate(exact):
        mask = np.ones(1, np.bool_)
        boxes.and_ball(mask, np.array([[x[row]], [y[row]]]), np.zeros(2), radius)
        assert mask[0] == (squares[row] <= radius * radius)


# --- Boxes ------------------------------------------------------------------------------------------------------------


@examples(50)
@given(edge_sets)
def test_contains_box(sets: tuple[int, list[Box], list[Box]]) -> None:
    axes, outer, inner = sets
    low, high = arrays(outer, axes)
    for box in inner:
        found = boxes.contains_box(low, high, *(ends[0] for ends in arrays([box], axes)))
        assert found.tolist() == [meet(each, box) == box for each in outer]


@examples(50)
@given(edge_sets)
def test_intersect(sets: tuple[int, list[Box], list[Box]]) -> None:
    axes, one, other = sets
    found = listed(*boxes.intersect(*arrays(one, axes), *arrays(other, axes)))
    assert found == [both for a in one for b in other if (both := meet(a, b)) is not None]


@examples(50)
@given(edge_sets)
def test_subtract_box(sets: tuple[int, list[Box], list[Box]]) -> None:
    axes, one, other = sets
    for box, cut in zip(one, other, strict=False):
        low, high = (ends[0].copy() for ends in arrays([box], axes))
        out_low, out_high = np.zeros((2 * axes, axes), np.int64), np.zeros((2 * axes, axes), np.int64)
        cut_low, cut_high = (ends[0] for ends in arrays([cut], axes))
        count = boxes.subtract_box(low, high, cut_low, cut_high, out_low, out_high)
        both = meet(box, cut)
        if both is None:
            assert count == -1 and tuple(zip(low, high, strict=True)) == box
            continue
        pieces = listed(out_low[:count], out_high[:count])
        assert tuple(zip(low.tolist(), high.tolist(), strict=True)) == both
        check_disjoint([*pieces, both])
        assert volume([*pieces, both]) == volume([box]) and all(meet(piece, box) == piece for piece in pieces)


def volume(found: list[Box]) -> int:
    return sum(math.prod(high - low + 1 for low, high in box) for box in found)


@examples(100)
@given(small_sets)
def test_subtract(sets: tuple[int, list[Box], list[Box]]) -> None:
    axes, one, other = sets
    done, low, high = boxes.subtract(*arrays(one, axes), *arrays(other, axes), 10_000)
    found = listed(low, high)
    assert done
    check_disjoint(found)
    assert points(found) == points(one) - points(other)


@examples(40)
@given(edge_sets)
def test_subtract_at_the_ends_of_int64(sets: tuple[int, list[Box], list[Box]]) -> None:
    axes, one, other = sets
    done, low, high = boxes.subtract(*arrays(one, axes), *arrays(other, axes), 10_000)
    found = listed(low, high)
    assert done
    check_disjoint(found)
    for point in probes(axes)[:: 7 if axes == 3 else 1]:
        kept = any(holds(box, point) for box in one) and not any(holds(box, point) for box in other)
        assert any(holds(box, point) for box in found) == kept


@examples(40)
@given(small_sets)
def test_subtract_stops_at_the_cap(sets: tuple[int, list[Box], list[Box]]) -> None:
    axes, one, other = sets
    given_arrays = (*arrays(one, axes), *arrays(other, axes))
    size = len(boxes.subtract(*given_arrays, 10_000)[1])
    for cap in range(size + 2):
        done, low, high = boxes.subtract(*given_arrays, cap)
        assert done == (cap >= size)
        assert len(low) == len(high) == (size if done else 0)


def test_subtract_with_many_pieces() -> None:
    """A chess board cut out of a plate: more pieces than the first buffers hold."""
    axes, side = 3, 12
    cells = [c for c in product(range(side), repeat=axes) if sum(c) % 2]
    cuts = [tuple((value, value) for value in cell) for cell in cells]
    plate: Box = ((0, side - 1),) * axes
    done, low, high = boxes.subtract(*arrays([plate], axes), *arrays(cuts, axes), 100_000)
    found = listed(low, high)
    assert done and volume(found) == len(points(found)) == side**axes - len(cells)
    assert not points(found) & set(cells)
    done, low, high = boxes.subtract(*arrays([plate], axes), *arrays(cuts, axes), len(found) - 1)
    assert not done and len(low) == 0


def test_subtract_leaves_its_arguments_alone() -> None:
    given_arrays = (*arrays([((0, 9), (0, 9))], 2), *arrays([((3, 4), (3, 4))], 2))
    copies = [each.copy() for each in given_arrays]
    boxes.subtract(*given_arrays, 100)
    assert all((one == other).all() for one, other in zip(given_arrays, copies, strict=True))


@examples(100)
@given(st.data())
def test_volumes(data: st.DataObject) -> None:
    """Within the margin of the docstring: a factor 1 + e with |e| <= 3d * 2^-53."""
    axes = data.draw(st.integers(1, 15))  # 15 full axes are 2^960 points
    ends = edge_ints | st.integers(LOW, HIGH) | st.integers(-(2**53) - 9, 2**53 + 9)
    found = data.draw(st.lists(one_box(axes, ends), max_size=4))
    margin = Fraction(3 * axes, 2**53)
    for box, counted in zip(found, boxes.volumes(*arrays(found, axes)).tolist(), strict=True):
        exact = volume([box])
        assert abs(Fraction(counted) - exact) <= margin * exact
        assert Fraction(counted) / (1 + margin) <= exact, "the bound from below"


def test_volumes_of_single_points_and_whole_axes_are_exact() -> None:
    assert boxes.volumes(*arrays([((HIGH, HIGH),) * 3, ((LOW, LOW),) * 3], 3)).tolist() == [1.0, 1.0]
    assert boxes.volumes(*arrays([((LOW, HIGH),)], 1)).tolist() == [2.0**64]
    assert boxes.volumes(*arrays([((LOW, HIGH),) * 15], 15)).tolist() == [2.0**960]


# --- Where no cache can be written ------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
import numba, numpy as np
from thatch import jit

assert jit.__file__.startswith(sys.argv[1]), jit.__file__
source = os.path.join(sys.argv[1], "thatch", "probe.py")
namespace = {}
exec(compile(open(source).read(), source, "exec"), namespace)
try:
    numba.njit(cache=True)(namespace["one"])
except RuntimeError as error:
    assert "no locator available" in str(error), error
else:
    sys.exit("a cache directory can be written: this test tests nothing")

from thatch.region.boxes import intersect
low, high = np.array([[0, 0]]), np.array([[5, 5]])
print(intersect(low, high, low + 3, high + 3)[0].tolist())
"""


@pytest.mark.long
def test_kernels_work_where_no_cache_can_be_written(tmp_path: Path) -> None:
    """Every place that Numba tries lies below a regular file, which stops root too."""
    package = tmp_path / "thatch"
    shutil.copytree(Path(thatch.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "probe.py").write_text("def one():\n    return 1\n")
    blocked = package / "__pycache__"
    blocked.write_text("not a directory")
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": str(blocked / "numba"),
        "HOME": str(blocked),
        "XDG_CACHE_HOME": str(blocked),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[3, 3]]\n"


def test_an_index_of_other_kernels_is_not_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may name types that are gone, and Numba reads it as soon as its own version fits."""
    kernel: Any = boxes.subtract
    file, index = kernel._cache._cache_file, tmp_path / "index"
    index.write_bytes(pickle.dumps(numba.__version__) + b"cthatch.gone\nGone\n.")
    monkeypatch.setattr(file, "_index_path", str(index))
    assert file._load_index() == {}


@pytest.mark.parametrize("name", ["and_interval", "and_intervals", "and_ball", "contains_box", "subtract", "volumes"])
def test_kernels_take_nothing(name: str) -> None:
    """No rows and no boxes are fine everywhere."""
    none, ints, table = np.zeros(0, np.bool_), np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
    arguments: dict[str, tuple[Any, ...]] = {
        "and_interval": (none, ints, 0, 1),
        "and_intervals": (none, ints, ints),
        "and_ball": (none, np.zeros((1, 0)), np.zeros(1), 1.0),
        "contains_box": (table, table, np.zeros(2, np.int64), np.zeros(2, np.int64)),
        "subtract": (table, table, table, table, 0),
        "volumes": (table, table),
    }
    result = getattr(boxes, name)(*arguments[name])
    assert result is None or all(len(each) == 0 for each in (result[1:] if name == "subtract" else [result]))
