"""What does the work of the commands over tables and files: one interface, whichever engine stands behind it.

A command is a request: its type says which one it is, its fields what is asked for.
"""

from __future__ import annotations

from typing import Any, Protocol

from thatch.cli.match_request import MatchRequest
from thatch.cli.rules_request import AuditRequest, LearnRequest, ReduceRequest
from thatch.reports.audit import Audit


class Engine(Protocol):
    """Each method does a command, writes its output, and returns what the summary says."""

    name: str

    def match(self, request: MatchRequest) -> dict[str, Any]: ...

    def explain(self, request: MatchRequest) -> dict[str, Any]:
        """How a match would be done, by name; nothing is done. `text` is for people."""
        ...

    def reduce(self, request: ReduceRequest) -> dict[str, Any]: ...

    def learn(self, request: LearnRequest) -> dict[str, Any]: ...

    def audit(self, request: AuditRequest) -> tuple[Audit, dict[str, Any]]: ...
