"""Files, folders and globs: which files they are, and what these hold by their names."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from thatch.errors import CallerError, closest

SUFFIXES = {"parquet": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}
RULE_SUFFIXES = SUFFIXES | {"yaml": "yaml", "yml": "yaml", "toml": "toml"}  # of files of rules
COMPRESSED = {"gz", "bz2", "zst", "lz4", "snappy"}


@dataclass(frozen=True)
class Format:
    """How text files are written: format, delimiter, records over several lines."""

    kind: str | None = None  # None: by the names of the files
    delimiter: str = ","
    multiline: bool = False


def kind_of(path: str, suffixes: Mapping[str, str] = SUFFIXES) -> str | None:
    """The kind of a file, a folder or a glob, by its name or by those of the files in it; None if they do not tell."""
    named = _kind_of_name(path, suffixes)
    if named is None and os.path.isdir(path):
        return next(filter(None, (_kind_of_name(each, suffixes) for each in _inside(path))), None)
    if named is None and glob.has_magic(path):
        return next(filter(None, (kind_of(each, suffixes) for each in sorted(glob.glob(path)))), None)
    return named


def _kind_of_name(path: str, kinds: Mapping[str, str]) -> str | None:
    suffixes = [each.lstrip(".").lower() for each in PurePosixPath(path.rstrip("/")).suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return kinds.get(suffixes[-1]) if suffixes else None


def one_kind(paths: Sequence[str], format: Format) -> str:
    """The kind of all these; an error if they are of several, or do not tell."""
    kinds = {format.kind or kind_of(path) for path in paths}
    if None in kinds or len(kinds) > 1:
        what = "are of several kinds" if len(kinds) > 1 else "do not tell their kind by their names"
        raise CallerError(f"{', '.join(paths)}: {what}; give --input-format parquet, csv or json")
    return str(kinds.pop())


def has_scheme(path: str) -> bool:
    return re.match(r"\w+:", path) is not None


def files_in(paths: Sequence[str]) -> list[str]:
    """The files that paths name, in order; those in folders whose names begin with a dot or a low line are left out,
    as Spark does. A file that exists is meant, even if its name looks like a pattern."""
    found: list[str] = []
    for path in paths:
        if os.path.isfile(path):
            found.append(path)
        elif os.path.isdir(path):
            found += _inside(path)
        else:
            matches = sorted(glob.glob(path)) if glob.has_magic(path) else []
            if not matches:
                raise CallerError(no_such_file(path))
            found += files_in(matches)
    if not found:
        raise CallerError(f"{', '.join(paths)}: holds no files")
    return found


def _inside(folder: str) -> list[str]:
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        found += [os.path.join(place, name) for name in sorted(names) if name[0] not in "._"]
    return found


def no_such_file(path: str) -> str:
    """What to say of a path that leads nowhere: a file of a similar name, or that it is no path at all."""
    folder, name = os.path.split(path)
    try:
        close = closest(name, sorted(os.listdir(folder or ".")))
    except OSError:
        close = None
    if close is not None:
        return f"{path}: no such file or folder (did you mean {os.path.join(folder, close)!r}?)"
    hint = ": clauses stand in a file, one a line; --where - reads them from standard input"
    return f"{path}: no such file or folder{hint if re.search('[<>=]', path) else ''}"


def read_problem(error: BaseException) -> str:
    """Why a file of text cannot be read: the system's reason, or that its bytes are not what they should be."""
    if isinstance(error, OSError) and error.strerror and error.errno:
        return os.strerror(error.errno).lower()
    return "it is damaged, or another kind of file"


def parquet_problem(path: str) -> str:
    """Why a file cannot be read as Parquet."""
    mark = b"PAR1"
    try:
        with open(path, "rb") as file:
            head, size = file.read(4), os.fstat(file.fileno()).st_size
    except OSError as failure:
        return failure.strerror or type(failure).__name__
    if not size:
        return "it is empty"
    return "it is a Parquet file that is damaged or not whole" if head == mark else "it is another kind of file"
