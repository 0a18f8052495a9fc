"""The folders that `thatch learn` and `thatch audit` write, and what their summaries say, whichever engine does it."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thatch.cli.request import Request
from thatch.cli.rules_request import AuditRequest
from thatch.errors import CallerError
from thatch.local.writing import cannot_write, check_can_write
from thatch.reports.audit import Audit

if TYPE_CHECKING:
    import pyarrow as pa

    from thatch.reports.learn import Learned

SHORT = ("selectivity", "cells", "pairs", "regions")  # tables of what was learnt that do not grow with what there is
LONG = ("matches", "phi")


def check_report(request: Request) -> None:
    """Refuse an output that is there already, unless it may be replaced and we wrote it."""
    folder = Path(request.output or "")
    if request.output is None:
        return
    if not folder.exists():
        check_can_write(request.output)
        return
    if not request.overwrite:
        raise CallerError(f"{folder} exists already: choose another path, or give --overwrite")
    if not folder.is_dir() or not any((folder / name).exists() for name in ("learn.html", "audit.html")):
        raise CallerError(f"{folder} was not written by this command: remove it, or choose another path")


@contextmanager
def report_folder(request: Request) -> Iterator[Path]:
    """A new folder that takes the place of the output when all is written; nothing is left of a failure."""
    assert request.output is not None
    folder = Path(request.output)
    part = folder.with_name(f"{folder.name}.{secrets.token_hex(8)}.part")
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(request.output, error) from None
    try:
        yield part
        if folder.exists():
            shutil.rmtree(folder)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def written_audit(found: Audit, request: AuditRequest) -> dict[str, Any]:
    """What the summary says; page and JSON go into the folder."""
    summary: dict[str, Any] = {"rules": found.rules, "kept": found.kept, "redundant": len(found.findings)}
    summary |= {"never_fired": len(found.never_fired)} if found.events is not None else {}
    summary |= {"duplicates": len(found.duplicates), "mergers": len(found.mergers), "saves": found.totals}
    if request.output is not None:
        with report_folder(request) as folder:
            (folder / "audit.html").write_text(found.page(), encoding="utf-8")
            (folder / "audit.json").write_text(json.dumps(found.to_json(), indent=1) + "\n", encoding="utf-8")
        summary["output"] = request.output
    return summary


def learnt_summary(found: Learned[Any]) -> dict[str, Any]:
    """What the summary says of what was learnt."""
    from thatch.reports.learn import listed

    return {
        "events": found.events,
        "subscriptions": found.subscriptions,
        "attributes": found.attributes,
        "selectivity": sorted(listed(found.selectivity), key=lambda row: row["place"]),
        "regions": listed(found.regions),
    }


def write_table(folder: Path, name: str, rows: pa.Table) -> None:
    import pyarrow.parquet as pq

    (folder / name).mkdir()
    pq.write_table(rows, folder / name / "part-0.parquet")


def write_learnt_page(found: Learned[Any], folder: Path) -> None:
    """The page, and the options of a cover engine."""
    (folder / "learn.html").write_text(found.page(), encoding="utf-8")
    options = {name: list(map(str, starts)) for name, starts in found.hilbert()["cells"].items()}
    hilbert = {"attributes": found.attributes, "cells": options}
    (folder / "hilbert.json").write_text(json.dumps(hilbert, indent=1) + "\n", encoding="utf-8")
