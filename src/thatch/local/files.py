"""Files, folders and globs: which files they are, and what these hold by their names."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from thatch.errors import CallerError, closest, shown

SUFFIXES = {"parquet": "parquet", "csv": "csv", "tsv": "csv", "json": "json", "jsonl": "json", "ndjson": "json"}
RULE_SUFFIXES = SUFFIXES | {"yaml": "yaml", "yml": "yaml", "toml": "toml"}  # of files of rules
DAMAGED = "it is a Parquet file that is damaged or not whole"
COMPRESSED = {"gz", "bz2", "zst", "lz4", "snappy"}


@dataclass(frozen=True)
class Format:
    """How text files are written: format, delimiter, records over several lines."""

    kind: str | None = None  # None: by the names of the files
    delimiter: str = ","
    multiline: bool = False

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '"\r\n\0':
            raise CallerError(f"delimiter is one character, such as ';', not {shown(self.delimiter)}")


def kind_of(path: str, suffixes: Mapping[str, str] = SUFFIXES) -> str | None:
    """The kind of a file, a folder or a glob, by its name or by those of the files in it; None if they do not tell."""
    named = _kind_of_name(path, suffixes)
    if named is None and os.path.isdir(path):
        return _kind_of_folder(path, suffixes)
    if named is None and glob.has_magic(path):
        return next(filter(None, (kind_of(each, suffixes) for each in sorted(glob.glob(path)))), None)
    return named


def _kind_of_folder(path: str, suffixes: Mapping[str, str]) -> str | None:
    kinds: dict[str, str] = {}  # and a file of each
    for each in _inside(path):
        kind = _kind_of_name(each, suffixes)
        if kind is not None:
            kinds.setdefault(kind, each)
    if len(kinds) > 1:
        listed = ", ".join(sorted(PurePosixPath(each).suffix for each in kinds.values()))
        raise CallerError(f"{path}: holds files of several kinds ({listed}): give one file, or a folder of one kind")
    return next(iter(kinds), None)


def _kind_of_name(path: str, kinds: Mapping[str, str]) -> str | None:
    suffixes = [each.lstrip(".").lower() for each in PurePosixPath(path.rstrip("/")).suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return kinds.get(suffixes[-1]) if suffixes else None


def one_kind(paths: Sequence[str], format: Format) -> str:
    """The kind of all these; an error if they are of several, or do not tell."""
    found = [kind_of(path) for path in paths]
    for path, kind in zip(paths, found, strict=True):
        is_elsewhere = has_scheme(path) or (format.kind is not None and not glob.has_magic(path))  # Spark may have it
        if kind is None and not (os.path.exists(path) or is_elsewhere or glob.glob(path)):
            raise CallerError(no_such_file(path))
    kinds = {format.kind or kind for kind in found}
    if None in kinds or len(kinds) > 1:
        one = "does not tell its kind by its name" if len(paths) == 1 else "do not tell their kind by their names"
        what = "are of several kinds" if len(kinds) > 1 else one
        raise CallerError(
            f"{', '.join(paths)}: {what}; give --input-format parquet, csv or json, or in "
            "Python a path that ends in .parquet, .csv or .json"
        )
    return str(kinds.pop())


def delimited(paths: Sequence[str], format: Format) -> Format:
    """The format with tabs in place of commas for files called .tsv."""
    are_tabs = all(re.search(r"\.tsv(\.\w+)?$", path.lower()) for path in paths)
    return replace(format, delimiter="\t") if are_tabs and format.delimiter == "," else format


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
    if not os.access(folder, os.R_OK | os.X_OK):
        raise CallerError(f"{folder}: permission denied")
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        found += [os.path.join(place, name) for name in sorted(names) if name[0] not in "._"]
    return found


def no_such_file(path: str) -> str:
    """What to say of a path that leads nowhere: a file of a similar name, or that it is no path at all."""
    if glob.has_magic(path) and not re.search("[<>=]", path):
        return f"no file matches {path}"
    folder, name = os.path.split(path)
    try:
        close = closest(name, sorted(os.listdir(folder or ".")))
    except OSError:
        close = None
    if close is not None:
        return f"{path}: no such file or folder (did you mean {os.path.join(folder, close)!r}?)"
    if not name and not folder:
        return "'': a file has a name"
    hint = (
        ": clauses stand in a file, one a line; --where - reads them from standard input; in Python, they are a "
        "mapping of ids to clauses"
    )
    return f"{path}: no such file or folder{hint if re.search('[<>=]', path) else ''}"


def read_problem(error: BaseException) -> str:
    """Why a file of text cannot be read: the system's reason, or that its bytes are not what they should be."""
    if isinstance(error, OSError) and error.strerror and error.errno:
        return os.strerror(error.errno).lower()
    return "it is damaged, or another kind of file"


def decoded(data: bytes, path: str, lines_before: int = 0) -> str:
    """Bytes of a file as text, which is UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = lines_before + data.count(b"\n", 0, error.start) + 1
        known = next((kind for mark, kind in _MARKS.items() if line == 1 and data.startswith(mark)), None)
        what = f"line {line}" if known is None else f"{known}?"
        raise CallerError(f"{path}: not UTF-8 text ({what}): save it as text in UTF-8") from None


# How files begin that are often taken for text.
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"PK": "a spreadsheet", b"PAR1": "Parquet"}


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
    return DAMAGED if head == mark else "it is another kind of file"
