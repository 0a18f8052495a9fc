"""Thatch: who wants this event, and is this subscription already covered by the others?"""

from typing import TYPE_CHECKING, Any

from thatch.errors import CallerError, ClauseError, EventError, SpaceError, ThatchError, TooManyTerms
from thatch.region import Region
from thatch.space import Space

if TYPE_CHECKING:
    from thatch.cover import covers

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
    "covers",
]


def __getattr__(name: str) -> Any:
    """`covers` loads the compiler, so it is loaded when it is first asked for."""
    if name == "covers":
        from thatch.cover import covers

        return covers
    raise AttributeError(f"module 'thatch' has no attribute {name!r}")
