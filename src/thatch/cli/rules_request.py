"""What the commands about subscriptions are asked to do, whichever engine does it."""

from __future__ import annotations

from dataclasses import dataclass

from thatch.cli.request import Request


@dataclass(frozen=True)
class ReduceRequest(Request):
    merge: float | None = None  # the share that a merger may add; None: no mergers


@dataclass(frozen=True)
class LearnRequest(Request):
    pass


@dataclass(frozen=True)
class AuditRequest(Request):
    merge: float | None = 0.0
