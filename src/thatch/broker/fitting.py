"""Clauses that a neighbour can take. What exceeds its limits is sent as something wider: the hull, or everything. A
wider clause brings events that nobody wants, which is safe; a clause that the neighbour refuses ends the session."""

from __future__ import annotations

from thatch.errors import ClauseError
from thatch.protocol.versions import OWN_LIMITS, ProtocolLimits
from thatch.region.region import Region

READ_BACK_MIN = 1_000  # characters: a shorter clause of ours exceeds no bound of the language
EVERYTHING = "TRUE"


def fitted(where: str, region: Region, limits: ProtocolLimits) -> str:
    """A clause as its client wrote it, if the limits allow it; else one for its hull, or for everything."""
    return where if _keeps(where, region, limits) else _hull(region, limits)


def written(region: Region, limits: ProtocolLimits) -> str:
    """A clause for a region that no client wrote: merged, it may have more literals than a clause may."""
    where = region.to_sql()
    return where if _keeps(where, region, limits) and _is_read(where, region) else _hull(region, limits)


def _hull(region: Region, limits: ProtocolLimits) -> str:
    hull = region.hull()
    where = hull.to_sql()
    return where if _keeps(where, hull, limits) and _is_read(where, hull) else EVERYTHING


def _keeps(where: str, region: Region, limits: ProtocolLimits) -> bool:
    return len(where) <= limits.clause_characters_max and len(region.terms) <= limits.terms_max


def _is_read(where: str, region: Region) -> bool:
    """Whether a parser takes it: the bounds of the language are the same at all brokers."""
    if len(where) < READ_BACK_MIN:
        return True
    try:
        region.space.where(where, OWN_LIMITS.terms_max)
    except ClauseError:
        return False
    return True
