"""Tables on disk: all of it comes back, nothing is decided again, and no crash or damage is ever read as a table."""

from __future__ import annotations

import builtins
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from helpers.clause_rows import SPACE, make_rows
from helpers.clauses import ClauseWriter
from helpers.cover_oracles import MIXED_SPACES, ints, random_clause, recode
from helpers.match_oracles import STRINGS
from helpers.strategies import soaked
from thatch import CallerError, Space, SubscriptionTable
from thatch.cover import ExactEngine, PairwiseEngine
from thatch.errors import SnapshotError
from thatch.region import packing
from thatch.table import snapshot as files

SEED = 20240304
OPTIONS: list[dict[str, Any]] = [
    {"cover": None},
    {"cover": "exact"},
    {"cover": "exact", "retract": True, "groups": True, "nodes_max": 5000},
    {"cover": "pairwise", "form": "poset", "groups": True},
    {"cover": "pairwise", "retract": True},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)
quietly = pytest.mark.filterwarnings("ignore::thatch.errors.EmptyRegionWarning")
Rows = list[dict[str, Any]]


def filled(options: dict[str, Any], kind: str) -> tuple[SubscriptionTable, list[str], Rows]:
    """A table that has seen some life, clauses to go on with, and events."""
    random = Random(f"{SEED}/{kind}/{options}")
    if kind == "mixed":
        space = Space.parse(MIXED_SPACES[2])
        clauses = [random_clause(random, space) for _ in range(soaked(40, 60))]
        names = [None, "a", "ab", "abb", "abc", "b", "bb", "c", "zz"]
        rows: Rows = [
            {"name": random.choice(names), "kind": random.choice((None, "x", "y")), "ok": random.random() < 0.5,
             "size": random.choice((None, 0, 1, 2, 3))} for _ in range(80)
        ]  # fmt: skip
    elif kind == "every type":
        space, writer = Space.parse(SPACE), ClauseWriter(random)
        clauses, rows = [writer.clause().ours for _ in range(soaked(40, 60))], make_rows(random, 60)
    else:
        space = Space.parse("x double, y double not null -100..100, symbol string, n int")
        lists = [random.sample(range(90), size) for size in (2, 20, 40)]
        watched = [", ".join(f"'s{each}'" for each in values) for values in lists]
        clauses = [f"symbol IN ({each})" for each in watched] + [f"symbol IN ({each}) AND x < 3D" for each in watched]
        clauses += [f"n NOT IN ({', '.join(map(str, values))})" for values in lists] + ["y >= -2D AND y < 2D"]
        clauses += [f"within({r}, x, {at}, y, 0)" for at in range(4) for r in (1, 2, 5)]
        clauses += [f"within(3, x, {at}) AND n > {at} OR symbol = 's{at}'" for at in range(9)]
        rows = [
            {"x": random.choice((None, random.uniform(-5, 5))), "y": random.uniform(-5, 5), "n": random.randint(0, 99),
             "symbol": f"s{random.randint(0, 99)}"} for _ in range(80)
        ]  # fmt: skip
    table = SubscriptionTable(space, **options)
    text = kind != "every type"
    for number in random.sample(range(-30, 30), 36):
        due = random.choice((None, None, float(number), 1e300))
        owner = random.choice((None, "ann", "é😀", ""))
        table.subscribe(f"i{number}" if text else number, random.choice(clauses), owner, due)
        if number % 10 == 0:
            recode(space)
    for id in random.sample(list(table), 9):
        table.unsubscribe(id)
    for id in random.sample(list(table), 6):
        table.replace(id, random.choice(clauses))
    return table, clauses, rows


def same(one: SubscriptionTable, other: SubscriptionTable) -> None:
    assert list(one) == list(other) and [type(id) for id in one] == [type(id) for id in other]
    assert all(one[id] == other[id] for id in one)
    assert (one.cover, one.retract, one.groups, one.options) == (
        other.cover,
        other.retract,
        other.groups,
        other.options,
    )
    assert one.space == other.space and one.space is not other.space
    assert all(other[id].region.space is other.space for id in other)


def reported(change: Any) -> Any:
    return change.forward, sorted(change.withdraw), type(change.verdict)


# --- There and back --------------------------------------------------------------------------------------------------


