"""What `thatch reduce`, `thatch learn` and `thatch audit` print for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from thatch.cli.tabular import counted, table
from thatch.reports.audit import Audit

SHOWN = 10  # findings, and as many mergers


def reduced_text(result: Mapping[str, Any]) -> Iterator[str]:
    first = result.get("first", ())
    for row in first:
        names = row["covered_by"]
        yield f"{row['id']}: " + (f"covered by {', '.join(map(str, names))}" if names else "no event can match it")
    left = result["passive"] - len(first)
    if first and left:
        yield f"and {left:,} more; --output PATH writes them all"
    yield (
        f"{counted(result['subscriptions'], 'subscription')}: {result['active']:,} active, {result['passive']:,} "
        f"passive, {_seconds(result)}"
    )
    if "mergers" in result:
        yield f"{counted(result['mergers'], 'merger')} of {result['merged']:,} active ones"
    if "output" in result:
        yield f"written to {result['output']}"


def learnt_text(result: Mapping[str, Any]) -> Iterator[str]:
    rows = [["attribute", "leaves", "jointly", "bounded by"]]
    for row in result["selectivity"]:
        rows.append([row["attribute"], *(f"{row[name]:.1%}" for name in ("share", "left", "bounded"))])
    yield table(rows)
    yield f"\nto be indexed: {', '.join(result['attributes'])}"
    for row in result["regions"]:
        events, wanted = counted(row["events"], "event"), counted(row["subscriptions"], "subscription")
        yield f"{events if row['events'] else wanted} and {row['kind']}: {row['where']}"
    events, wanted = counted(result["events"], "event"), counted(result["subscriptions"], "subscription")
    yield f"{events}, {wanted}, {_seconds(result)}"
    if "output" in result:
        yield f"written to {result['output']}: learn.html shows it"


def audited_text(found: Audit, result: Mapping[str, Any]) -> Iterator[str]:
    for each in found.findings[:SHOWN]:
        yield f"{each.id}: {each.where}\n    {each.kind}: {each.proof}"
    for merger in found.mergers[:SHOWN]:
        yield f"{', '.join(map(str, merger.members[:8]))} could be one: {merger.where}"
    yield (
        f"{counted(found.rules, 'rule')}, {found.kept:,} of them say all that all say; {len(found.findings):,} are "
        f"redundant, {counted(len(found.mergers), 'merger')} possible, {_seconds(result)}"
    )
    if "output" in result:
        yield f"written to {result['output']}: audit.html shows it, audit.json has all of it"


def _seconds(result: Mapping[str, Any]) -> str:
    return f"in {result['seconds']:.1f} s, after {result['seconds_to_start_spark']:.1f} s to start Spark"
