"""The strategy `files` reads Parquet itself: it must read what Spark reads, whoever wrote it, and each row once."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers.clause_rows import make_rows, make_table
from helpers.spark_oracles import SEED, at_once, frame_of, settings, value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
from thatch.spark.matching import files
from thatch.spark.matching.files import Piece, pieces, plain_scan, read_all

Writer = Callable[[pa.Table, str], None]


def by_arrow(**options: Any) -> Writer:
    return lambda table, path: pq.write_table(table, path, **options)


WRITERS: dict[str, Writer] = {
    "plain": by_arrow(),
    "version 1.0": by_arrow(version="1.0", coerce_timestamps="us"),
    "INT96": by_arrow(use_deprecated_int96_timestamps=True),
    "no dictionary, zstd, pages of version 2": by_arrow(
        use_dictionary=False, compression="zstd", data_page_version="2.0"
    ),
    "small row groups": by_arrow(row_group_size=7, store_schema=False),
    "decimals as integers": by_arrow(store_decimal_as_integer=True),
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return make_table(make_rows(Random(SEED), 100))


def same(spark: SparkSession, path: str) -> tuple[pa.Table, pa.Table]:
    """What we read and what Spark reads."""
    frame = spark.read.parquet(path)
    scan = plain_scan(frame)
    assert scan is not None
    return read_all(scan), frame.toArrow()


def as_text(table: pa.Table) -> list[str]:
    """Rows, sorted; text, so that NaN equals itself and -0.0 does not equal 0.0."""
    return sorted(map(repr, table.to_pylist()))


def test_every_writer_and_type(spark: SparkSession, table: pa.Table, tmp_path: Path) -> None:
    calls = {}
    for place, (name, write) in enumerate(WRITERS.items()):
        path = str(tmp_path / f"{place}.parquet")
        write(table, path)
        calls[name] = lambda path=path: same(spark, path)
    for name, found in at_once(calls).items():
        ours, sparks = value(found)
        assert ours.schema.types == sparks.schema.types, name
        assert as_text(ours) == as_text(sparks), name
        assert ours.num_rows == len(table), name


def test_sparks_own_formats(spark: SparkSession, table: pa.Table, tmp_path: Path) -> None:
    frame = frame_of(spark, table)
    formats = {"INT96": "false", "TIMESTAMP_MICROS": "true", "TIMESTAMP_MILLIS": "false"}
    for kind, legacy in formats.items():
        path = str(tmp_path / kind)
        changes = {"spark.sql.parquet.outputTimestampType": kind, "spark.sql.parquet.writeLegacyFormat": legacy}
        with settings(spark, changes):
            frame.coalesce(1).write.parquet(path)
        ours, sparks = same(spark, path)
        assert as_text(ours) == as_text(sparks), kind
        assert kind == "TIMESTAMP_MILLIS" or as_text(ours) == as_text(table), kind


ODD_TYPES: dict[str, pa.Array] = {
    "uint8": pa.array([0, 255, None], pa.uint8()),
    "uint16": pa.array([0, 65535, None], pa.uint16()),
    "uint32": pa.array([0, 2**32 - 1, None], pa.uint32()),
    "int8": pa.array([-128, 127, None], pa.int8()),
    "large_string": pa.array(["a", "é😀", None], pa.large_string()),
    "string_view": pa.array(["a", "a string of more than twelve bytes", None], pa.string_view()),
    "categories": pa.array(["a", "b", None]).dictionary_encode(),
    "date64": pa.array([date(2020, 2, 29), date(1, 1, 1), None], pa.date64()),
    "timestamp[s]": pa.array([datetime(2020, 1, 1), None, None], pa.timestamp("s", "UTC")),
    "timestamp[ms] of Paris": pa.array([datetime(2020, 1, 1), None, None], pa.timestamp("ms", "Europe/Paris")),
    "timestamp without zone": pa.array([datetime(2020, 1, 1), None, None], pa.timestamp("us")),
    "float": pa.array([1.5, math.inf, None], pa.float32()),
    "binary": pa.array([b"a", b"", None], pa.large_binary()),
    "fixed binary": pa.array([b"ab", b"cd", None], pa.binary(2)),
    "decimal(38,5)": pa.array([Decimal("1.5"), Decimal("-7.00001"), None], pa.decimal128(38, 5)),
    "decimal of 32 bits": pa.array([Decimal("1.5"), Decimal("-7.01"), None], pa.decimal32(7, 2)),
    "list": pa.array([["a"], [], None], pa.large_list(pa.large_string())),
    "struct": pa.array([{"x": 1, "y": "q"}, {"x": None, "y": None}, None]),
    "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "duration": pa.array([1, 2, None], pa.duration("us")),
    "bool": pa.array([True, False, None]),
}


def test_other_columns_of_odd_types(spark: SparkSession, tmp_path: Path) -> None:
    """As pandas, Polars and others write them: Arrow keeps its own types next to those of Parquet."""
    calls = {}
    for place, (name, column) in enumerate(ODD_TYPES.items()):
        path = str(tmp_path / f"{place}.parquet")
        pq.write_table(pa.table({"column": column}), path)
        calls[name] = lambda path=path: same(spark, path)
    wrong = []
    for name, found in at_once(calls).items():
        if isinstance(found, Exception):
            wrong.append(f"{name}: {found}")
            continue
        ours, sparks = found
        if as_text(ours) != as_text(sparks) or ours.schema.types != sparks.schema.types:
            wrong.append(f"{name}: {ours.column(0)} for {sparks.column(0)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_pieces_hold_each_row_once(cores: int, table: pa.Table, tmp_path: Path) -> None:
    """Files of one row group, of many and of none, cut into pieces without regard to where row groups begin."""
    wanted, paths = [], []
    for place, size in enumerate((7, 1000, 1, 33)):
        part = table.append_column("file", pa.array([place] * len(table))).slice(0, 0 if place == 2 else None)
        paths.append(str(tmp_path / f"{place}.parquet"))
        pq.write_table(part, paths[-1], row_group_size=size)
        wanted += as_text(part)
    for smallest in (50, 1000, 10**7):
        tasks = pieces(paths, cores, smallest, 4 * smallest)
        assert all(tasks)
        schema = pq.read_schema(paths[0])
        batches = [batch for task in tasks for piece in task for batch in files.read(piece, schema)]
        assert as_text(pa.Table.from_batches(batches, schema)) == sorted(wanted)


def test_what_is_no_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"x\.parquet: cannot be read as Parquet"):
        list(files.read(Piece(str(path), 0, 8), pa.schema([("x", pa.int64())])))
