"""A store of an older version becomes one of today, whatever it is interrupted by, and loses nothing."""

from __future__ import annotations

import logging
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from helpers import version_1
from helpers.killed_store import Killer
from helpers.stores import contents
from thatch.errors import StoreError
from thatch.node.migrations import STEPS, read_mark
from thatch.node.schema import SCHEMA, VERSION
from thatch.node.store import Store

CHANCE = random.Random(5)
ALL_STEPS = [*STEPS[:5], *STEPS[5:7], *STEPS[5:7], *STEPS[5:7], *STEPS[7:]]  # three versions to go through


def some_events(count: int, size: int = 40) -> Iterator[tuple[str, int, float, bytes]]:
    """For a durable subscription, a neighbour, and one that was forgotten and left events behind."""
    for number in range(count):
        queue = ("B2", "bob@far", "bob@far", "B9")[number % 4]
        yield queue, (7 << 40) + number, 1.7e9 + number / 7, CHANCE.randbytes(size + number % 300)


def written(folder: Path, events: int = 40, size: int = 40) -> Path:
    version_1.write(folder / "s", some_events(events, size))
    return folder / "s"


def taken(path: Path, to: Path) -> Path:
    """The files of a store and its copies, as a crash leaves them, to look at."""
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for file in path.parent.glob("s*"):
        shutil.copy(file, to / file.name)
    return to / path.name


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as store:
        return int(store.execute("PRAGMA user_version").fetchone()[0])


def copies(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.glob("s.version-*"))


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with Killer() as found:
        yield found


def test_an_older_store_is_migrated_and_its_copy_is_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path)
    old = version_1.rows(path)
    steps: list[str] = []
    with caplog.at_level(logging.INFO):
        store = Store(path, "B1", steps.append)
    assert contents(store) == version_1.expected(old)
    assert store.lives()[-1].ordinal == 8 and steps == ALL_STEPS
    store.stop()
    again = Store(path, "B1", steps.append)
    assert contents(again) == version_1.expected(old) and steps == ALL_STEPS, "once is enough"
    again.stop()
    copy = tmp_path / "s.version-1"
    assert copies(path) == [copy.name] and f"{copy} is a copy" in caplog.text
    assert version_1.rows(copy) == old, "a program of version 1 reads it"
    with closing(sqlite3.connect(copy)) as found:
        mark = read_mark(found)
        assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert mark is not None and (mark.version, mark.life) == (1, 7)


def test_a_migrated_store_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    Store(written(tmp_path), "B1").stop()
    Store(tmp_path / "new", "B1").stop()
    tables = []
    for name in ("s", "new"):
        with closing(sqlite3.connect(tmp_path / name)) as store:
            query = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
            tables.append(store.execute(query).fetchall())
    assert tables[0] == tables[1]
    assert {name for kind, name, _, _ in tables[0] if kind == "table"} == SCHEMA.keys()


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_each_step(step: str, killer: Killer, tmp_path: Path) -> None:
    path = written(tmp_path)
    old = version_1.rows(path)
    assert killer.open(path, step)[0]
    now = taken(path, tmp_path / "now")
    is_migrated = STEPS.index(step) >= STEPS.index("committed")
    assert version_of(now) == (VERSION if is_migrated else 1)
    if not is_migrated:
        assert version_1.rows(now) == old
    store = Store(path, "B1")
    assert contents(store) == version_1.expected(old)
    store.stop()
    assert copies(path) == ["s.version-1"] and version_1.rows(tmp_path / "s.version-1") == old


@pytest.mark.parametrize(("events", "kills"), [(1_000, 3), (200_000, 50)], ids=["few", "many"])
@pytest.mark.soak("many")
def test_killed_at_any_moment(events: int, kills: int, killer: Killer, tmp_path: Path) -> None:
    path = written(tmp_path, events)
    old = version_1.rows(path)
    wanted = version_1.expected(old)
    (tmp_path / "trial").mkdir()
    trial = tmp_path / "trial" / "s"
    shutil.copy(path, trial)
    _, whole, _ = killer.open(trial)
    moments: Counter[tuple[str, int]] = Counter()  # the last step before it was killed, and the version found
    while moments.total() < kills:
        shutil.rmtree(trial.parent)
        trial.parent.mkdir()
        shutil.copy(path, trial)
        moment = CHANCE.uniform(0.0, 1.3 * whole)
        was_killed, took, step = killer.open(trial, seconds=moment)
        if not was_killed:
            whole = took  # the machine is as fast as it is now
            continue
        whole = max(whole, moment)
        if CHANCE.random() < 0.3:
            killer.open(trial, seconds=CHANCE.uniform(0.0, whole))  # and again, while it recovers
        now = taken(trial, tmp_path / "now")
        version = version_of(now)
        moments[step, version] += 1
        if version == 1:
            assert version_1.rows(now) == old
        store = Store(trial, "B1")
        assert contents(store) == wanted
        store.stop()
        assert copies(trial) == ["s.version-1"] and version_1.rows(trial.with_name("s.version-1")) == old
    assert {version for _, version in moments} <= {1, VERSION}
    logging.getLogger("thatch.node").info("%d events, %.2f s for a migration: %s", events, whole, dict(moments))


