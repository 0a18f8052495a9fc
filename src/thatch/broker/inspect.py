"""Why a broker forwarded something, or did not: answers for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thatch.broker.broker import Broker
from thatch.broker.reasons import listed, reason_for
from thatch.errors import CallerError, shown
from thatch.protocol.ids import SUBSCRIPTIONS


def why_sent(broker: Broker, id: str, link: str) -> str:
    """Why a neighbour was sent a subscription, or was not."""
    if link not in broker.links or broker.links[link].is_client:
        raise CallerError(f"broker {broker.name!r} has no neighbour {shown(link)}")
    outbound = broker.outbound(SUBSCRIPTIONS, link)
    if id in outbound.preserved:
        names = listed(outbound.active_set.dependents(id))
        return f"{id!r} has left, and is preserved at {link!r} for the subscriptions that it covers: {names}"
    if not broker.received.subscriptions.of_id(id):
        raise CallerError(f"broker {broker.name!r} knows no subscription {shown(id)}")
    is_sent, reason = reason_for(broker, SUBSCRIPTIONS, id, link)
    if is_sent:
        return f"{id!r} was sent to {link!r}" + (f", {reason}" if reason else "")
    return f"{id!r} was not sent to {link!r}: {reason}"


def why_forwarded(broker: Broker, event: Mapping[str, Any], link: str) -> str:
    """Why an event goes over a link, or does not: the subscriptions that came over it and want the event."""
    if link not in broker.links:
        raise CallerError(f"broker {broker.name!r} has no link {shown(link)}")
    if broker.settings.routing == "events" and not broker.links[link].is_client:
        return f"the event goes to {link!r}: events flood"
    entries = broker.received.subscriptions.holding(broker.space.encode(event))
    ids = [entry.id for entry in entries if entry.link == link]
    if ids:
        return f"the event goes to {link!r}: it is wanted by {listed(ids)}"
    return f"the event does not go to {link!r}: no subscription from there wants it"


def similarity(broker: Broker, id: str, hops: int, now: float) -> dict[str, float]:
    """Of a client's subscription, toward each advertisement: the share of its events that somebody else wants at the
    broker so many hops away, or nearer (the congestion paper's phi there). By the events of the history."""
    found = {
        each.id: broker.distances.similarity(id, each.id, hops, now)
        for entry in broker.received.subscriptions.of_id(id).values()
        for each in broker.received.advertisements.meeting(entry.region)
    }
    return {id: share for id, share in found.items() if share is not None}
