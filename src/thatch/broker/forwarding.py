"""What each neighbour needs to know. The received tables say what came; this says, for each link, what follows from it.

A subscription is offered to every link but the one that it came over: toward publishers (the links over which an
advertisement came that it meets), or everywhere, or nowhere where events flood. An advertisement is offered to every
other link. Offers are renewed whenever something that they follow from has changed; an active set (cover/active_set.py)
then decides which are forwarded, and the difference to what the neighbour holds is sent when a message has been
handled: additions before withdrawals, so that nothing is missed in between; or all of it in one message, where the
policy is to pack.

A subscription that leaves may bring along how far it is to be withdrawn toward each advertisement (the congestion
paper's algorithm 2). On a link toward none of these it is preserved, if others would have to be forwarded in its place;
and on other links, too, while these are more than may be forwarded at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from msgspec.structs import replace

from thatch.broker.cells import CLIENTS, LinkCells
from thatch.broker.image import Known
from thatch.broker.link import Counts, Link
from thatch.broker.outbound import Prune
from thatch.broker.pace import AT_ONCE
from thatch.broker.policy import Settings
from thatch.broker.statistics import Distances
from thatch.broker.tables import Entry, ReceivedTables
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, alias, client_id
from thatch.protocol.messages import Advertise, Message, Replace, Subscribe, Unadvertise, Unsubscribe
from thatch.region.region import Region
from thatch.space.space import Space


class Forwarding:
    def __init__(self, space: Space, settings: Settings) -> None:
        self.settings = settings
        self.received = ReceivedTables(space)
        self.links: dict[str, Link] = {}
        self.counts_of_gone = Counts()  # over links that are gone
        self.cells = None if settings.cells is None else LinkCells(settings.cells.grid(space))

    def retune(self, settings: Settings) -> None:
        """Other settings of how subscriptions leave. If nothing bounds how fast, what is preserved ends now."""
        self.settings = settings
        for link in self.links.values():
            link.set_policy(settings.policy_of(link.name))
        for link in self.brokers() if not settings.replacements_per_second_max else ():
            link.outbound.subscriptions.replace_preserved(int(AT_ONCE), is_idle=False)

    def brokers(self) -> Iterable[Link]:
        """The neighbours, also those that are away; without those that have not begun to compare what they hold."""
        return (link for link in self.links.values() if not link.is_client and not link.admission.is_new)

    def put(
        self,
        table: str,
        link: str,
        id: str,
        where: str,
        region: Region,
        expires: float | None,
        cells: Sequence[int] = (),
    ) -> None:
        """An entry came over a link, perhaps with the ranges of its cells."""
        entries = self.received.table(table)
        held = entries.of_link(link).get(id)
        if held is not None and held.where == where:
            held.renew(expires)
            return
        is_client = self.links[link].is_client
        if table == SUBSCRIPTIONS and self.cells is not None:
            self.cells.put(link, id, CLIENTS if is_client else link, region, cells)
        entries.put(link, id, where, region, expires, client_id(id) if is_client else id)
        self._follow(table, link, id, [region] if held is None else [held.region, region])

    def load(self, entries: Mapping[str, list[Entry]], known: Known) -> None:
        """The entries of each table, into empty ones, and what follows from them for each neighbour."""
        for name, each in entries.items():
            self.received.table(name).load(each)
        for entry in self.received.subscriptions:
            if self.cells is not None:
                of = CLIENTS if self.links[entry.link].is_client else entry.link
                self.cells.put(entry.link, entry.id, of, entry.region)
        for link in self.brokers():
            for name, outbound in link.outbound.items():
                offers: dict[str, tuple[str, Region]] = {}
                shared: dict[str, None] = {}  # ids that came over several links: offered with more thought
                for entry in self._offered_to(link, name):
                    if len(self.received.table(name).of_id(entry.id)) > 1:
                        shared[entry.id] = None
                    else:
                        offers[entry.id] = entry.where, entry.region
                outbound.load(offers, known.decisions_for(link.name, name))
                for id in shared:
                    if name == SUBSCRIPTIONS:
                        self._offer_subscription(id, link)
                    else:
                        _offer(
                            link,
                            name,
                            id,
                            [e for e in self.received.advertisements.of_id(id).values() if link.hears_from(e.link)],
                        )

    def _offered_to(self, link: Link, table: str) -> Iterable[Entry]:
        """In order of arrival. An advertisement finds the subscriptions that it meets, faster than each of these finds
        those."""
        routing = self.settings.routing
        if table == SUBSCRIPTIONS and routing == "advertisements":
            advertised = self.received.advertisements.of_link(link.name).values()
            met = {entry.number: entry for ad in advertised for entry in self.received.subscriptions.meeting(ad.region)}
            found: Iterable[Entry] = (met[number] for number in sorted(met))
        elif routing == "events" or (table == ADVERTISEMENTS and routing != "advertisements"):
            found = ()
        else:
            found = self.received.table(table)
        return (entry for entry in found if link.hears_from(entry.link))

    def drop(self, table: str, link: str, id: str, prune: Prune | None = None) -> bool:
        """An entry has left. `prune`: how far it is to be withdrawn toward each advertisement; None: all the way."""
        entry = self.received.table(table).drop(link, id)
        if entry is None:
            return False
        if table == SUBSCRIPTIONS and self.cells is not None:
            self.cells.drop(link, id)
        for each in self.brokers() if prune is not None else ():
            self._withdraw(entry, each, prune or {})
        self._follow(table, link, id, [entry.region])
        return True

    def _withdraw(self, entry: Entry, link: Link, prune: Prune) -> None:
        """Say how far a subscription that has left is to be withdrawn over a link; not at all: preserve it there."""
        outbound = link.outbound.subscriptions
        if link.name == entry.link or entry.id in outbound.aliases or outbound.wheres.get(entry.id) != entry.where:
            return
        if any(other.where == entry.where for other in self.received.subscriptions.of_id(entry.id).values()):
            return
        hops_left = self._hops_left(entry, link, prune)
        if link.policy.theta is None or not outbound.preserve(entry.id, hops_left, self._at_once):
            outbound.note_prunes({entry.id: hops_left})

    @property
    def _at_once(self) -> float:
        """How many may be forwarded at once in place of one that leaves: as many as in a second."""
        return self.settings.replacements_per_second_max or inf

    def _hops_left(self, entry: Entry, link: Link, prune: Prune) -> Prune:
        """One hop less toward each advertisement that came over a link; empty where it is withdrawn toward none. An
        advertisement that is not named, since another one that covers it is, counts as the furthest: so a 0 is named,
        too."""
        most = max(prune.values(), default=0)
        near = [each for each in self.received.advertisements.meeting(entry.region) if each.link == link.name]
        hops = {each.id: prune.get(each.id, most) for each in near}
        return {id: max(each - 1, 0) for id, each in hops.items()} if any(each > 0 for each in hops.values()) else {}

    def prune_of(self, entry: Entry, distances: Distances, now: float) -> Prune | None:
        """How far a client's subscription is to be withdrawn, by its history; None where pruning is off."""
        if not self.settings.is_incremental:
            return None
        found: Prune = {}
        for each in self.received.advertisements.meeting(entry.region):
            theta = None if self.links[each.link].is_client else self.links[each.link].policy.theta
            if theta is not None:
                found |= distances.prune(entry.id, [each.id], theta, now)
        return found

    def exchange(self, link: str, gone: dict[str, Prune | None], new: dict[str, tuple[str, Region]]) -> None:
        """Of what came over a link some leave, and others come in their place, in one step."""
        leaving = [entry for id in gone if (entry := self.received.subscriptions.of_link(link).get(id)) is not None]
        if not self._is_plain(link, leaving, new):
            for id, (where, region) in new.items():
                self.put(SUBSCRIPTIONS, link, id, where, region, None)
            for id, prune in gone.items():
                self.drop(SUBSCRIPTIONS, link, id, prune)
            return
        near = [(entry, self.received.advertisements.meeting(entry.region)) for entry in leaving]
        coming = [self.received.subscriptions.put(link, id, where, region, None) for id, (where, region) in new.items()]
        toward = [self._toward_among(entry, near) for entry in coming]
        for entry in leaving:
            self.received.subscriptions.drop(link, entry.id)
        for each in self.brokers():
            offered = {
                entry.id: (entry.where, entry.region)
                for entry, to in zip(coming, toward, strict=True)
                if _is_to(entry, each, to)
            }
            self._exchange_at(each, leaving, gone, offered)

    def _exchange_at(
        self, link: Link, leaving: list[Entry], gone: dict[str, Prune | None], new: dict[str, tuple[str, Region]]
    ) -> None:
        outbound = link.outbound.subscriptions
        known = [entry for entry in leaving if outbound.wheres.get(entry.id) == entry.where]
        hops_left_of = {
            entry.id: self._hops_left(entry, link, prune) for entry in known if (prune := gone[entry.id]) is not None
        }
        if link.policy.theta is None or not any(
            not hops_left or outbound.may_hold_back(id, self._at_once - len(new))
            for id, hops_left in hops_left_of.items()
        ):
            outbound.note_prunes(hops_left_of)
            outbound.exchange([entry.id for entry in known], new)
            return
        for id, (where, region) in new.items():  # while those that may be preserved are there: they cover them
            outbound.offer(id, where, region)
        for entry in known:
            hops_left = hops_left_of.get(entry.id)
            if hops_left is not None:
                if outbound.preserve(entry.id, hops_left, self._at_once):
                    continue
                outbound.note_prunes({entry.id: hops_left})
            outbound.offer(entry.id, None, None)

    def _is_plain(self, link: str, leaving: list[Entry], new: Iterable[str]) -> bool:
        """Whether none of the ids is known otherwise: from another link, under other ids, preserved, or before."""
        ids = [*(entry.id for entry in leaving), *new]
        others = [self.received.subscriptions.of_id(id) for id in new] + [
            {name: each for name, each in self.received.subscriptions.of_id(entry.id).items() if name != link}
            for entry in leaving
        ]
        if any(others) or self.settings.routing == "events" or self.cells is not None:
            return False
        tables = [each.outbound.subscriptions for each in self.brokers()]
        return not any(id in outbound.aliases or id in outbound.preserved for outbound in tables for id in ids)

    def _toward_among(self, entry: Entry, near: list[tuple[Entry, list[Entry]]]) -> dict[str, None] | None:
        """As `toward`; of what lies in a region that leaves, only the advertisements that this one meets are asked."""
        if self.settings.routing == "subscriptions":
            return None
        for leaving, advertisements in near if not entry.region.has_balls else ():
            if _is_inside(entry.region, leaving.region) and not any(each.region.has_balls for each in advertisements):
                return dict.fromkeys(each.link for each in advertisements if _meet(each.region, entry.region))
        return self.toward(entry)

    def _follow(self, table: str, link: str, id: str, regions: list[Region]) -> None:
        if table == SUBSCRIPTIONS:
            self._offer_subscription(id)
            return
        self._offer_advertisement(id)
        source = self.links.get(link)
        if self.settings.routing != "advertisements" or source is None or source.is_client:
            return
        for region in regions:
            for entry in self.received.subscriptions.meeting(region):
                if entry.link != link:
                    self._offer_subscription(entry.id, source)

    def _offer_subscription(self, id: str, only: Link | None = None) -> None:
        if self.settings.routing == "events":
            return
        entries = list(self.received.subscriptions.of_id(id).values())
        toward = [self.toward(entry) for entry in entries]
        for link in self.brokers() if only is None else (only,):
            _offer(link, SUBSCRIPTIONS, id, [e for e, to in zip(entries, toward, strict=True) if _is_to(e, link, to)])

    def _offer_advertisement(self, id: str) -> None:
        if self.settings.routing != "advertisements":
            return
        entries = self.received.advertisements.of_id(id).values()
        for link in self.brokers():
            _offer(link, ADVERTISEMENTS, id, [each for each in entries if link.hears_from(each.link)])

    def toward(self, entry: Entry) -> dict[str, None] | None:
        """The links over which somebody advertised what it wants, in order; None: all."""
        if self.settings.routing == "subscriptions":
            return None
        return dict.fromkeys(each.link for each in self.received.advertisements.meeting(entry.region))

    def add_link(self, link: Link) -> None:
        """A link that was not there before. What a neighbour is offered it is when it is admitted."""
        self.links[link.name] = link

    def admit(self, link: Link) -> None:
        """A neighbour that was not there before is offered all there is."""
        link.admission.admit()
        for entry in self.received.advertisements:
            self._offer_advertisement(entry.id)
        for entry in self.received.subscriptions:
            self._offer_subscription(entry.id, link)

    def stand_for(self, link: Link, lost: str) -> None:
        """A neighbour comes in the place of one that is lost, or of none: what came from the lost one is not offered to
        it. It knows it from there, and what it would hear of its own side could hide what others say."""
        others = {link.stands_for, lost}
        link.stand_for(lost)
        for other in sorted(others & self.links.keys()):
            for id in list(self.received.advertisements.of_link(other)):
                self._offer_advertisement(id)
            for id in list(self.received.subscriptions.of_link(other)):
                self._offer_subscription(id, link)

    def forget_link(self, name: str) -> list[tuple[str, str]]:
        """A neighbour has gone for good, and all that came over it. Returns that, as (table, id)."""
        self.counts_of_gone.note_all(self.links.pop(name).counts)
        gone = [(SUBSCRIPTIONS, id) for id in self.received.subscriptions.of_link(name)]
        gone += [(ADVERTISEMENTS, id) for id in self.received.advertisements.of_link(name)]
        for table, id in gone:
            self.drop(table, name, id)
        return gone

    def move(self, space: Space, regions: dict[str, Region]) -> None:
        """Into a space that has grown. What a clause means may have changed, and with it whom it meets."""
        self.cells = None  # numbers of cells are of the space as it was; agreed on again by the next broker of its name
        for link in self.brokers():
            link.end_agreement()
        self.received.move(space, regions)
        for link in (each for each in self.links.values() if not each.is_client):
            for table in link.outbound:
                table.move(space, regions)
        for id in dict.fromkeys(entry.id for entry in self.received.subscriptions):
            self._offer_subscription(id)

    def drain_updates(self, link: Link) -> list[Message]:
        """What to send to a neighbour after a message has been handled: the net change."""
        if link.outbound.subscriptions.preserved:
            link.outbound.subscriptions.end_preserved()
        if not any(table.changed or table.pages.has_gone for table in link.outbound):
            return []
        advertised = list(link.outbound.advertisements.changed)
        if link.is_listing:
            link.mark_unsent()  # it travels in a page, or when all is listed
            note_advertised(link, advertised)
            return []
        if not link.is_synced:
            link.mark_unsent()
            note_advertised(link, advertised)
            for table in link.outbound:
                table.skip_updates()
            return []
        advertise, unadvertise, _ = link.outbound.advertisements.take_updates()
        subscribe, unsubscribe, prunes = link.outbound.subscriptions.take_updates()
        updates = _updates(Advertise, Advertise, Unadvertise, advertise, link)
        if link.policy.packed and unsubscribe:
            updates.append(_packed(subscribe, unsubscribe, prunes, link))
        else:
            updates += _updates(Subscribe, Replace, Unsubscribe, subscribe, link)
            updates += [Unsubscribe(link.next_seq(), id, prune=_of([id], prunes)) for id in unsubscribe]
        updates += [Unadvertise(link.next_seq(), id) for id in unadvertise]
        note_advertised(link, advertised)
        if self.cells is not None and link.agrees:
            updates = [self._with_cells(message, self.cells) for message in updates]
        sent, withdrawn = len(advertise) + len(subscribe), len(unadvertise) + len(unsubscribe)
        link.counts.note_updates(len(updates), sent, withdrawn)
        return updates

    def _with_cells(self, message: Message, cells: LinkCells) -> Message:
        """A subscription with the ranges of its cells, as they came or were computed here."""
        if not isinstance(message, Subscribe):
            return message
        entries = self.received.subscriptions.of_id(message.id)
        known = [link for link, entry in entries.items() if entry.where == message.where]
        return replace(message, cells=cells.ranges(known[0], message.id)) if known else message

    def check_invariants(self) -> None:
        """Every offer has a live reason, and every reason an offer."""
        if self.cells is not None:
            self.cells.check_invariants()
            assert len(self.cells) == len(self.received.subscriptions)
        for table in self.received:
            table.check_invariants()
            assert all(entry.link in self.links for entry in table)
        for link in self.brokers():
            for name, outbound in link.outbound.items():
                outbound.check_invariants()
                wanted: dict[str, list[Entry]] = {}
                for entry in self.received.table(name):
                    if self._is_offered(name, entry, link):
                        wanted.setdefault(entry.id, []).append(entry)
                offered = [each.where for id, entries in wanted.items() for each in _offered(id, entries).values()]
                live = {id: where for id, where in outbound.wheres.items() if id not in outbound.preserved}
                assert sorted(live.values()) == sorted(offered)
                others = {each for id, ids in outbound.aliases.items() for each in ids if each != id}
                assert live.keys() - others == wanted.keys()
                if link.is_synced:
                    assert (
                        outbound.sent == outbound.forwarded() and not outbound.changed and not outbound.pages.has_gone
                    )

    def _is_offered(self, table: str, entry: Entry, link: Link) -> bool:
        if table == SUBSCRIPTIONS:
            return self.settings.routing != "events" and _is_to(entry, link, self.toward(entry))
        return self.settings.routing == "advertisements" and link.hears_from(entry.link)