@quietly
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *(("mixed", each) for each in OPTIONS),
        *(("balls and lists", each) for each in OPTIONS),
        *(("every type", each) for each in OPTIONS[::2]),
    ],
    ids=str,
)
def test_all_of_it_comes_back_and_goes_on(kind: str, options: dict[str, Any], tmp_path: Path) -> None:
    table, clauses, rows = filled(options, kind)
    path = tmp_path / "table.snapshot"
    table.snapshot(path)
    assert os.listdir(tmp_path) == ["table.snapshot"]
    loaded = SubscriptionTable.load(path)
    same(table, loaded)
    for id in loaded:
        loaded[id].region.check_invariants()
        assert loaded[id].region.to_sql() == table[id].region.to_sql()
    batch = {name: [row.get(name) for row in rows] for name in rows[0]}
    assert loaded.match_batch(batch) == table.match_batch(batch)
    assert table.options.items() >= {k: v for k, v in options.items() if k in ("form", "nodes_max")}.items()
    random = Random(f"{SEED}/{kind}")
    for step in range(soaked(18, 40)):  # the same, on both
        draw, ids = random.random(), list(table)
        new, clause = f"n{step}" if isinstance(ids[0], str) else 1000 + step, random.choice(clauses)
        if draw < 0.35:
            changes = [each.subscribe(new, clause, expires=step) for each in (table, loaded)]
        elif draw < 0.65:
            id = random.choice(ids)
            changes = [each.replace(id, clause) for each in (table, loaded)]
        elif draw < 0.9:
            id = random.choice(ids)
            changes = [each.unsubscribe(id) for each in (table, loaded)]
        else:
            changes = [each.expire(step - 10) for each in (table, loaded)]
        assert reported(changes[0]) == reported(changes[1]), step
        if step % 13 == 7:
            recode(loaded.space)
        row = random.choice(rows)
        assert loaded.match(row) == table.match(row)
    loaded.check_invariants()
    assert loaded.match_batch(batch) == table.match_batch(batch)
    assert [loaded[id].active for id in loaded] == [table[id].active for id in table]
    loaded.snapshot(path)  # and once more
    same(loaded, SubscriptionTable.load(str(path)))


@every_option
def test_an_empty_table(options: dict[str, Any], tmp_path: Path) -> None:
    table = SubscriptionTable(Space.parse(SPACE, time_zone="Europe/Berlin"), **options)
    for _ in range(2):
        table.snapshot(tmp_path / "t")
        loaded = SubscriptionTable.load(tmp_path / "t")
        same(table, loaded)
        assert len(loaded) == 0 and loaded.space.time_zone == "Europe/Berlin"
        loaded.subscribe("a", "flag")
        table.subscribe("a", "flag")
        table.unsubscribe("a")


def test_boxes_from_columns_come_back(tmp_path: Path) -> None:
    """With cover off these have no region until somebody asks."""
    table = SubscriptionTable(ints(100, 100), cover=None)
    low, high = np.arange(50), np.arange(50) + 20
    table.subscribe_many(range(50), low={"a0": low, "a1": low}, high={"a0": high})
    table.unsubscribe(7)
    table.replace(9, "a0 = 99")
    table.snapshot(tmp_path / "t")
    loaded = SubscriptionTable.load(tmp_path / "t")
    same(table, loaded)
    events = {"a0": np.arange(100), "a1": np.full(100, 40)}
    assert loaded.match_batch(events) == table.match_batch(events)
    assert loaded[12].region == table.space.where("a0 BETWEEN 12 AND 32 AND a1 >= 12")


@pytest.mark.parametrize("column", [np.array(["m", "x"]), np.array(["m", "x"], object), ["m", "x"]], ids=repr)
def test_strings_that_came_in_columns(column: Any, tmp_path: Path) -> None:
    """NumPy's strings are plain strings from then on: others in the same space can still be written."""
    space = Space.parse("name string")
    table = SubscriptionTable(space, cover=None)
    table.subscribe_many(["a", "b"], low={"name": column}, high={"name": column})
    table.snapshot(tmp_path / "t")
    same(table, SubscriptionTable.load(tmp_path / "t"))


def test_regions_of_another_space_come_back(tmp_path: Path) -> None:
    here, there = Space.parse("name string, n int"), Space.parse("name string, n int")
    there.where("name IN ('k', 'q', 'z')")
    table = SubscriptionTable(here, "exact")
    table.subscribe("a", there.where("name > 'k'"))
    table.subscribe("b", there.where("name >= 'q' AND n = 5"))
    table.snapshot(tmp_path / "t")
    loaded = SubscriptionTable.load(tmp_path / "t")
    same(table, loaded)
    assert loaded.match({"name": "r", "n": 5}) == ["a", "b"] and loaded["b"].certificate == ("a",)


