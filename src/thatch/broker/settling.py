"""When a message has settled: link.py says by which rule. What waits, and the answers to it."""

from __future__ import annotations

from collections.abc import Callable

from thatch.broker.forwarding import Forwarding
from thatch.broker.handling import Handling
from thatch.protocol.messages import Message, Settled
from thatch.protocol.versions import EXCEPTIONS


class Settling:
    def __init__(self, forwarding: Forwarding, handling: Handling) -> None:
        self._forwarding, self._links, self._handling = forwarding, forwarding.links, handling

    def wait(self, seq: int, link: str) -> None:
        """A message of a link has been handled: it is answered when it has settled."""
        source = self._links.get(link)
        if source is not None and source.is_met:
            source.waiting.add(seq, self.unsettled(link))

    def unsettled(self, but: str) -> dict[str, int]:
        """The neighbours that have not settled all that they were sent, and how much that is; all but one, and the lost
        neighbour in whose place that one has come: two that have lost the same one would wait for it at both ends."""
        source = self._links.get(but)
        others = (but, "" if source is None else source.stands_for)
        neighbours = (each for each in self._links.values() if not each.is_client and not each.has_settled)
        return {each.name: each.sent_total for each in neighbours if each.name not in others}

    def answer(self) -> None:
        """Say what has settled by now, and what has except behind brokers that are away."""
        for link in self._links.values():
            if link.waiting:
                seq = link.waiting.take_settled(self._links)
                if seq is not None:
                    self._handling.send(link.name, Settled(seq))
                excepted = link.waiting.take_excepted(self._links)
                if excepted is not None and link.version >= EXCEPTIONS:
                    self._handling.send(link.name, excepted)

    def spread(self, but: str, make: Callable[[int], Message]) -> None:
        """To every neighbour but one; to those that are not synced, something to wait for."""
        for link in self._forwarding.brokers():
            if link.name == but:
                continue
            if link.is_synced:
                self._handling.send(link.name, make(link.next_seq()))
            else:
                link.mark_unsent()

    def forget(self, name: str) -> None:
        """A link is gone for good: a new one of its name would count from the start."""
        for link in self._links.values():
            link.waiting.forget(name)

    # --- Messages -----------------------------------------------------------------------------------------------------
