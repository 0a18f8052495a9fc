"""Thatch: who wants this event, and is this subscription already covered by the others?"""

from thatch.errors import CallerError, ClauseError, EventError, SpaceError, ThatchError, TooManyTerms
from thatch.region import Region
from thatch.space import Space

__version__ = "0.1.0"
__all__ = [
    "CallerError",
    "ClauseError",
    "EventError",
    "Region",
    "Space",
    "SpaceError",
    "ThatchError",
    "TooManyTerms",
]
