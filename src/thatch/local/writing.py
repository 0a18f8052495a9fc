"""Folders of results, as Spark writes them: all of it or nothing, and what was there before stays until then."""

from __future__ import annotations

import math
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import IO, Any

import msgspec
import pyarrow as pa

from thatch.errors import CallerError

DONE = "_SUCCESS"  # the file that Spark puts into a folder that is complete


KINDS = ("parquet", "csv", "json")
OTHER_KINDS = re.compile(
    r"\.(xlsx?|ods|docx?|txt|html?|pdf|tsv|xml|ya?ml|toml|avro|orc|arrow|feather|db|sqlite|jsonl|ndjson|gz|zip)/?$"
)


def output_kind(path: str | None, given: str | None = None) -> str:
    """By the name of a folder: Parquet unless it says otherwise. `given`: the kind that was asked for."""
    named = re.search(r"\.(parquet|csv|json)/?$", path or "")
    if named and given not in (None, named[1]):
        raise CallerError(f"{path} is {named[1]} by its name, and {given} was asked for: leave one of them out")
    if given is None and OTHER_KINDS.search(path or ""):
        raise CallerError(f"{path}: a result is Parquet, CSV or JSON: call it NAME.parquet, NAME.csv or NAME.json")
    return given or (named[1] if named else "parquet")


def check_can_write(path: str) -> None:
    """Refuse a path at which no folder can be made, before the work is done."""
    above = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise CallerError(f"{path} cannot be written there: {os.path.relpath(above)} is a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise CallerError(f"{path} cannot be written there: permission denied")


def cannot_write(path: str, error: OSError) -> CallerError:
    return CallerError(f"{path} cannot be written there: {(error.strerror or type(error).__name__).lower()}")


class OutputFolder:
    """A folder with one file, Parquet, CSV or JSON lines. What is there already is replaced when all is written."""

    def __init__(self, path: str, kind: str, schema: pa.Schema, overwrite: bool, option: str = "another path") -> None:
        self.path, self.kind, self.schema = path.rstrip("/"), kind, schema
        if os.path.exists(self.path) and not overwrite:
            raise CallerError(f"{path} exists already: choose {option}, or give --overwrite")
        if os.path.exists(self.path) and not os.path.exists(os.path.join(self.path, DONE)):
            raise CallerError(f"{path} was not written by Thatch (it has no {DONE}): remove it, or choose another path")
        check_can_write(self.path)
        self._part = f"{self.path}.{secrets.token_hex(8)}.part"
        self._sink: Any = None
        self.rows = 0

    def check_keeps(self, inputs: Sequence[str]) -> None:
        """What is read must not be written over."""
        own = os.path.abspath(self.path)
        for each in inputs:
            if os.path.abspath(each) == own or os.path.abspath(each).startswith(f"{own}/"):
                raise CallerError(f"{self.path} holds {each}, which is read: choose another path")

    def write(self, batch: pa.RecordBatch) -> None:
        if self._sink is None:
            self._open()
        self.rows += batch.num_rows
        if self.kind == "parquet":
            self._sink.write_batch(batch)
        elif self.kind == "json":
            for row in batch.to_pylist():
                self._sink.write(json_line(row))
        else:
            for row in batch.to_pylist():
                self._sink.write(",".join(map(_csv, row.values())) + "\n")

    def _open(self) -> None:
        try:
            os.makedirs(self._part)
        except OSError as error:
            raise cannot_write(self.path, error) from None
        file = os.path.join(self._part, f"part-00000.{self.kind}")
        if self.kind == "parquet":
            import pyarrow.parquet as pq

            self._sink = pq.ParquetWriter(file, self.schema)
            return
        sink: IO[str] = open(file, "w", encoding="utf-8", newline="")  # noqa: SIM115
        self._sink = sink
        if self.kind == "csv":
            for field in self.schema:
                if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                    raise CallerError(
                        f"CSV has no place for the column {field.name!r}, which is {field.type}: let the output be "
                        "called NAME.parquet or NAME.json"
                    )
            sink.write(",".join(map(_csv, self.schema.names)) + "\n")

    def finish(self) -> None:
        if self._sink is None:
            self._open()
        self._sink.close()
        with open(os.path.join(self._part, DONE), "w", encoding="utf-8"):
            pass
        self.remove()
        os.rename(self._part, self.path)

    def remove(self) -> None:
        """What was there before."""
        if os.path.isdir(self.path):
            shutil.rmtree(self.path)

    def give_up(self) -> None:
        if self._sink is not None:
            self._sink.close()
        shutil.rmtree(self._part, ignore_errors=True)


def _time(value: datetime) -> str:
    """Always with microseconds, so that all of a column is written alike."""
    return value.isoformat(timespec="microseconds").replace("+00:00", "Z")


_ENCODER = msgspec.json.Encoder(decimal_format="number")


def json_line(row: dict[str, Any]) -> str:
    """A row as Spark writes it: decimals are numbers with all their digits, times are text.

    >>> json_line({"a": Decimal("70269288912859408588264.135460"), "b": None, "c": float("nan")})
    '{"a":70269288912859408588264.135460,"b":null,"c":"NaN"}\\n'
    """
    return _ENCODER.encode(_json(row)).decode() + "\n"


def _json(value: Any) -> Any:
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, Decimal):
        return Decimal(f"{value:f}")
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    return value


def _csv(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return _time(value)
    text = str(_json(value) if isinstance(value, float) else value)
    if not text or any(mark in text for mark in ',"\n\r') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text
