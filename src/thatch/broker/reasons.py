"""Why a neighbour was sent something, or was not: read from the tables, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from thatch.broker.link import Link
from thatch.broker.policy import Settings
from thatch.broker.tables import ReceivedTables
from thatch.protocol.ids import SUBSCRIPTIONS


class Tables(Protocol):
    """What reasons are read from: a broker, or the part of it that forwards."""

    @property
    def links(self) -> Mapping[str, Link]: ...

    @property
    def received(self) -> ReceivedTables: ...

    @property
    def settings(self) -> Settings: ...


def reason_for(tables: Tables, table: str, id: str, link: str) -> tuple[bool, str]:
    """Whether a neighbour should hold what came under an id, and why; the reason is empty where nothing speaks against
    sending it."""
    outbound = tables.links[link].outbound.table(table)
    if id in outbound.preserved:
        names = listed(outbound.active_set.dependents(id))
        return True, f"it has left, and is preserved for the subscriptions that it covers: {names}"
    if id in outbound.wheres:
        certificate = outbound.active_set.certificate(id)
        if certificate is None:
            return True, f"merged with others as {outbound.sent_as(id)!r}" if outbound.merges else ""
        names = listed(certificate)
        return False, f"it is covered by what was sent there: {names}" if names else "no event can match it"
    if tables.settings.routing == "events" and table == SUBSCRIPTIONS:
        return False, "events flood, subscriptions stay where they are"
    if list(tables.received.table(table).of_id(id)) == [link]:
        return False, "it came from there"
    if table == SUBSCRIPTIONS:
        return False, "no publisher there advertised an event that it wants"
    return False, "advertisements stay where they are"


def listed(ids: Iterable[str]) -> str:
    return ", ".join(map(repr, ids))
