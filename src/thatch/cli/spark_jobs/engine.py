"""The engine on Spark: a session for each command. PySpark is imported when a command is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from thatch.cli.match_request import MatchRequest
from thatch.cli.rules_request import AuditRequest, LearnRequest, ReduceRequest
from thatch.cli.spark_jobs.session import check_spark_is_there, spark_session
from thatch.reports.audit import Audit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class SparkEngine:
    name = "spark"

    def __init__(self, master: str | None, settings: Mapping[str, str]) -> None:
        check_spark_is_there()
        self._master, self._settings = master, settings

    def _on_session(self, time_zone: str, work: Callable[[SparkSession], T]) -> tuple[T, dict[str, float]]:
        """What some work returns, and the seconds that Spark took to start."""
        start = time.perf_counter()
        with spark_session(time_zone, self._master, self._settings) as session:
            starting = time.perf_counter() - start
            return work(session), {"seconds_to_start_spark": starting}

    def match(self, request: MatchRequest) -> dict[str, Any]:
        from thatch.cli.spark_jobs.match import matched

        result, starting = self._on_session(request.session_zone, lambda session: matched(session, request))
        return result | starting

    def explain(self, request: MatchRequest) -> dict[str, Any]:
        from thatch.cli.spark_jobs.match import explained

        plan, _ = self._on_session(request.session_zone, lambda session: explained(session, request))
        return asdict(plan) | {"text": str(plan)}

    def reduce(self, request: ReduceRequest) -> dict[str, Any]:
        from thatch.cli.spark_jobs.rules import reduced

        result, starting = self._on_session(request.session_zone, lambda session: reduced(session, request))
        return result | starting

    def learn(self, request: LearnRequest) -> dict[str, Any]:
        from thatch.cli.spark_jobs.rules import learnt

        result, starting = self._on_session(request.session_zone, lambda session: learnt(session, request))
        return result | starting

    def audit(self, request: AuditRequest) -> tuple[Audit, dict[str, Any]]:
        from thatch.cli.spark_jobs.rules import audited

        (found, result), starting = self._on_session(request.session_zone, lambda session: audited(session, request))
        return found, result | starting