def test_a_copy_of_another_moment_is_not_taken_for_one_of_this(tmp_path: Path) -> None:
    """A restored copy went on under the older program, and is migrated again."""
    path = written(tmp_path)
    Store(path, "B1").stop()
    first = version_1.rows(tmp_path / "s.version-1")
    shutil.copy(tmp_path / "s.version-1", path)
    (tmp_path / "s.version-1.draft").write_bytes(b"of a copy that was killed")
    Store(path, "B1").stop()
    assert copies(path) == ["s.version-1"], "nothing has changed: it is the same copy"
    shutil.copy(tmp_path / "s.version-1", path)
    with closing(sqlite3.connect(path)) as store:
        store.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", version_1.event_row("B2", 9 << 40, 1.0, b"later"))
        store.commit()
    later = version_1.rows(path)
    Store(path, "B1").stop()
    assert copies(path) == ["s.version-1", "s.version-1.2"]
    assert version_1.rows(tmp_path / "s.version-1") == first and version_1.rows(tmp_path / "s.version-1.2") == later


def test_too_little_space_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = written(tmp_path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"takes [\d,]+ bytes for a copy and the new tables; 1,000,000 bytes are free"):
        Store(path, "B1", free_bytes=lambda folder: 1_000_000)
    assert path.read_bytes() == before and copies(path) == []
    Store(path, "B1").stop()


@pytest.mark.parametrize(("events", "size"), [(1_000, 1), (10, 200_000)])
def test_the_space_that_is_asked_for_is_enough(events: int, size: int, tmp_path: Path) -> None:
    path = written(tmp_path, events, size)
    most = 0

    def look(step: str) -> None:
        nonlocal most
        most = max(most, sum(each.stat().st_size for each in tmp_path.glob("s*")))

    with pytest.raises(StoreError) as refused:
        Store(path, "B1", free_bytes=lambda folder: 0)
    asked = int(str(refused.value).split("takes ")[1].split(" bytes")[0].replace(",", ""))
    before = path.stat().st_size
    Store(path, "B1", look).stop()
    assert most - before <= asked <= 2 * (most - before) + 2**20


def test_a_store_of_a_newer_version_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "s"
    Store(path, "B1").stop()
    with closing(sqlite3.connect(path)) as store:
        store.execute(f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()
    wanted = (
        f"has version {VERSION + 1}; this program reads versions 1 to {VERSION}.*install that one again, or restore"
    )
    with pytest.raises(StoreError, match=wanted):
        Store(path, "B1")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (("subscriptions", "eve", "B1/eve/s", "TRUE", None), "came over a link that is not there .*eve"),
        (("grants", "eve", "g", "TRUE", None), "a record is of an unknown kind .grants, eve, g"),
    ],
)
def test_what_does_not_fit_together_stays_as_it_is(record: tuple[object, ...], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    version_1.write(path, some_events(10), (*version_1.RECORDS, record))
    old = version_1.rows(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=reason):
            Store(path, "B1")
        assert version_1.rows(path) == old and copies(path) == ["s.version-1"]


def test_a_damaged_row_of_an_older_store_is_found_before_it_is_migrated(tmp_path: Path) -> None:
    path = written(tmp_path)
    with closing(sqlite3.connect(path)) as store:
        store.execute("UPDATE events SET at = at + 1 WHERE queue = 'B2' AND number = (7 << 40) + 8")
        store.commit()
    with pytest.raises(StoreError, match="checksum of a row of events is wrong"):
        Store(path, "B1")
    assert version_of(path) == 1 and copies(path) == []
