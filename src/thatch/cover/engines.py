"""Every cover engine, by name. The contract suite runs them all."""

from __future__ import annotations

import inspect
from typing import Any

from thatch.cover.dominance import DominanceEngine
from thatch.cover.engine import CoverEngine
from thatch.cover.exact import ExactEngine
from thatch.cover.hilbert import HilbertEngine
from thatch.cover.montecarlo import MonteCarloEngine
from thatch.cover.negative import NegativeEngine
from thatch.cover.pairwise import PairwiseEngine
from thatch.cover.projection import ProjectionEngine
from thatch.errors import CallerError, unknown
from thatch.space.space import Space

ENGINES: dict[str, type[CoverEngine]] = {
    each.name: each
    for each in (
        PairwiseEngine,
        ExactEngine,
        NegativeEngine,
        HilbertEngine,
        MonteCarloEngine,
        ProjectionEngine,
        DominanceEngine,
    )
}


def engine(name: str, space: Space, **options: Any) -> CoverEngine:
    """A cover engine by name, as in `engine("exact", space)`."""
    if name not in ENGINES:
        raise CallerError(unknown("cover engine", name, ENGINES))
    if options:  # a broker makes two engines a link, mostly without
        _check_options(name, options)
    return ENGINES[name](space, **options)


def _check_options(name: str, options: dict[str, Any]) -> None:
    known = list(inspect.signature(ENGINES[name]).parameters)[1:]
    for option in options:
        if option not in known:
            what = unknown("option", option, known) if known else f"no option {option!r}, nor any other"
            raise CallerError(f"the cover engine {name!r} does not take these options: it has {what}")
