"""Events from whatever somebody has: tables, frames, paths."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from thatch.errors import CallerError
from thatch.local.csv_events import CsvEvents
from thatch.local.events import EventSource, ParquetEvents, TableEvents
from thatch.local.files import Format, delimited, files_in, one_kind
from thatch.local.json_lines import JsonEvents


def events_of(given: Any, format: Format) -> EventSource:
    """Events from an Arrow table, a pandas or Polars frame, or the path of files."""
    if isinstance(given, str) or hasattr(given, "__fspath__") or _are_paths(given):
        paths = [str(each) for each in given] if isinstance(given, list | tuple) else [str(given)]
        kind, files = one_kind(paths, format), files_in(paths)
        if kind == "parquet":
            return ParquetEvents(files)
        if kind == "csv":
            return CsvEvents(files, delimited(files, format))
        if format.multiline:
            raise CallerError(f"{paths[0]}: JSON over several lines is read on Spark only")
        return JsonEvents(files)
    return TableEvents(table_of(given, "events"))


def _are_paths(given: Any) -> bool:
    return isinstance(given, list | tuple) and bool(given) and all(isinstance(each, str) for each in given)


def table_of(given: Any, what: str) -> pa.Table:
    """An Arrow table from whatever gives one: Arrow's own, pandas, and all with the Arrow PyCapsule interface."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if type(given).__module__.split(".")[0] == "pandas":
        return pa.Table.from_pandas(given, preserve_index=False)
    if hasattr(given, "__arrow_c_stream__"):
        table = pa.table(given)
        return table.cast(pa.schema([field.with_type(_without_views(field.type)) for field in table.schema]))
    raise CallerError(
        f"{what} are an Arrow table, a pandas or Polars frame, or the path of files{_or_mapping(what)}, not "
        f"{type(given).__name__}"
    )


def _or_mapping(what: str) -> str:
    return ", or a mapping of ids to clauses" if what == "subscriptions" else ""


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Polars has strings as views, of which Arrow cannot take rows."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return pa.struct([field.with_type(_without_views(field.type)) for field in fields])
    if pa.types.is_large_list(kind):
        return pa.large_list(_without_views(kind.value_type))
    return kind