def note_advertised(link: Link, ids: Iterable[str]) -> None:
    """What a neighbour is to know of these advertisements has changed: it was sent, or will be."""
    offered = link.outbound.advertisements.wheres
    link.pending.note(ids, offered, link.sent_total, max(link.settled, link.excepted))


def _is_to(entry: Entry, link: Link, toward: dict[str, None] | None) -> bool:
    return link.hears_from(entry.link) and (toward is None or link.name in toward)


def _offer(link: Link, table: str, id: str, entries: list[Entry]) -> None:
    """Offer an id with its region. While it comes over two links, and one does not know yet that it was replaced, the
    second region is offered under an id of its own."""
    outbound = link.outbound.table(table)
    if len(entries) == 1 and id not in outbound.aliases:  # nearly always
        outbound.offer(id, entries[0].where, entries[0].region)
    else:
        outbound.offer_all(id, {each: (entry.where, entry.region) for each, entry in _offered(id, entries).items()})


def _offered(id: str, entries: Iterable[Entry]) -> dict[str, Entry]:
    """The entries with different clauses, by the ids that they are offered under."""
    by_where: dict[str, Entry] = {}
    for entry in entries:
        by_where.setdefault(entry.where, entry)
    return {alias(id, entry.link) if at else id: entry for at, entry in enumerate(by_where.values())}


