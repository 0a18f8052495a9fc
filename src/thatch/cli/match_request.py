"""What `thatch match` is asked to do, whichever engine does it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from thatch.local.files import Format, has_scheme
from thatch.local.writing import output_kind
from thatch.space.space import Space


@dataclass(frozen=True)
class MatchRequest:
    """What is to be matched, and how."""

    events: Sequence[str]
    space: Space | None  # None: as the events have it
    time_zone: str = "UTC"
    where: Sequence[str] = ()  # files of rules
    reading: Format = field(default_factory=Format)
    strategy: str = "auto"
    skip: bool = False
    output: str | None = None
    writing: str | None = None  # the kind of the output; None: by its name, or Parquet
    skipped: str | None = None
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

    @property
    def output_kind(self) -> str:
        return self.writing or output_kind(self.output)

    @property
    def skipped_path(self) -> str:
        """Where rows go that are left out: next to the output."""
        return self.skipped or (f"{self.output.rstrip('/')}.skipped" if self.output else "thatch-skipped")

    @property
    def skipped_kind(self) -> str:
        return self.output_kind if self.output or self.writing else "json"

    @property
    def outputs(self) -> dict[str, tuple[str, str]]:
        """The path and the kind of each folder to be written: `matches`, and `events` and `clauses` left out."""
        places = {"matches": (self.output, self.output_kind)} if self.output else {}
        if self.skip:
            folder = self.skipped_path.rstrip("/")
            places |= {name: (f"{folder}/{name}", self.skipped_kind) for name in ("events", "clauses")}
        return places
