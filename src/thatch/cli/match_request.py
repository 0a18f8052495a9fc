"""What `thatch match` is asked to do, whichever engine does it."""

from __future__ import annotations

from dataclasses import dataclass

from thatch.cli.request import Request
from thatch.local.writing import output_kind


@dataclass(frozen=True)
class MatchRequest(Request):
    """What is to be matched, and how."""

    strategy: str = "auto"
    writing: str | None = None  # the kind of the output; None: by its name, or Parquet
    skipped: str | None = None

    @property
    def output_kind(self) -> str:
        return output_kind(self.output, self.writing)

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
