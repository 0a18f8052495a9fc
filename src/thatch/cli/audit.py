"""`thatch audit`: a report over a rule set."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, as_text
from thatch.cli.engine_choice import add_engine, chosen_engine
from thatch.cli.parser import number
from thatch.cli.rules_request import AuditRequest
from thatch.cli.table_arguments import add_rules, request_fields, seconds_text, skipped_text
from thatch.cli.tabular import counted
from thatch.reports.audit import DUPLICATE, EMPTY, INSIDE, UNION, Audit, short

SHOWN = 10  # findings, and as many rules that never fired, and mergers
IN_WORDS = {
    DUPLICATE: "said twice",
    INSIDE: "within another one",
    UNION: "within several together",
    EMPTY: "matching nothing",
}


def add(commands: Any) -> None:
    command = commands.add_parser(
        "audit",
        help="report duplicates, redundant rules with their proof, and mergers",
        description="Report on a rule set: rules that match nothing, duplicates, rules that others make redundant, "
        "with the proof in words, rules that never fire on the given events, rules that could be merged, and what it "
        "saves. Exit status 1 if a rule is redundant.",
        epilog="example: thatch audit --space 'price double, symbol string' --where alerts.txt --output report",
    )
    add_engine(command)
    add_rules(command, "a folder for audit.html and audit.json")
    command.add_argument(
        "--merge",
        type=number,
        default=0.0,
        metavar="SHARE",
        help="suggest mergers that add at most this share (default 0: perfect ones)",
    )
    command.add_argument(
        "--events", action="append", default=[], metavar="FILE", help="events to count matches of; as for match"
    )
    add_json(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    request = AuditRequest(**request_fields(options), merge=options.merge)
    engine, why = chosen_engine(options, request)
    found, done = engine.audit(request)
    result = {"engine": engine.name, "engine_reason": why} | done
    if options.json:
        print(as_text(result if options.output else {**result, "audit": found.to_json()}))
    else:
        print("\n".join(summary(found, result)))
    return NO if found.findings else OK


def summary(found: Audit, result: Mapping[str, Any]) -> Iterator[str]:
    redundant = {each.id for each in found.findings}
    silent = found.never_fired
    sections = (
        [f"{each.sentence}\n    {short(each.where)}" for each in found.findings],
        [
            f"{id!r}{', which is redundant,' if id in redundant else ''} never fired on the {found.events:,} events.\n"
            f"    {short(found.clauses[id])}"
            for id in silent
        ],
        [each.sentence for each in found.mergers],
    )
    for sentences in sections:
        yield from sentences[:SHOWN]
        if len(sentences) > SHOWN:
            more = "--output PATH writes them all" if "output" not in result else "they are in the report"
            yield f"… and {len(sentences) - SHOWN:,} more; {more}"
    counts = Counter(each.kind for each in found.findings)
    kinds = ", ".join(f"{counts[kind]:,} {IN_WORDS[kind]}" for kind in IN_WORDS if counts[kind])
    yield (
        f"{counted(found.rules, 'rule')}; {found.kept:,} are enough, {len(found.findings):,} are redundant"
        f"{f' ({kinds})' if kinds else ''}, {counted(len(found.mergers), 'merger')} possible, {seconds_text(result)}"
    )
    if found.events is not None:
        yield f"{counted(len(silent), 'rule')} never fired on {counted(found.events, 'event')}"
    yield from skipped_text(result)
    yield f"engine {result['engine']}: {result['engine_reason']}"
    if "output" in result:
        yield f"written to {result['output']}: audit.html shows it, audit.json has all of it"
