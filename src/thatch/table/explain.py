"""Why: who covers a subscription, what only it wants, and which condition an event fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thatch.cover import Covered, Uncovered, covers
from thatch.errors import EventError, closest
from thatch.region.region import Region
from thatch.region.term import Term
from thatch.space.space import Space


@dataclass(frozen=True, slots=True)
class Failure:
    """A condition that an event does not meet."""

    condition: str
    values: dict[str, Any]  # the event's, of the attributes in the condition

    def __str__(self) -> str:
        values = ", ".join(
            f"{name} is {'NULL' if value is None else repr(value)}" for name, value in self.values.items()
        )
        return f"{self.condition} fails: {values}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Read it with `str`, or by its fields; those that do not apply are None."""

    id: Any
    text: str
    active: bool | None = None
    certificate: tuple[Any, ...] | None = None
    witness: dict[str, Any] | None = None  # an event that it wants and no other active one
    matches: bool | None = None
    failures: tuple[Failure, ...] | None = None  # of the alternative that comes nearest

    def __str__(self) -> str:
        return self.text


def explain_status(
    id: Any,
    region: Region,
    certificate: Sequence[Any] | None,
    others: Mapping[Any, Region],
    cover: str | None,
) -> Explanation:
    """Why a subscription is passive or active; `others` are the other active ones that it meets."""
    if certificate is not None:
        names = tuple(certificate)
        if not names:
            return Explanation(id, f"{id!r} is passive: no event can match it", False, names)
        return Explanation(id, f"{id!r} is passive: it is covered by {_named(names)}", False, names)
    if cover is None:
        return Explanation(id, f"{id!r} is active: covering is off", True)
    space = region.space
    verdict = covers(others, region, space)
    if isinstance(verdict, Uncovered):
        witness = space.decode(verdict.witness)
        event = ", ".join(_written(witness, " = "))
        text = f"{id!r} is active: no other active subscription wants the event {event}"
        return Explanation(id, text, True, witness=witness)
    if not isinstance(verdict, Covered):
        return Explanation(id, f"{id!r} is active: not proven to be covered, {verdict.reason}", True)
    own = covers(others, region, space, cover)
    if isinstance(own, Covered):
        text = f"{id!r} is active: it was forwarded before {_named(own.certificate)} covered it"
        return Explanation(id, text, True, own.certificate)
    text = (
        f"{id!r} is active: {cover} does not prove what exact does, that it is covered by {_named(verdict.certificate)}"
    )
    return Explanation(id, text, True, verdict.certificate)


def _named(certificate: Sequence[Any]) -> str:
    return repr(certificate[0]) if len(certificate) == 1 else "the union of " + ", ".join(map(repr, certificate))


def _written(values: Mapping[str, Any], between: str) -> list[str]:
    return [f"{name}{between}{_shown(value)}" for name, value in values.items()]


def _shown(value: Any) -> str:
    """Numbers and strings as Python writes them; times and decimals as people do."""
    return "NULL" if value is None else repr(value) if isinstance(value, int | float | str) else str(value)


def why_not(id: Any, region: Region, event: Mapping[str, Any]) -> Explanation:
    """Whether an event matches, and if not, what fails in the alternative that it fails least."""
    space = region.space
    (point, terms), _ = space.stable(lambda: (space.encode(event), region.terms))
    if any(term.contains(point, space) for term in terms):
        return Explanation(id, f"{id!r} matches the event", matches=True, failures=())
    if not terms:
        return Explanation(id, f"{id!r} does not match: no event can match it", matches=False, failures=())
    values = space.values_of(event)
    failures = min((_failures(term, point, values, region) for term in terms), key=len)
    nearest = f" (of {len(terms)} alternatives the one that fails least)" if len(terms) > 1 else ""
    text = f"{id!r} does not match{nearest}: " + "; ".join(map(str, failures))
    return Explanation(id, text, matches=False, failures=tuple(failures))


def _failures(term: Term, point: Sequence[int], values: Mapping[str, Any], region: Region) -> list[Failure]:
    space = region.space

    def failure(part: Term, axes: Sequence[int]) -> Failure:
        names = [space.attributes[axis].name for axis in axes]
        return Failure(Region(space, [part]).to_sql(), {name: values[name] for name in names})

    failing = [(axis, side) for axis, side in term.sides if point[axis] not in side]
    failed = [failure(Term((each,)), [each[0]]) for each in failing]
    for ball in term.balls:  # measured only where the sides hold: they exclude NULL
        if not {axis for axis, _ in failing} & set(ball.attributes) and not ball.contains(point, space):
            failed.append(failure(Term((), (ball,)), ball.attributes))
    return failed


def with_near_name(error: EventError, event: Mapping[str, Any], space: Space) -> EventError:
    """An error about a value that is missing, with the name in the event that is likely to be meant for it."""
    strangers = [name for name in event if isinstance(name, str) and space.index(name) is None]
    meant = closest(error.attribute, strangers) if error.value is None else None
    if meant is None:
        return error
    rule = f"{error.rule}; {meant!r} is no attribute (did you mean {error.attribute!r}?)"
    return EventError(error.attribute, None, rule, error.row)
