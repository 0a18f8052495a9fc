"""What every command over tables and files is asked: which files, how they are read, and where the result goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from thatch.local.files import Format, has_scheme
from thatch.space.space import Space


@dataclass(frozen=True)
class Request:
    """A command, whichever engine does it. Each command has a type of its own."""

    space: Space | None  # None: as the events have it
    time_zone: str = "UTC"  # of a space that is taken from the events
    where: Sequence[str] = ()  # files of rules
    events: Sequence[str] = ()
    reading: Format = field(default_factory=Format)
    skip: bool = False
    output: str | None = None
    overwrite: bool = False

    @property
    def rule_files(self) -> list[str]:
        """The local files of rules, which must not be written over."""
        return [os.path.abspath(path) for path in self.where if not has_scheme(path)]

    @property
    def session_zone(self) -> str:
        """The zone in which times without one are read."""
        return self.time_zone if self.space is None else self.space.time_zone

    @property
    def on_error(self) -> str:
        return "skip" if self.skip else "raise"
