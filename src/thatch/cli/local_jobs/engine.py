"""The engine in this process."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any

from thatch.cli.arguments import STDIN
from thatch.cli.match_request import MatchRequest
from thatch.cli.rules_request import AuditRequest, LearnRequest, ReduceRequest
from thatch.local.files import files_in
from thatch.reports.audit import Audit


class LocalEngine:
    """Arrow in this process. `is_program`: the process does nothing but this command."""

    name = "local"

    def __init__(self, is_program: bool = False) -> None:
        self._is_program = is_program

    def match(self, request: MatchRequest) -> dict[str, Any]:
        if self._is_program and "pandas" not in sys.modules:
            sys.meta_path.insert(0, _WithoutPandas())
        from thatch.cli.local_jobs.match import match

        return match(request)

    def explain(self, request: MatchRequest) -> dict[str, Any]:
        files_in([*request.events, *(path for path in request.where if path != STDIN)])
        return {}

    def reduce(self, request: ReduceRequest) -> dict[str, Any]:
        from thatch.cli.local_jobs.rules import reduced

        return reduced(request)

    def learn(self, request: LearnRequest) -> dict[str, Any]:
        from thatch.cli.local_jobs.rules import learnt

        return learnt(request)

    def audit(self, request: AuditRequest) -> tuple[Audit, dict[str, Any]]:
        from thatch.cli.local_jobs.rules import audited

        return audited(request)


class _WithoutPandas(MetaPathFinder):
    """Arrow looks for pandas before it makes an array. To load it takes longer than to match a small table."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        if name == "pandas":
            raise ImportError("a command has no use for pandas")