def _is_inside(inner: Region, outer: Region) -> bool:
    """Whether each term lies in one of the other's: a quick look, that may miss it."""
    return all(any(term.is_inside(other) for other in outer.terms) for term in inner.terms)


def _meet(one: Region, other: Region) -> bool:
    """Whether two regions without balls have an event in common."""
    return any(term & each is not None for term in one.terms for each in other.terms)


def _of(ids: list[str], prunes: dict[str, Prune]) -> dict[str, Prune]:
    return {id: prunes[id] for id in ids if id in prunes}


def _packed(
    send: list[tuple[str, str, str | None]], withdraw: list[str], prunes: dict[str, Prune], link: Link
) -> Message:
    """All of it in one message: a newcomer with those that it retracts, or those that leave with their replacements."""
    prune = _of(withdraw, prunes)
    if len(send) == 1 and send[0][2] is None and not prune:
        return Subscribe(link.next_seq(), send[0][0], send[0][1], retracts=tuple(withdraw))
    replacements = {id: where for id, where, _ in send}
    return Unsubscribe(link.next_seq(), withdraw[0], tuple(withdraw[1:]), replacements, prune)


def _updates(
    new: Callable[[int, str, str], Message],
    replaced: Callable[[int, str, str], Message],
    gone: Callable[[int, str], Message],
    send: list[tuple[str, str, str | None]],
    link: Link,
) -> list[Message]:
    """What is new first: something that is replaced may have covered it. Several are replaced one after the other, so
    until all are, the old regions stay there under other ids."""
    known = [(id, where, before) for id, where, before in send if before is not None]
    stays = [(alias(id), before) for id, _, before in known] if len(known) > 1 else []
    first = [(id, where) for id, where, before in send if before is None] + stays
    updates = [new(link.next_seq(), id, where) for id, where in first]
    updates += [replaced(link.next_seq(), id, where) for id, where, _ in known]
    return updates + [gone(link.next_seq(), id) for id, _ in stays]
