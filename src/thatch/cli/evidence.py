"""A verdict for programs and for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from thatch.cli.arguments import shown_value
from thatch.cover import Covered, Likely, Uncovered, Verdict
from thatch.space.json_values import readable
from thatch.space.space import Space


def evidence(verdict: Verdict, clauses: Mapping[str, str], space: Space) -> tuple[dict[str, Any], list[str]]:
    """A verdict as plain values, and as lines of text."""

    result: dict[str, Any] = {"covered": isinstance(verdict, Covered)}
    if isinstance(verdict, Covered):
        result["certificate"] = [{"place": name, "clause": clauses[name]} for name in verdict.certificate]
        lines = ["covered by the union of:" if len(verdict.certificate) > 1 else "covered by:"]
        if isinstance(verdict, Likely):
            asked = verdict.trials_asked
            result |= {"claimed_error": verdict.delta, "trials_run": verdict.trials_run}
            result |= {"trials_asked": asked if asked < math.inf else None}
            lines = [
                f"no guess of {verdict.trials_run:,} was outside (of {asked:,.0f} asked for; claimed error "
                f"{verdict.delta:.3g}, which nobody guarantees), so likely {lines[0]}"
            ]
        lines += [f"  {name}: {clauses[name]}" for name in verdict.certificate] or ["  nothing: no event can match it"]
    elif isinstance(verdict, Uncovered):
        result["witness"] = {name: readable(value) for name, value in space.decode(verdict.witness).items()}
        lines = ["not covered: this event matches the clause and none of the others"]
        lines += [f"  {name} = {shown_value(value)}" for name, value in result["witness"].items()]
    else:
        result["reason"] = verdict.reason
        lines = [f"not proven: {verdict.reason}"]
    return result, lines
