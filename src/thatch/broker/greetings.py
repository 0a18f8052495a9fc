"""What neighbours are told about this side of their links: which brokers there are, and whether something durable lives
there. It is said in the greeting, and again when it changes.

What is durable about a subscription settles together with it: a neighbour hears of it in order with subscriptions
(`Durable`), and has settled it when it has told the next one. One that does not know `Durable` hears it in a greeting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from thatch.broker.forwarding import Forwarding
from thatch.broker.growth import Growth
from thatch.broker.handling import Handling
from thatch.broker.link import Link
from thatch.errors import CallerError
from thatch.protocol.messages import Durable, Hello
from thatch.protocol.records import LinkRecord
from thatch.protocol.versions import EXCEPTIONS, ROUTING, STEP, VERSION_MAX


class Greetings:
    def __init__(self, name: str, forwarding: Forwarding, growth: Growth, handling: Handling) -> None:
        """`name`: of the broker."""
        self._name, self._forwarding, self._links = name, forwarding, forwarding.links
        self._growth, self._handling = growth, handling

    def greet(self, link: Link) -> None:
        durable = not link.is_client and any(self._durable_but(link))
        hello = Hello(
            self._name,
            link.session,
            self._growth.open_text,
            members=self._members_except_behind(link),
            durable=durable,
            partition=self.partition(),
            version_max=VERSION_MAX,
            members_version=self._members_version(link),
            capabilities={} if link.is_client else self._capabilities(),
        )
        link.note_greeting(hello)
        self._handling.send(link.name, hello)

    def announce(self) -> None:
        """Tell the neighbours what is new to them."""
        for link in [each for each in self._links.values() if not each.is_client]:
            members, is_durable = self._members_except_behind(link), any(self._durable_but(link))
            is_new = is_durable != (link.announced is not None and link.announced.durable)
            in_order = link.is_synced and link.version >= EXCEPTIONS
            if link.is_up and (
                (is_new and not in_order) or not _was_greeted_with(link, members, self._members_version(link))
            ):
                self.greet(link)
            if is_new:
                self._announce_durable(link, is_durable, in_order)

    def _announce_durable(self, link: Link, is_durable: bool, in_order: bool) -> None:
        """It settles by a message, or when the link is synced."""
        if link.announced is not None:
            link.note_greeting(replace(link.announced, durable=is_durable))
        if in_order:
            self._handling.send(link.name, Durable(link.next_seq(), is_durable))
        elif not link.is_synced:
            link.mark_unsent()

    def take_durable(self, message: Durable, name: str) -> None:
        """A neighbour says so about its side."""
        link = self._links[name]
        if link.is_client:
            raise CallerError("only brokers say that something durable lives behind them", code="not_allowed")
        self.note_durable(link, message.is_durable)
        self.announce()

    def note_durable(self, link: Link, is_durable: bool) -> None:
        if link.set_durable(is_durable) and not link.admission.is_new:
            self.record(link)

    def record(self, link: Link) -> None:
        self._handling.record(LinkRecord(link.peer, link.says_durable))

    def partition(self) -> str:
        """The id of our partition into cells, if there is one."""
        return "" if self._forwarding.cells is None else self._forwarding.cells.id

    def _members_except_behind(self, link: Link) -> tuple[str, ...]:
        """The brokers on this side of a link, also those behind others that are cut and will return."""
        if link.is_client:
            return ()
        return (self._name, *(name for each in self.others(link) for name in each.members))

    def _members_version(self, link: Link) -> int:
        """The highest version that all of these speak; of those behind a link that was never met, nothing is known."""
        if link.is_client:
            return 0
        return min([VERSION_MAX, *(each.members_version for each in self.others(link))])

    def others(self, link: Link) -> list[Link]:
        """The neighbours but one, without those that are refused for a cycle: what is behind them is reached by other
        links."""
        return [each for each in self._forwarding.brokers() if each is not link and not each.admission.cycle]

    def _durable_but(self, link: Link) -> Iterator[bool]:
        return (each.is_durable for each in self._links.values() if each is not link and not each.admission.is_new)

    def _capabilities(self) -> dict[str, Any]:
        """For a neighbour."""
        return {ROUTING: self._forwarding.settings.routing, STEP: self._growth.open_step}


def _was_greeted_with(link: Link, members: tuple[str, ...], members_version: int) -> bool:
    """Whether the last greeting said so."""
    last = link.announced
    return last is not None and (last.members, last.members_version) == (members, members_version)
