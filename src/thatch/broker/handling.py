"""What the message that a broker is handling has brought about so far: effects, and records to keep."""

from __future__ import annotations

from thatch.errors import CallerError
from thatch.protocol.messages import Effect, Message, Persist, Persisted, Refused, Reject, Send
from thatch.protocol.records import RecordChange


class Handling:
    def __init__(self) -> None:
        self.now = 0.0  # of the message, by a clock that never steps
        self.ahead = 0.0  # of that clock: the one by which leases are promised
        self.persisted = 0  # the last number that is on disk
        self._effects: list[Effect] = []
        self._records: list[RecordChange] = []
        self._persists = 0

    def begin(self, now: float) -> None:
        """A message has come."""
        self.now, self._effects, self._records = now, [], []

    def note_ahead(self, seconds: float) -> None:
        """How far ahead the clock is by which leases are promised."""
        self.ahead = seconds

    def send(self, link: str, *messages: Message) -> None:
        self._effects += [Send(link, message) for message in messages]

    def reject(self, link: str, refused: Refused, close: bool = False) -> None:
        self._effects.append(Reject(link, refused, close))

    def record(self, *records: RecordChange) -> None:
        self._records += records

    def take_effects(self) -> list[Effect]:
        """The effects, in order; records come first, and what follows waits for them."""
        effects, records = self._effects, self._records
        self._effects, self._records = [], []
        if not records:
            return effects
        self._persists += 1
        return [Persist(self._persists, tuple(records)), *effects]

    def note_persisted(self, message: Persisted, link: str) -> None:
        if not self.persisted <= message.number <= self._persists:
            raise CallerError(f"records {message.number} are not between {self.persisted} and {self._persists}")
        self.persisted = message.number
