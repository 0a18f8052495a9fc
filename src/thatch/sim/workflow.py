"""Workflows: processes whose activities run on engines and wait for the activities before them (congestion, figure 12).

The paper's mix: 80 small processes of 3 activities on one engine, 80 medium ones of 10 in one domain, 40 large ones of
26 anywhere. An activity that is done publishes so from its engine, and wakes those that wait for it.

    sequence   a ─▶ b ─▶ c          parallel   a ─▶ b, c, d ─▶ e          loop   a ─▶ b ─▶ c, and again from a
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from thatch.space.space import Space

KINDS = ("sequence", "parallel", "loop")
STEP = 0.1  # seconds that an activity takes
MIX = ((80, 3, 1), (80, 10, 6), (40, 26, 24))  # processes, activities, engines that they may run on: of 24 in order


@dataclass(frozen=True, slots=True)
class Process:
    number: int
    kind: str
    engines: tuple[str, ...]  # of each activity

    def waits_for(self, activity: int) -> list[int]:
        """The activities before one; none before the first, which the trigger wakes."""
        if activity == 0:
            return []
        last = len(self.engines) - 1
        if self.kind != "parallel":
            return [activity - 1]
        return [0] if activity < last else list(range(1, last))

    def subscriptions(self) -> list[tuple[str, str, str]]:
        """The subscription of each activity: id, broker, clause."""
        found = []
        for activity, engine in enumerate(self.engines):
            before = self.waits_for(activity)
            done = f"kind = 'done' AND activity IN ({', '.join(map(str, before))})" if before else "kind = 'trigger'"
            found.append((f"p{self.number}a{activity}", engine, f"process = {self.number} AND {done}"))
        return found


def workflow_space() -> Space:
    processes, activities = sum(each[0] for each in MIX), max(each[1] for each in MIX)
    return Space.parse(
        f"kind enum('trigger', 'done') not null, process int not null 0..{processes - 1}, "
        f"activity int not null 0..{activities - 1}"
    )


def draw_processes(engines: list[str], rng: random.Random) -> list[Process]:
    """`engines` in the order of their domains."""
    made: list[Process] = []
    for count, activities, spread in MIX:
        for _ in range(count):
            first = rng.randrange(0, len(engines), spread) if spread < len(engines) else 0
            where = engines[first : first + spread]
            made.append(Process(len(made), rng.choice(KINDS), tuple(rng.choice(where) for _ in range(activities))))
    return made


def activity_events(process: Process, start: float, rng: random.Random) -> list[tuple[float, dict[str, Any], str]]:
    """What one run of a process publishes: (time, event, broker)."""
    number, last = process.number, len(process.engines) - 1
    found = [(start, _event("trigger", number, 0), process.engines[0])]
    for turn in range(2 if process.kind == "loop" and rng.random() < 0.5 else 1):
        for activity, engine in enumerate(process.engines):
            step = min(activity, 1) + (activity == last) if process.kind == "parallel" else activity
            at = start + STEP * (1 + step + turn * (last + 1))
            found.append((at, _event("done", number, activity), engine))
    return found


def _event(kind: str, process: int, activity: int) -> dict[str, Any]:
    return {"kind": kind, "process": process, "activity": activity}
