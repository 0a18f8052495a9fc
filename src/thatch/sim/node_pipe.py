"""A connection between two ends in simulated time: frames in order each way, until one side hangs up or it is cut."""

from __future__ import annotations

from typing import Protocol

from thatch.sim.agenda import Agenda


class PipeEnd(Protocol):
    """What a connection leads to on one side."""

    def arrived(self, frame: bytes) -> None:
        """A frame has come."""

    def ended(self) -> None:
        """Nothing comes any more."""


class Pipe:
    def __init__(self, agenda: Agenda, latency: float) -> None:
        self.is_open = True
        self._agenda, self._latency = agenda, latency
        self._ends: dict[PipeEnd, PipeEnd] = {}  # by end, the other one
        self._clear_at: dict[PipeEnd, float] = {}  # by the receiving end: when the last frame arrives
        self._listening: dict[PipeEnd, bool] = {}

    def join(self, one: PipeEnd, other: PipeEnd) -> None:
        self._ends = {one: other, other: one}
        self._clear_at = {one: 0.0, other: 0.0}
        self._listening = {one: True, other: True}

    def send(self, sender: PipeEnd, frame: bytes) -> None:
        """What is sent after the other side has gone is lost."""
        if self.is_open:
            self._later(sender, self._arrive, self._ends[sender], frame)

    def _later(self, sender: PipeEnd, action: object, *arguments: object) -> None:
        receiver = self._ends[sender]
        arrival = max(self._agenda.now + self._latency, self._clear_at[receiver])
        self._clear_at[receiver] = arrival
        self._agenda.at(arrival, action, *arguments)  # type: ignore[arg-type]

    def _arrive(self, receiver: PipeEnd, frame: bytes) -> None:
        if self.is_open and self._listening[receiver]:
            receiver.arrived(frame)

    def hang_up(self, sender: PipeEnd) -> None:
        """This side reads no more; the other side gets what was sent before."""
        if self._listening[sender]:
            self._later(sender, self._end, self._ends[sender])
            self._end(sender)

    def cut(self, late: PipeEnd | None = None, seconds: float = 0.0) -> None:
        """What is under way is lost. Both sides notice at once, or one of them `late`, so many seconds after."""
        self.is_open = False
        for end in self._ends:
            if end is late:
                self._agenda.at(self._agenda.now + seconds, self._end, end)
            else:
                self._end(end)

    def _end(self, end: PipeEnd) -> None:
        if self._listening[end]:
            self._listening[end] = False
            end.ended()
