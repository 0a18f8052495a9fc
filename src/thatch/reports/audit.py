"""An audit of a rule set: which rules say nothing new, why, in words, and what it saves to be without them.

Every claim has its proof: the rules whose union holds the one that is redundant, or that a merger says.
Whoever reads the report can check each with `thatch covers`, and a test does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from thatch.errors import CallerError, TooManyBoxes
from thatch.region.region import Region
from thatch.reports import page

EMPTY, DUPLICATE, INSIDE, UNION = "matches nothing", "duplicate", "inside one", "inside several"
KINDS = (EMPTY, DUPLICATE, INSIDE, UNION)
NAMED = 4  # rules that a proof names with their parts
SHOWN = 200  # rows of a table on the page
LISTED = 8  # names in a sentence
WORDS = 160  # characters of a clause in a sentence


@dataclass(frozen=True)
class Finding:
    """A rule that others make redundant."""

    id: Any
    where: str
    kind: str
    covered_by: list[Any]  # kept rules whose union holds it
    proof: str  # in words
    saves: dict[str, int]  # boxes, bytes, and matches if events were given

    @property
    def sentence(self) -> str:
        if self.kind == EMPTY:
            return f"{self.id!r} can match nothing: {self.proof}."
        what = "is a duplicate" if self.kind == DUPLICATE else "is redundant"
        return f"{self.id!r} {what}: {self.proof}."


@dataclass(frozen=True)
class Suggestion:
    """Rules that one clause says as well, or nearly."""

    members: list[Any]
    where: str
    added: float  # the share that it adds to what they want, by values
    added_events: float | None  # the same by events of a sample
    saves: dict[str, int]  # rules, bytes

    @property
    def sentence(self) -> str:
        price = f", which adds {self.added:.1%} to what they want" if self.added else ""
        return f"{listed(self.members)} could be one rule{price}: {short(self.where)}"


@dataclass(frozen=True)
class Audit:
    rules: int
    kept: int
    findings: list[Finding]
    duplicates: list[list[Any]]  # rules that want the same, in groups
    mergers: list[Suggestion]
    clauses: dict[Any, str]  # of every rule that a claim names
    events: int | None = None  # that matches were counted over
    totals: dict[str, int] = field(default_factory=dict)
    never_fired: list[Any] = field(default_factory=list)  # rules that could match and match none of the events

    def to_json(self) -> dict[str, Any]:
        """Plain values. Clauses are a list: ids may be ints, which keys in JSON cannot be."""
        whole = asdict(self)
        whole["clauses"] = [{"id": id, "where": where} for id, where in self.clauses.items()]
        return whole

    def page(self, title: str = "Audit of a rule set") -> str:
        """HTML that needs nothing but itself."""
        counts = Counter(each.kind for each in self.findings)
        saved = ", ".join(f"{count:,} {what}" for what, count in self.totals.items())
        parts = [
            page.paragraph(
                f"{self.rules:,} rules; {self.kept:,} are enough. Without the other "
                f"{len(self.findings):,}: {saved or 'nothing'} less."
            ),
            page.bars(["kept", *KINDS], [self.kept, *(counts[kind] for kind in KINDS)]),
        ]
        for kind in KINDS:
            own = [each for each in self.findings if each.kind == kind]
            if own:
                parts += _findings(kind, own, list(self.totals))
        if self.never_fired:
            redundant = {each.id for each in self.findings}
            rows = [
                [id, short(self.clauses[id]), "redundant" if id in redundant else "kept"]
                for id in self.never_fired[:SHOWN]
            ]
            parts += [
                page.heading(f"Never fired on the {self.events:,} events"),
                page.table(["rule", "wants", "is"], rows, len(self.never_fired) - SHOWN),
            ]
        if self.duplicates:
            rows = [[len(group), ", ".join(map(str, group[:20]))] for group in self.duplicates[:SHOWN]]
            parts += [
                page.heading("Rules that want the same"),
                page.table(["rules", "which"], rows, len(self.duplicates) - SHOWN),
            ]
        if self.mergers:
            rows = [
                [", ".join(map(str, each.members[:20])), short(each.where), each.added, each.saves["rules"]]
                for each in self.mergers[:SHOWN]
            ]
            columns = ["rules", "said as one", "adds a share of", "rules less"]
            parts += [page.heading("Could be merged"), page.table(columns, rows, len(self.mergers) - SHOWN)]
        return page.page(title, *parts)


def _findings(kind: str, findings: Sequence[Finding], saved: Sequence[str]) -> list[str]:
    rows = [
        [each.id, short(each.where), each.proof, *(each.saves.get(what) for what in saved)] for each in findings[:SHOWN]
    ]
    columns = ["rule", "wants", "because", *(f"{what} less" for what in saved)]
    return [page.heading(f"Redundant: {kind}"), page.table(columns, rows, len(findings) - SHOWN)]


def audited(
    rules: int,
    clauses: Mapping[Any, str],
    regions: Mapping[Any, Region],
    certificates: Mapping[Any, Sequence[Any]],
    mergers: Sequence[tuple[Sequence[Any], str, float, float | None]] = (),
    matches: Mapping[Any, int] | None = None,
    events: int | None = None,
) -> Audit:
    """From what a reduction found. `clauses` and `regions` are of all rules that are redundant, that a certificate
    names, that are merged, that want the same as another one, or that match none of the events; `certificates` are of
    those that are redundant; `mergers` are members, clause, the share that it adds by values, and by events if some
    were given; `matches` are how many events each of these rules wants.

    >>> from thatch import Space
    >>> space = Space.parse("price int not null 0..100")
    >>> clauses = {"low": "price < 20", "high": "price >= 20", "some": "price > 5", "also": "price <= 19"}
    >>> regions = {id: space.where(clause) for id, clause in clauses.items()}
    >>> found = audited(4, clauses, regions, {"some": ["low", "high"], "also": ["low"]})
    >>> for each in found.findings:
    ...     print(f"{each.id} ({each.kind}): {each.proof}")
    also (duplicate): it wants what 'low' wants, no more and no less
    some (inside several): where price BETWEEN 6 AND 19, 'low' wants it; 'high' wants the rest
    """
    missing = [id for id, names in certificates.items() for each in (id, *names) if each not in regions]
    if missing:
        raise CallerError(f"the proof of {missing[0]!r} names a rule whose clause is not given")
    groups = duplicates(regions)
    same = {id: _original(group, certificates) for group in groups for id in group}
    findings = [
        _finding(id, names, same.get(id, id), lambda other: other not in certificates, clauses, regions, matches)
        for id, names in certificates.items()
    ]
    findings.sort(key=lambda each: (KINDS.index(each.kind), str(each.id)))
    suggestions = [
        Suggestion(
            list(members),
            where,
            added,
            by_events,
            {
                "rules": len(members) - 1,
                "bytes": sum(len(clauses[id].encode()) for id in members) - len(where.encode()),
            },
        )
        for members, where, added, by_events in mergers
    ]
    suggestions.sort(key=lambda each: (-each.saves["rules"], each.added, str(each.members[0])))
    totals = {"rules": len(findings)}
    for each in findings:
        for what, count in each.saves.items():
            totals[what] = totals.get(what, 0) + count
    named = {id: clauses[id] for id in clauses if id in regions}
    kept = rules - len(findings)
    idle = (
        []
        if matches is None or not events
        else [id for id in named if not matches.get(id) and not regions[id].is_empty]
    )
    return Audit(rules, kept, findings, groups, suggestions, named, events, totals, sorted(idle, key=str))


def duplicates(regions: Mapping[Any, Region]) -> list[list[Any]]:
    """Rules with the same region, which holds something, in groups of two or more."""
    groups: dict[Any, list[Any]] = {}
    for id, region in regions.items():
        if not region.is_empty:
            groups.setdefault(region.terms, []).append(id)
    found = [sorted(group, key=str) for group in groups.values() if len(group) > 1]
    return sorted(found, key=lambda group: (-len(group), str(group[0])))


def _original(group: Sequence[Any], redundant: Mapping[Any, Any]) -> Any:
    """Of rules that want the same, the one that the others repeat: the one that is kept, or else the first."""
    return next((id for id in group if id not in redundant), group[0])


def _finding(
    id: Any,
    names: Sequence[Any],
    original: Any,
    is_kept: Callable[[Any], bool],
    clauses: Mapping[Any, str],
    regions: Mapping[Any, Region],
    matches: Mapping[Any, int] | None,
) -> Finding:
    region = regions[id]
    kind, proof = _proof(region, names, regions)
    if original != id:
        names = [original] if is_kept(original) else names
        kind, proof = DUPLICATE, f"it wants what {original!r} wants, no more and no less"
    saves = {"boxes": sum(term.box_count() for term in region.terms), "bytes": len(clauses[id].encode())}
    if matches is not None:
        saves["matches"] = matches.get(id, 0)
    return Finding(id, clauses[id], kind, list(names), proof, saves)


def _proof(region: Region, names: Sequence[Any], regions: Mapping[Any, Region]) -> tuple[str, str]:
    if not names:
        return EMPTY, "no event can meet its conditions"
    if len(names) == 1:
        return INSIDE, f"{names[0]!r} wants all that it wants"
    return UNION, _parts(region, names, regions) or f"{listed(names)} together want all that it wants"


def _parts(region: Region, names: Sequence[Any], regions: Mapping[Any, Region]) -> str | None:
    """Which part of a region each of a few holds; None where that cannot be said shortly."""
    if len(names) > NAMED or region.has_balls or any(regions[name].has_balls for name in names):
        return None
    sentences, rest = [], region
    try:
        for name in names:
            part = rest & regions[name]
            rest = rest - regions[name]
            if rest.is_empty:
                sentences.append(f"{name!r} wants the rest")
                return "; ".join(sentences)
            sentences.append(f"where {_difference(part, region)}, {name!r} wants it")
    except TooManyBoxes:
        return None
    return None


def _difference(part: Region, region: Region) -> str:
    """A part in words: of the conditions that the whole has, too, nothing."""
    if len(part.terms) == len(region.terms) == 1:
        known = dict(region.terms[0].sides)
        sides = tuple(side for side in part.terms[0].sides if known.get(side[0]) != side[1])
        if sides:
            part = Region(part.space, [type(part.terms[0])(sides)])
    return short(part.to_sql())


def listed(names: Sequence[Any]) -> str:
    """A few names in a sentence.

    >>> listed(["a", "b", "c"]), listed(range(20))
    ("'a', 'b' and 'c'", '0, 1, 2, 3, 4, 5, 6, 7 and 12 more')
    """
    if len(names) > LISTED:
        return f"{', '.join(map(repr, names[:LISTED]))} and {len(names) - LISTED:,} more"
    return " and ".join(filter(None, [", ".join(map(repr, names[:-1])), repr(names[-1])]))


def short(clause: str) -> str:
    clause = " ".join(clause.split())
    return clause if len(clause) <= WORDS else clause[: WORDS - 1] + "…"
