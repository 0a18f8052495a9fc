"""What each neighbour is to know. The tables say what came; this says, for each link, what follows from it.

A subscription is offered to every link but the one that it came over: toward publishers (the links over which an
advertisement came that it meets), or everywhere, or nowhere where events flood. An advertisement is offered to every
other link. Offers are looked at anew whenever something that they follow from has changed; a told set (cover/told.py)
then decides what of them is told, and the difference to what the neighbour holds is sent when a message has been
handled: what is told before what is withdrawn, so that nothing is missed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from thatch.broker.image import Known
from thatch.broker.link import Link
from thatch.broker.policy import Settings
from thatch.broker.tables import ADVERTISEMENTS, SUBSCRIPTIONS, Entry, Table, alias
from thatch.messages import Advertise, Message, Replace, Subscribe, Unadvertise, Unsubscribe
from thatch.region import Region
from thatch.space import Space


class Forwarding:
    def __init__(self, space: Space, settings: Settings) -> None:
        self.settings = settings
        self.subscriptions = Table(space)
        self.advertisements = Table(space)
        self.links: dict[str, Link] = {}

    def brokers(self) -> Iterable[Link]:
        return (link for link in self.links.values() if not link.is_client)

    def table(self, name: str) -> Table:
        return self.subscriptions if name == SUBSCRIPTIONS else self.advertisements

    def put(self, table: str, link: str, id: str, where: str, region: Region, expires: float | None) -> None:
        """An entry came over a link."""
        entries = self.table(table)
        held = entries.of_link(link).get(id)
        if held is not None and held.where == where:
            held.expires = expires
            return
        is_client = self.links[link].is_client
        entries.put(link, id, where, region, expires, id.split("/", 2)[2] if is_client else id)
        self._follow(table, link, id, [region] if held is None else [held.region, region])

    def load(self, entries: Mapping[str, list[Entry]], known: Known) -> None:
        """The entries of each table, into empty ones, and what follows from them for each neighbour."""
        for name, each in entries.items():
            self.table(name).load(each)
        for link in self.brokers():
            for name, told in link.tables():
                offers: dict[str, tuple[str, Region]] = {}
                shared: dict[str, None] = {}  # ids that came over several links: offered with more thought
                for entry in self._offered_to(link, name):
                    if len(self.table(name).of_id(entry.id)) > 1:
                        shared[entry.id] = None
                    else:
                        offers[entry.id] = entry.where, entry.region
                told.load(offers, known.told_to(link.name, name))
                for id in shared:
                    if name == SUBSCRIPTIONS:
                        self._offer_subscription(id, link)
                    else:
                        _offer(
                            link, name, id, [e for e in self.advertisements.of_id(id).values() if e.link != link.name]
                        )

    def _offered_to(self, link: Link, table: str) -> Iterable[Entry]:
        """In order of arrival. An advertisement finds the subscriptions that it meets, faster than each of these finds
        those."""
        routing = self.settings.routing
        if table == SUBSCRIPTIONS and routing == "advertisements":
            advertised = self.advertisements.of_link(link.name).values()
            met = {entry.number: entry for ad in advertised for entry in self.subscriptions.meeting(ad.region)}
            found: Iterable[Entry] = (met[number] for number in sorted(met))
        elif routing == "events" or (table == ADVERTISEMENTS and routing != "advertisements"):
            found = ()
        else:
            found = self.table(table)
        return (entry for entry in found if entry.link != link.name)

    def drop(self, table: str, link: str, id: str) -> bool:
        entry = self.table(table).drop(link, id)
        if entry is None:
            return False
        self._follow(table, link, id, [entry.region])
        return True

    def _follow(self, table: str, link: str, id: str, regions: list[Region]) -> None:
        if table == SUBSCRIPTIONS:
            self._offer_subscription(id)
            return
        self._offer_advertisement(id)
        source = self.links.get(link)
        if self.settings.routing != "advertisements" or source is None or source.is_client:
            return
        for region in regions:
            for entry in self.subscriptions.meeting(region):
                if entry.link != link:
                    self._offer_subscription(entry.id, source)

    def _offer_subscription(self, id: str, only: Link | None = None) -> None:
        if self.settings.routing == "events":
            return
        entries = list(self.subscriptions.of_id(id).values())
        toward = [self.toward(entry) for entry in entries]
        for link in self.brokers() if only is None else (only,):
            name = link.name
            _offer(link, SUBSCRIPTIONS, id, [e for e, to in zip(entries, toward, strict=True) if _is_to(e, name, to)])

    def _offer_advertisement(self, id: str) -> None:
        if self.settings.routing != "advertisements":
            return
        entries = self.advertisements.of_id(id).values()
        for link in self.brokers():
            _offer(link, ADVERTISEMENTS, id, [each for each in entries if each.link != link.name])

    def toward(self, entry: Entry) -> dict[str, None] | None:
        """The links over which somebody advertised what it wants, in order; None: all."""
        if self.settings.routing == "subscriptions":
            return None
        return dict.fromkeys(each.link for each in self.advertisements.meeting(entry.region))

    def add_link(self, link: Link) -> None:
        """A neighbour that was not there before is offered all there is."""
        self.links[link.name] = link
        if link.is_client:
            return
        for entry in self.advertisements:
            self._offer_advertisement(entry.id)
        for entry in self.subscriptions:
            self._offer_subscription(entry.id, link)

    def forget_link(self, name: str) -> list[tuple[str, str]]:
        """A neighbour has gone for good, and all that came over it. Returns that, as (table, id)."""
        del self.links[name]
        gone = [(SUBSCRIPTIONS, id) for id in self.subscriptions.of_link(name)]
        gone += [(ADVERTISEMENTS, id) for id in self.advertisements.of_link(name)]
        for table, id in gone:
            self.drop(table, name, id)
        return gone

    def move(self, space: Space, regions: dict[str, Region]) -> None:
        """Into a space that has grown. What a clause means may have changed, and with it whom it meets."""
        self.subscriptions = self.subscriptions.moved(space, regions)
        self.advertisements = self.advertisements.moved(space, regions)
        for link in self.brokers():
            for _, table in link.tables():
                table.move(space, regions)
        for id in dict.fromkeys(entry.id for entry in self.subscriptions):
            self._offer_subscription(id)

    def news(self, link: Link) -> list[Message]:
        """What to send to a neighbour after a message has been handled: the net change."""
        changed = [table.changed for _, table in link.tables()]
        if not any(changed):
            return []
        if not link.is_synced:
            link.owe()
            for _, table in link.tables():
                table.changed = {}
            return []
        tell_ads, unadvertise = link.advertisements.net()
        tell, unsubscribe = link.subscriptions.net()
        news = _told(Advertise, Advertise, Unadvertise, tell_ads, link)
        news += _told(Subscribe, Replace, Unsubscribe, tell, link)
        news += [Unsubscribe(link.next_seq(), id) for id in unsubscribe]
        news += [Unadvertise(link.next_seq(), id) for id in unadvertise]
        link.counts.told += len(tell_ads) + len(tell)
        link.counts.withdrawn += len(unadvertise) + len(unsubscribe)
        return news

    def check_invariants(self) -> None:
        """Every offer has a live reason, and every reason an offer."""
        for table in (self.subscriptions, self.advertisements):
            table.check_invariants()
            assert all(entry.link in self.links for entry in table)
        for link in self.brokers():
            for name, told in link.tables():
                told.check_invariants()
                wanted: dict[str, list[Entry]] = {}
                for entry in self.table(name):
                    if self._is_offered(name, entry, link):
                        wanted.setdefault(entry.id, []).append(entry)
                offered = [each.where for id, entries in wanted.items() for each in _offered(id, entries).values()]
                assert sorted(told.wheres.values()) == sorted(offered)
                others = {each for id, ids in told.aliases.items() for each in ids if each != id}
                assert told.wheres.keys() - others == wanted.keys()
                if link.is_synced:
                    assert told.sent == told.all_told() and not told.changed

    def _is_offered(self, table: str, entry: Entry, link: Link) -> bool:
        if table == SUBSCRIPTIONS:
            return self.settings.routing != "events" and _is_to(entry, link.name, self.toward(entry))
        return self.settings.routing == "advertisements" and entry.link != link.name


def _is_to(entry: Entry, link: str, toward: dict[str, None] | None) -> bool:
    return entry.link != link and (toward is None or link in toward)


def _offer(link: Link, table: str, id: str, entries: list[Entry]) -> None:
    """Offer an id with its region. While it comes over two links, and one does not know yet that it was replaced, the
    second region is offered under an id of its own."""
    told = link.table(table)
    if len(entries) == 1 and id not in told.aliases:  # nearly always
        told.offer(id, entries[0].where, entries[0].region)
    else:
        told.offer_all(id, {each: (entry.where, entry.region) for each, entry in _offered(id, entries).items()})


def _offered(id: str, entries: Iterable[Entry]) -> dict[str, Entry]:
    """The entries with different clauses, by the ids that they are offered under."""
    by_where: dict[str, Entry] = {}
    for entry in entries:
        by_where.setdefault(entry.where, entry)
    return {alias(id, entry.link) if at else id: entry for at, entry in enumerate(by_where.values())}


def _told(
    new: Callable[[int, str, str], Message],
    replaced: Callable[[int, str, str], Message],
    gone: Callable[[int, str], Message],
    tell: list[tuple[str, str, str | None]],
    link: Link,
) -> list[Message]:
    """What is new first: something that is replaced may have covered it. Several are replaced one after the other, so
    until all are, the old regions stand beside them under other ids."""
    known = [(id, where, before) for id, where, before in tell if before is not None]
    stays = [(alias(id), before) for id, _, before in known] if len(known) > 1 else []
    first = [(id, where) for id, where, before in tell if before is None] + stays
    news = [new(link.next_seq(), id, where) for id, where in first]
    news += [replaced(link.next_seq(), id, where) for id, where, _ in known]
    return news + [gone(link.next_seq(), id) for id, _ in stays]
