"""Plans of a whole overlay: an act is done on a copy of the network at rest, and what was sent over each link is
counted."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from thatch.broker import Plan, Settings, similarity
from thatch.broker.dryrun import LinkPlan
from thatch.errors import CallerError, shown
from thatch.sim.costs import free
from thatch.sim.network import Network
from thatch.sim.overlay import Overlay
from thatch.sim.topology import path


def plan_unsubscription(net: Overlay, id: str, settings: Settings | None = None) -> Plan:
    """If a subscription of the overlay left; `settings`: as if all brokers were tuned otherwise."""
    if id not in net.where:
        raise CallerError(f"there is no subscription {shown(id)} in this overlay")
    home = net.where[id]
    client, own = f"at {home}", f"{home}/at {home}/{id}"

    def leaves(network: Network) -> None:
        network.tell(client, network.clients[client].unsubscribe(home, id))

    def false_positives(sender: str) -> float | None:
        """The share of its events that nobody wants at a broker, by the history at its own."""
        steps = path(net.links, home, sender)
        shares = similarity(net.network.nodes[home].broker, own, len(steps or ()), net.network.now)
        return 1 - min(shares.values()) if shares else None

    return _planned(net, f"removing {id!r}", leaves, settings, false_positives)


def plan_subscription(net: Overlay, broker: str, id: str, where: str, settings: Settings | None = None) -> Plan:
    """A plan for a subscription at a broker."""
    if broker not in net.subscriber_brokers:
        raise CallerError(
            f"nobody subscribes at broker {shown(broker)}; they do at {', '.join(net.subscriber_brokers)}"
        )
    net.space.where(where)  # refuses a bad clause
    client = f"at {broker}"

    def comes(network: Network) -> None:
        network.tell(client, network.clients[client].subscribe(broker, id, where))

    return _planned(net, f"subscribing {id!r} at {broker}", comes, settings, lambda sender: None)


def _planned(
    net: Overlay,
    act: str,
    happens: Callable[[Network], None],
    settings: Settings | None,
    false_positives: Callable[[str], float | None],
) -> Plan:
    network = net.network.copied()
    for node in network.nodes.values():
        node.cost = free
    net.tune(
        network, replace(settings or net.settings, replacements_per_second_max=0.0)
    )  # at once what would be sent little by little
    network.run()
    sent, kept = _counts(network), _preserved(network)
    happens(network)
    network.run()
    plans = []
    for link, now in _counts(network).items():
        forwarded, withdrawn, messages = (after - before for after, before in zip(now, sent[link], strict=True))
        preserved = _preserved(network)[link] - kept[link]
        if messages or preserved > 0:
            share = false_positives(link[0]) if preserved > 0 else None
            plans.append(LinkPlan(" > ".join(link), forwarded, withdrawn, messages, max(0, preserved), share))
    return Plan(act, str((settings or net.settings).policy), tuple(plans))


def _counts(network: Network) -> dict[tuple[str, str], tuple[int, int, int]]:
    """By link, from and to: subscriptions sent and withdrawn so far, and messages."""
    return {
        (name, link.name): (link.counts.entries_sent, link.counts.entries_withdrawn, link.counts.update_messages)
        for name, node in network.nodes.items()
        for link in node.broker.links.values()
        if not link.is_client
    }


def _preserved(network: Network) -> dict[tuple[str, str], int]:
    return {
        (name, link.name): len(link.outbound.subscriptions.preserved)
        for name, node in network.nodes.items()
        for link in node.broker.links.values()
    }