def test_odd_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids and owners of any Unicode, ints of 64 bits; paths as text, with odd characters, and relative ones."""
    monkeypatch.chdir(tmp_path)
    ids: list[list[Any]] = [[2**63 - 1, -(2**63), 0], STRINGS]
    for at, some in enumerate(ids):
        table = SubscriptionTable(ints(100), None)
        for place, id in enumerate(some):
            table.subscribe(id, f"a0 = {place}", owner=str(id))
        path = ["plain", ".é 😀 [x].part"][at]
        table.snapshot(path)
        same(table, SubscriptionTable.load(Path(path)))
    assert sorted(os.listdir()) == [".é 😀 [x].part", "plain"]


@quietly
def test_loading_neither_parses_nor_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in OPTIONS:
        table, clauses, rows = filled(options, "mixed")
        table.snapshot(tmp_path / "t")

        def never(*arguments: Any, **named: Any) -> Any:
            raise AssertionError("this was called")

        with monkeypatch.context() as patch:
            for holder, name in (
                (Space, "where"),
                (ExactEngine, "check"),
                (ExactEngine, "add_many"),
                (ExactEngine, "members_within"),
                (PairwiseEngine, "check"),
                (PairwiseEngine, "members_within"),
            ):
                patch.setattr(holder, name, never)
            patch.setattr("sqlglot.parse_one", never)
            patch.setattr("thatch.where.compile.compile_clause", never)
            loaded = SubscriptionTable.load(tmp_path / "t")
            same(table, loaded)
            assert [loaded.match(row) for row in rows] == [table.match(row) for row in rows]
        with pytest.raises(AssertionError), monkeypatch.context() as patch:
            patch.setattr(Space, "where", never)
            loaded.subscribe("x", clauses[0])


# --- A crash on the way ----------------------------------------------------------------------------------------------


class Crash(Exception):
    pass


def crash(*arguments: Any, **named: Any) -> Any:
    raise Crash


class Failing:
    """A file that fails at the n-th call of write or flush."""

    def __init__(self, file: Any, calls: int, error: type[BaseException]) -> None:
        self.file, self.calls, self.error = file, calls, error

    def __enter__(self) -> Failing:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        if name in ("write", "flush"):
            self.calls -= 1
            if self.calls < 0:
                self.file.write(b"torn")
                raise self.error
        return getattr(self.file, name)


@pytest.mark.parametrize("before", [True, False], ids=["over an old one", "the first one"])
@pytest.mark.parametrize("error", [Crash, KeyboardInterrupt, OSError])
def test_an_exception_leaves_the_old_file_and_nothing_else(
    before: bool, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t"
    table = SubscriptionTable(ints(10))
    table.subscribe("old", "a0 = 1")
    if before:
        table.snapshot(path)
    old = path.read_bytes() if before else None
    table.subscribe("new", "a0 = 2")

    def fail(*arguments: Any, **named: Any) -> Any:
        raise error

    real = builtins.open
    for name in ("os.replace", "os.fsync", "secrets.token_hex", "msgspec.msgpack.encode"):
        with monkeypatch.context() as patch:
            patch.setattr(name, fail)
            with pytest.raises(error):
                table.snapshot(path)
        assert os.listdir(tmp_path) == (["t"] if before else []), name
        assert not before or path.read_bytes() == old
    for calls in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(builtins, "open", lambda *a, calls=calls, **k: Failing(real(*a, **k), calls, error))
            with pytest.raises(error):
                table.snapshot(path)
        assert os.listdir(tmp_path) == (["t"] if before else []), calls
        assert not before or path.read_bytes() == old
    table.snapshot(path)
    assert list(SubscriptionTable.load(path)) == ["old", "new"]
    table.check_invariants()


def test_the_disk_has_the_whole_file_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forced to the disk, then renamed, then the directory forced: in this order."""
    calls: list[Any] = []
    real_replace, real_fsync = os.replace, os.fsync

    def fsync(handle: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{handle}"), os.fstat(handle).st_size))
        real_fsync(handle)

    def replace(source: Any, target: Any) -> None:
        calls.append(("replace", str(source), str(target)))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    table = SubscriptionTable(ints(10))
    table.snapshot(tmp_path / "t")
    part = calls[0][1]
    assert [call[:2] for call in calls] == [("fsync", part), ("replace", part), ("fsync", str(tmp_path))]
    assert calls[0][2] == (tmp_path / "t").stat().st_size and Path(part).parent == tmp_path
    assert calls[1][2] == str(tmp_path / "t")


def test_a_process_that_is_killed_while_it_writes(tmp_path: Path) -> None:
    """SIGKILL at any moment: whoever opens the place finds one of the two tables, whole."""
    path, random = tmp_path / "t", Random(SEED)
    tables = []
    for size in (60, 150):
        table = SubscriptionTable(ints(1000, 1000), cover=None)
        low = np.arange(size)
        table.subscribe_many(range(size), low={"a0": low}, high={"a1": low}, owners=["x" * 5000] * size)
        tables.append(table)
    tables[0].snapshot(path)
    sizes, rounds, deadline = set[int](), 0, time.monotonic() + 60
    while rounds < 5 or (sizes != {60, 150} and time.monotonic() < deadline):
        rounds += 1
        child = os.fork()
        if child == 0:
            try:
                while True:
                    for table in reversed(tables):
                        table.snapshot(path)
            finally:
                os._exit(1)
        try:
            end = time.monotonic() + random.uniform(0.005, 0.06) * (1 + rounds / 10)  # on a busy machine it starts late
            while time.monotonic() < end:
                sizes.add(len(files.read(path).ids))
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        loaded = SubscriptionTable.load(path)
        sizes.add(len(loaded))
        assert len(loaded) in (60, 150) and loaded[59].owner == "x" * 5000
    assert sizes == {60, 150}


def test_a_snapshot_is_of_one_moment(tmp_path: Path) -> None:
    """Taken while another thread subscribes: everything up to some subscription, and nothing after it."""
    table = SubscriptionTable(Space.parse("name string, n int not null 0..9999"), "exact", retract=True)
    failed: list[Any] = []

    def write() -> None:
        try:
            for number in range(90):
                table.subscribe(number, f"n <= {(number * 37) % 150} AND name >= 'k{number}'", owner=str(number))
        except Exception as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    sizes: list[int] = []
    while writer.is_alive() or not sizes:
        table.snapshot(tmp_path / "t")
        loaded = SubscriptionTable.load(tmp_path / "t")
        sizes.append(len(loaded))
        assert list(loaded) == list(range(len(loaded))) and all(loaded[id].owner == str(id) for id in loaded)
    writer.join()
    assert not failed and sizes == sorted(sizes)
    loaded.check_invariants()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    table = SubscriptionTable(ints(10))
    (tmp_path / "folder").mkdir()
    for place in (tmp_path / "none" / "t", tmp_path / "folder"):
        with pytest.raises(OSError):
            table.snapshot(place)
    assert os.listdir(tmp_path) == ["folder"] and os.listdir(tmp_path / "folder") == []


# --- Damage ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small table with all there is: strings, sets, balls, owners, expiries, certificates."""
    table = SubscriptionTable(Space.parse("name string, x double, n int not null 0..99"), "exact", nodes_max=500)
    clauses = {
        "a": "name >= 'b' AND n < 50",
        "b": "n IN (1, 3, 5, 60) OR x > 50D",
        "p": "name = 'c' AND n = 7",
        "q": "name = 'd' AND n = 3",
        "o": "within(3, x, 0, n, 5)",
        "c": "n > 70",
    }
    for at, (id, clause) in enumerate(clauses.items()):
        table.subscribe(id, clause, owner=f"owner {id}" if at % 2 else None, expires=at if at % 3 == 0 else None)
    assert [table[id].active for id in table] == [True, True, False, False, True, True]
    path = tmp_path_factory.mktemp("written") / "t"
    table.snapshot(path)
    return path.read_bytes()


def refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(SnapshotError) as caught:
        SubscriptionTable.load(path)
    assert isinstance(caught.value, CallerError) and str(path) in str(caught.value)


def test_a_file_that_was_cut(written: bytes, tmp_path: Path) -> None:
    lengths = {*range(40), *range(40, len(written), 41), len(written) - 2, len(written) - 1}
    for length in sorted(lengths):
        refused(tmp_path / "t", written[:length])
    for more in (b"\0", b"x" * 100, written):
        refused(tmp_path / "t", written + more)


def test_bytes_that_were_changed(written: bytes, tmp_path: Path) -> None:
    random = Random(SEED)
    for at in [*range(30), *random.sample(range(30, len(written)), 150)]:
        changed = bytearray(written)
        changed[at] ^= 1 << random.randrange(8)
        refused(tmp_path / "t", bytes(changed))


def test_what_is_no_snapshot(written: bytes, tmp_path: Path) -> None:
    for data in (b"", b"\n", b"THATCH", b"THATCH TABLE 2\n" + written[15:], b"{}", os.urandom(500), written[1:]):
        refused(tmp_path / "t", data)
    for body in (b"", b"\x80", b"\xc1", b"\x90", b"\x93\x01\x02\x03", b"\x91" * 5000, b"\xdf\xff\xff\xff\xff", b"x"):
        refused(tmp_path / "t", head(body) + body)
    with pytest.raises(OSError):
        SubscriptionTable.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        SubscriptionTable.load(tmp_path / "none")


def head(body: bytes) -> bytes:
    return files.MAGIC + len(body).to_bytes(8, "little") + zlib.crc32(body).to_bytes(4, "little")


def numbers(data: bytes) -> list[int]:
    return packing.unpack_ints(data).tolist()


def put(name: str, change: Callable[[list[int]], Any]) -> Callable[[files.Body], files.Body]:
    """Another array in place of one of a body, or of its regions if the name begins with a dot."""

    def changed(body: files.Body) -> files.Body:
        holder = body.regions if name.startswith(".") else body
        values = numbers(getattr(holder, name.lstrip(".")))
        new = change(values)
        data = {name.lstrip("."): packing.pack_ints(values if new is None else new)}
        if holder is body:
            return msgspec.structs.replace(body, **data)
        return msgspec.structs.replace(body, regions=msgspec.structs.replace(body.regions, **data))

    return changed


def field(name: str, change: Callable[[Any], Any]) -> Callable[[files.Body], files.Body]:
    def changed(body: files.Body) -> files.Body:
        if name.startswith("."):
            inner = {name[1:]: change(getattr(body.regions, name[1:]))}
            return msgspec.structs.replace(body, regions=msgspec.structs.replace(body.regions, **inner))
        return msgspec.structs.replace(body, **{name: change(getattr(body, name))})

    return changed


def at(place: int, value: int) -> Callable[[list[int]], Any]:
    def change(values: list[int]) -> list[int]:
        return [*values[: place % len(values)], value, *values[place % len(values) + 1 :]]

    return change


STARTS = ("certificates_at", ".terms_at", ".sides_at", ".ends_at", ".balls_at", ".ball_axes_at")
INCONSISTENT: dict[str, Callable[[files.Body], files.Body]] = {
    "an id less": field("ids", lambda ids: ids[:-1]),
    "an id more": field("ids", lambda ids: [*ids, "z"]),
    "an id twice": field("ids", lambda ids: ["b", *ids[1:]]),
    "ids of two kinds": field("ids", lambda ids: [1, *ids[1:]]),
    "an id of 65 bits": field("ids", lambda ids: [2**64 - 1 - at for at in range(len(ids))]),
    "an owner of nobody": field("owners", lambda owners: {6: "x"}),
    "an owner of -1": field("owners", lambda owners: {-1: "x"}),
    "an expiry of nobody": field("expiries", lambda expiries: {99: 5.0}),
    "an expiry of -1": field("expiries", lambda expiries: {-1: 5.0}),
    "an expiry that is no time": field("expiries", lambda expiries: {0: float("nan")}),
    "no such space": field("space", lambda text: "{}"),
    "another space": field("space", lambda text: text.replace("double", "date")),
    "a space without strings": field("space", lambda text: text.replace("string", "int")),
    "an attribute less": field("space", lambda text: Space.parse("name string, x double").to_json()),
    "a smaller domain": field("space", lambda text: text.replace("99", "9")),
    "no such engine": field("cover", lambda cover: "magic"),
    "no such option": field("options", lambda options: {"magic": 1}),
    "an option that is an argument": field("options", lambda options: {"space": 1}),
    "labels missing": field("labels", lambda labels: []),
    "labels twice": field("labels", lambda labels: labels * 2),
    "labels that do not ascend": field("labels", lambda labels: [(labels[0][0], packing.pack_ints([0] * 99))]),
    "a label less": field("labels", lambda labels: [(labels[0][0], labels[0][1][:-8])]),
    "cuts that do not ascend": field("labels", lambda labels: [(labels[0][0][::-1], labels[0][1])]),
    "half a label": field("labels", lambda labels: [(labels[0][0], labels[0][1][:-3])]),
    "passive beyond the end": put("passive", at(0, 6)),
    "passive -1": put("passive", at(0, -1)),
    "passive twice": put("passive", at(0, 3)),
    "passive, and nobody is": put("passive", lambda values: []),
    "an active one more is passive": put("passive", lambda values: [*values, 5]),
    "a certificate names nobody": put("certificates", at(0, 6)),
    "a certificate names -1": put("certificates", at(0, -1)),
    "a certificate names a passive one": put("certificates", at(0, 3)),
    "a certificate names itself": put("certificates", at(0, 2)),
    "certificates cut": put("certificates", lambda values: values[:-1]),
    "certificates and more": put("certificates", lambda values: [*values, 0]),
    "half a number": field("certificates", lambda data: data + b"\0\0\0"),
    "half a position": field("passive", lambda data: data[:-1]),
    **{f"{name} without its last": put(name, lambda values: values[:-1]) for name in STARTS},
    **{f"{name} and one more": put(name, lambda values: [*values, values[-1]]) for name in STARTS},
    **{f"{name} beyond the end": put(name, at(-1, 10_000)) for name in STARTS},
    **{f"{name} below the end": put(name, lambda values: [*values[:-1], values[-1] - 1]) for name in STARTS},
    **{f"{name} backwards": put(name, lambda values: values[::-1]) for name in STARTS},
    **{f"{name} from -1": put(name, at(0, -1)) for name in STARTS},
    **{f"{name} from 1": put(name, at(0, 1)) for name in STARTS},
    **{f"{name} half": field(name, lambda data: data[:-4]) for name in STARTS},
    "an axis beyond the space": put(".side_axis", at(0, 3)),
    "an axis -1": put(".side_axis", at(0, -1)),
    "an axis twice in a term": put(".side_axis", lambda values: [2] * len(values)),
    "a side less": put(".side_axis", lambda values: values[:-1]),
    "an end less": put(".ends", lambda values: values[:-1]),
    "an end before its beginning": put(".ends", lambda values: values[::-1]),
    "an end beyond the axis": put(".ends", at(-1, 2**63 - 1)),
    "a beginning before the axis": put(".ends", lambda values: [-(2**63) if v == min(values) else v for v in values]),
    "a ball of another axis": put(".ball_axes", at(0, 7)),
    "a ball of axis -1": put(".ball_axes", at(0, -1)),
    "a ball of strings": put(".ball_axes", at(0, 0)),
    "a ball less": field(".radii", lambda data: b""),
    "a ball more": field(".radii", lambda data: data * 2),
    "half a radius": field(".radii", lambda data: data[:-2]),
    "a centre less": field(".centres", lambda data: data[:-8]),
    "half a centre": field(".centres", lambda data: data[:-2]),
}


@quietly
@pytest.mark.parametrize("what", list(INCONSISTENT))
def test_parts_that_do_not_fit_together(what: str, written: bytes, tmp_path: Path) -> None:
    """The checksum is right, and yet this is no table: a program that is wrong, or somebody's malice, wrote it."""
    path = tmp_path / "t"
    path.write_bytes(written)
    files.write(path, INCONSISTENT[what](files.read(path)))
    with pytest.raises(SnapshotError):
        SubscriptionTable.load(path)


def test_a_body_that_was_not_changed_loads(written: bytes, tmp_path: Path) -> None:
    """The same way of writing, without a change."""
    path = tmp_path / "t"
    path.write_bytes(written)
    files.write(path, put(".ends", lambda values: values)(field("ids", list)(files.read(path))))
    assert path.read_bytes() == written
    table = SubscriptionTable.load(path)
    assert list(table) == ["a", "b", "p", "q", "o", "c"] and table["b"].owner == "owner b" and table["a"].expires == 0
    table.check_invariants()


@quietly
def test_numbers_that_were_changed(written: bytes, tmp_path: Path) -> None:
    """Any number of any array replaced: a table or a SnapshotError, never another error."""
    path, random = tmp_path / "t", Random(SEED)
    path.write_bytes(written)
    body = files.read(path)
    arrays = ["passive", *STARTS, "certificates", ".side_axis", ".ends", ".ball_axes"]
    for _ in range(soaked(80, 150)):
        name = random.choice(arrays)
        values = numbers(getattr(body.regions if name.startswith(".") else body, name.lstrip(".")))
        place = random.randrange(len(values))
        value = random.choice((-1, 0, 1, 2, 5, 6, 50, 2**40, -(2**63), 2**63 - 1, values[place] + 1, values[place] - 1))
        files.write(path, put(name, at(place, value))(body))
        try:
            SubscriptionTable.load(path)
        except SnapshotError:
            pass
        except Exception as error:
            pytest.fail(f"{name}[{place}] = {value}: {error!r}")
