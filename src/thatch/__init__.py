"""Thatch: who wants this event, and is this subscription already covered by the others?"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from thatch.errors import (
    CallerError,
    ClauseError,
    EventError,
    SpaceError,
    ThatchError,
    TooManyTerms,
    UnknownSubscription,
)
from thatch.region import Region
from thatch.space import Space

if TYPE_CHECKING:
    from thatch.cover import covers
    from thatch.table import SubscriptionTable

__version__ = "0.1.0"
__all__ = [
    "CallerError",
    "ClauseError",
    "EventError",
    "Region",
    "Space",
    "SpaceError",
    "SubscriptionTable",
    "ThatchError",
    "TooManyTerms",
    "UnknownSubscription",
    "covers",
]
_LATER = {"covers": "thatch.cover", "SubscriptionTable": "thatch.table"}


def __getattr__(name: str) -> Any:
    """What loads the compiler is loaded when it is first asked for."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'thatch' has no attribute {name!r}")
