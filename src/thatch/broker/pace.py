"""How fast preserved subscriptions are replaced by what they hold back: so many a second, no faster than neighbours
settle, and those that need not end only while subscriptions are idle."""

from __future__ import annotations

from collections.abc import Sequence

from thatch.broker.link import Link
from thatch.broker.policy import Settings

AT_ONCE = 1e9  # replacements in one step, where nothing bounds them
ROUNDING = 1e-6  # of a subscription: a tick that comes a nanosecond early is in time


class Pace:
    """The allowance of one broker, shared by its links, which take turns."""

    def __init__(self) -> None:
        self._changed_at: float | None = None  # when subscriptions came or went; None: not since this was started
        self._replaced_at = self._ticked_at = 0.0
        self._allowance, self._turn = 1.0, 0

    def note_change(self, now: float) -> None:
        """Subscriptions came or went: the broker is not idle."""
        self._changed_at = now

    def replace_preserved(self, links: Sequence[Link], settings: Settings, now: float) -> None:
        """Forward what preserved subscriptions hold back, as far as the pace allows. Also where `theta` is no longer
        set: what was preserved must end."""
        if self._changed_at is None:
            self._changed_at = now
        rate = min(settings.replacements_per_second_max, AT_ONCE)  # settings may be infinite
        if not rate:
            return
        idle = rate * (now - max(self._replaced_at, self._changed_at + settings.idle_seconds)) + ROUNDING
        ticking = rate * min(now - (self._ticked_at or now), 1.0)
        self._allowance = min(self._allowance + ticking, max(ticking, 1.0) + 1.0)  # so much at a time, and a remainder
        most = int(min(idle if idle >= 1 else self._allowance + ROUNDING, AT_ONCE))
        self._ticked_at = now
        for at in range(len(links)):
            link = links[(self._turn + at) % len(links)]
            if done := link.replace_preserved(most, is_idle=idle >= 1):
                most -= done
                self._replaced_at, self._allowance = now, max(0.0, self._allowance - done)
        self._turn += 1
