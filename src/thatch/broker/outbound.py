"""What one neighbour was sent, of subscriptions or of advertisements.

    offers ──▶ active set: active, passive ──▶ merging, if it is on ──▶ what the neighbour holds (`sent`)
                   ▲
               preserved: forwarded for the passive subscriptions that they cover

An offer follows from what came over the other links. The active set (cover/active_set.py) holds back what others cover;
mergers (merge/merge.py) forward several subscriptions as one, under ids of this link's own. What differs from what the
neighbour holds is the net change.

A preserved subscription has left but stays forwarded: incremental pruning keeps it rather than forward all that it
holds back (statistics.py says when that is cheap). It is a member of the active set like any other, so it covers
newcomers, too. It ends when it holds nothing back, when others cover it, or when its id comes back. If its id comes
back with another region, it goes on under an id with its incarnation number. While the broker is idle, those that it
holds back are forwarded little by little, and then it ends.

A subscription that has hops left to be withdrawn along is preserved, too, while it holds back more than may be
forwarded at once: these are forwarded little by little without waiting for an idle moment, and then it is withdrawn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from thatch.broker.fitting import fitted
from thatch.broker.image import Decision
from thatch.broker.mergers import Mergers
from thatch.broker.pages import Room, UnsentPages
from thatch.broker.policy import Policy, Worth
from thatch.cover import Change, CoverSet
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, alias, merger_prefix
from thatch.protocol.versions import OWN_LIMITS, ProtocolLimits
from thatch.region.region import Region
from thatch.space.space import Space

Prune = dict[str, int]  # for each advertisement, the hops along which a subscription is still to be withdrawn


class Updates(NamedTuple):
    """The net change: what to send a neighbour."""

    send: list[tuple[str, str, str | None]]  # id, clause, clause before
    withdraw: list[str]
    prunes: dict[str, Prune]  # how far what is withdrawn is to be withdrawn further on


class OutboundTable:
    """Its fields are for reading: its methods alone assign them."""

    def __init__(self, space: Space, policy: Policy, merged_as: str | None = None) -> None:
        """`merged_as`: how ids of mergers begin; None: nothing is merged."""
        self.active_set: CoverSet = policy.new_active_set(space)
        self.wheres: dict[str, str] = {}  # of all that was offered, forwarded or held back
        self.sent: dict[str, str] = {}  # what the neighbour holds, as far as it was sent
        self.pages = UnsentPages(self.sent)
        self.aliases: dict[str, tuple[str, ...]] = {}  # the ids that an id is offered under, where it is not one
        self.preserved: dict[str, Prune] = {}  # how far each is still to be withdrawn over this link; {}: not at all
        self._policy, self._limits = policy, OWN_LIMITS
        self._changed: dict[str, None] = {}  # ids to look at when the message has been handled
        self._prunes: dict[str, Prune] = {}  # how far what is withdrawn now is to be withdrawn further on
        self._unsaved: dict[str, None] = {}  # preserved ones that came or went since their records were written
        self._held_back: dict[str, int] = {}  # how many each preserved one held back when it was last replaced
        self._incarnations = 0
        merging = None if merged_as is None else policy.merging(space)
        self._mergers = None if merging is None or merged_as is None else Mergers(merging, merged_as)
        self._worth = Worth(policy.covered_share_min)

    # --- Offers ------------------------------------------------------------------------------------------------------

    def offer(self, id: str, where: str | None, region: Region | None) -> None:
        """The neighbour needs to know an id with this region; None: it no longer needs to."""
        if id in self.preserved:
            if where is None:
                return
            if where == self.wheres[id]:
                self._drop_mark(id)
                return
            self._set_aside(id)
        held = self.wheres.get(id)
        if where == held:
            return
        if where is None or region is None:
            del self.wheres[id]
            change = self.active_set.unsubscribe(id)
        else:
            self.wheres[id] = where
            change = self.active_set.replace(id, region) if held is not None else self._subscribe(id, region)
        self._note(change)
        self._changed[id] = None

    def load(self, offers: Mapping[str, tuple[str, Region]], known: Mapping[str, Decision]) -> None:
        """Into a table with nothing but what is preserved: what the neighbour needs to know, in order of arrival. What
        is known of it is not decided again, unless something is preserved."""
        same = {id for id, (where, _) in offers.items() if id in known and known[id].where == where}
        certificates = {id: known[id].certificate for id in offers if id in same and known[id].certificate is not None}
        active = same - certificates.keys()
        taken = {id: names for id, names in certificates.items() if names is not None and active.issuperset(names)}
        if self.active_set.keeps_certificates and active and not self.wheres:
            loaded = {id: region for id, (_, region) in offers.items() if id in active or id in taken}
            self.active_set.load(loaded, taken)
            self.wheres = {id: offers[id][0] for id in loaded}
            self._changed = dict.fromkeys(loaded)
        for id, (where, region) in offers.items():
            if id not in self.wheres or id in self.preserved:
                self.offer(id, where, region)

    def offer_all(self, id: str, wanted: dict[str, tuple[str, Region]]) -> None:
        """The neighbour needs to know an id under these ids, with these regions, and under no others."""
        for each in self.aliases.pop(id, (id,)):
            if each not in wanted:
                self.offer(each, None, None)
        for each, (where, region) in wanted.items():
            self.offer(each, where, region)
        if len(wanted) > 1:
            self.aliases[id] = tuple(wanted)

    def exchange(self, gone: list[str], new: dict[str, tuple[str, Region]]) -> None:
        """Some leave and others, not offered before, come in their place."""
        for id in gone:
            del self.wheres[id]
        self.wheres.update({id: where for id, (where, _) in new.items()})
        self._note(self.active_set.exchange(gone, {id: region for id, (_, region) in new.items()}))
        self._changed.update(dict.fromkeys([*gone, *new]))

    def _subscribe(self, id: str, region: Region) -> Change:
        check = self._worth.next()
        change = self.active_set.subscribe(id, region, check, witness=False)
        if check:
            self._worth.saw(not change.forward)
        return change

    def _note(self, change: Change) -> None:
        self._changed.update(dict.fromkeys(change.forward))
        self._changed.update(dict.fromkeys(change.withdraw))

    # --- Preserved ---------------------------------------------------------------------------------------------------

    def may_hold_back(self, id: str, more_than: float) -> bool:
        """Whether a subscription with hops left may be preserved meanwhile. Not in a set that forwards
        all or none."""
        return self.active_set.is_gradual and len(self.active_set.dependents(id)) > more_than

    def preserve(self, id: str, hops_left: Prune, at_once: float) -> bool:
        """What was offered under an id leaves, but stays forwarded for the subscriptions that it holds back, if there
        are any; one with hops left, only if they are more than may be forwarded at once. Whether it stays."""
        if id not in self.wheres or not self.active_set.is_active(id):
            return False
        if hops_left and not self.may_hold_back(id, at_once):
            return False
        if not self.active_set.promotes_more_than(id, more_than=at_once if hops_left else 0):
            return False
        self.preserved[id], self._unsaved[id] = hops_left, None
        self._held_back[id] = len(self.active_set.dependents(id))
        return True

    def preserve_again(self, id: str, where: str, region: Region, hops_left: Prune) -> None:
        """As before a restart: nobody that it holds back is known yet."""
        self.wheres[id] = where
        self._note(self.active_set.subscribe(id, region))
        self.preserved[id], self._changed[id] = hops_left, None

    def end_preserved(self) -> None:
        """End those that hold back nothing, or that others cover; then those that held back only these."""
        while ended := [
            id for id in self.preserved if not self.active_set.is_active(id) or not self.active_set.holds_back(id)
        ]:
            for id in ended:
                self._end(id)

    def replace_preserved(self, most: int, is_idle: bool) -> int:
        """Forward some of what preserved subscriptions hold back, and end those that hold back nothing then; unless the
        broker is idle, only of those with hops left. How many were forwarded, or proved covered by others."""
        done = 0
        for id, hops_left in list(self.preserved.items()):
            if not (hops_left or is_idle) or not self.active_set.is_active(
                id
            ):  # what was forwarded just now retracted it
                continue
            held = len(self.active_set.dependents(id))
            if self.active_set.is_gradual:
                # Newcomers since the last time are forwarded in addition: else it never ends where many come.
                newcomers = max(0, held - self._held_back.get(id, held)) if hops_left else 0
                self._note(self.active_set.release(id, most - done + newcomers))
                done += min(held - newcomers, most - done)
                self._held_back[id] = len(self.active_set.dependents(id))
            elif held <= most - done:  # all or none
                self._end(id)
                done += held
            if done >= most:
                break
        self.end_preserved()
        return done

    def _end(self, id: str) -> None:
        self._prunes[id] = self.preserved[id]  # {}: what it hid further on is to come out as calmly
        self._drop_mark(id)
        del self.wheres[id]
        self._note(self.active_set.unsubscribe(id))
        self._changed[id] = None

    def _drop_mark(self, id: str) -> None:
        del self.preserved[id]
        self._held_back.pop(id, None)
        self._unsaved[id] = None

    def _set_aside(self, id: str) -> None:
        """A preserved one makes room for another region under its id."""
        self._incarnations += 1
        aside = alias(id, f"/{self._incarnations}")
        while aside in self.wheres:  # from before a restart
            self._incarnations += 1
            aside = alias(id, f"/{self._incarnations}")
        hops_left = self.preserved[id]
        self._drop_mark(id)
        self.wheres[aside], region = self.wheres[id], self.active_set.region(id)
        self._note(self.active_set.subscribe(aside, region, check=False))
        self.preserved[aside] = hops_left
        self._held_back[aside] = len(self.active_set.dependents(aside))
        self._unsaved[aside] = self._changed[aside] = None

    # --- What the neighbour holds ------------------------------------------------------------------------------------

    @property
    def changed(self) -> Collection[str]:
        """The ids to look at when the message has been handled."""
        return self._changed

    def take_updates(self) -> Updates:
        """What to send. Nothing that came and went since the last time."""
        changed = self._take_changed() | self.pages.take_gone()
        forwarded = self.forwarded(changed)
        send: list[tuple[str, str, str | None]] = []
        withdraw: list[str] = []
        for id in changed:
            now, before = forwarded.get(id), self.sent.get(id)
            if now is not None and now != before:
                send.append((id, now, before))
                self.sent[id] = now
            elif now is None and before is not None:
                withdraw.append(id)
                del self.sent[id]
        prunes, self._prunes = self._prunes, {}
        return Updates(send, withdraw, prunes)

    def set_limits(self, limits: ProtocolLimits) -> None:
        """What the neighbour takes, before it is synced: a clause that exceeds it is sent as its hull."""
        self._limits = limits
        if self._mergers is not None:
            self._mergers.set_limits(limits)

    def skip_updates(self) -> None:
        """The link is down: the neighbour gets the difference when it is back."""
        self._take_changed()
        self._prunes = {}

    def take_page(self, room: Room) -> dict[str, str]:
        """What the neighbour should hold now and was not sent: as much as there is room for. What leaves meanwhile is
        withdrawn when all is listed."""
        changed = self._take_changed()
        self.pages.note_changes(changed, self.forwarded(changed))
        return self.pages.take(room, lambda id: self.forwarded((id,)).get(id))

    def take_unsaved(self) -> dict[str, tuple[str, Prune] | None]:
        """Preserved subscriptions that came or went since the last time, with clause and hops left; None: it ended."""
        unsaved, self._unsaved = self._unsaved, {}
        return {id: (self.wheres[id], self.preserved[id]) if id in self.preserved else None for id in unsaved}

    def note_prunes(self, prunes: Mapping[str, Prune]) -> None:
        """How far what leaves in this step is to be withdrawn further on."""
        self._prunes.update(prunes)

    def _take_changed(self) -> dict[str, None]:
        """The ids under which what is forwarded may have changed. Mergers get the members that are active now."""
        changed, self._changed = self._changed, {}
        if self._mergers is None:
            return changed
        wheres = {id: self._active_where(id) for id in changed}
        regions = {id: self.active_set.region(id) for id, where in wheres.items() if where is not None}
        merged, gone = self._mergers.update(changed, wheres, regions)
        self._prunes.update({merger: self._prunes[id] for id, merger in gone.items() if id in self._prunes})
        return merged

    def _active_where(self, id: str) -> str | None:
        return self.wheres[id] if id in self.wheres and self.active_set.is_active(id) else None

    @property
    def merges(self) -> bool:
        """Whether several subscriptions may be sent as one."""
        return self._mergers is not None

    def sent_as(self, id: str) -> str | None:
        """The id under which the neighbour knows what an id wants; None if it is held back."""
        if self._active_where(id) is None:
            return None
        return id if self._mergers is None else self._mergers.id_of(id)

    def decisions(self) -> dict[str, Decision]:
        """What was decided about each id; nothing where it would be decided again."""
        if not self.active_set.keeps_certificates:
            return {}
        certificates = self.active_set.passive
        return {id: Decision(where, certificates.get(id)) for id, where in self.wheres.items()}

    def forwarded(self, ids: Iterable[str] | None = None) -> dict[str, str]:
        """Ids and clauses that the neighbour should hold, as it can take them: all, or those of some ids."""
        if self._mergers is not None:
            wheres = self._mergers.wheres
            return dict(wheres) if ids is None else {id: wheres[id] for id in ids if id in wheres}
        if ids is None:
            active = {id: self.wheres[id] for id in self.active_set.active}
        else:
            active = {id: where for id in ids if (where := self._active_where(id)) is not None}
        if self._limits is OWN_LIMITS:
            return active
        return {id: fitted(where, self.active_set.region(id), self._limits) for id, where in active.items()}

    def move(self, space: Space, regions: dict[str, Region]) -> None:
        """Into another space: what is no longer proven covered is forwarded, and all that is forwarded is merged
        again."""
        self.active_set, change = self.active_set.recompiled(
            space, {id: regions[where] for id, where in self.wheres.items()}
        )
        self._note(change)
        merging = None if self._mergers is None else self._policy.merging(space)
        if self._mergers is not None and merging is not None:
            self._mergers.restart(merging)
            self._changed.update(dict.fromkeys(self.wheres))

    def check_invariants(self) -> None:
        self.active_set.check_invariants()
        assert len(self.active_set) == len(self.wheres) and all(id in self.active_set for id in self.wheres)
        for id in self.preserved:
            assert self.active_set.is_active(id) and self.active_set.holds_back(id), f"{id!r} is preserved for nobody"
        if self._mergers is not None:
            self._mergers.check_invariants({id: self.wheres[id] for id in self.active_set.active})


class OutboundTables:
    """What one neighbour was sent."""

    def __init__(self, space: Space, policy: Policy, owner: str, link: str) -> None:
        self.subscriptions = OutboundTable(space, policy, merged_as=merger_prefix(owner, link))
        self.advertisements = OutboundTable(space, policy)

    def table(self, name: str) -> OutboundTable:
        return self.subscriptions if name == SUBSCRIPTIONS else self.advertisements

    def items(self) -> tuple[tuple[str, OutboundTable], tuple[str, OutboundTable]]:
        return (SUBSCRIPTIONS, self.subscriptions), (ADVERTISEMENTS, self.advertisements)

    def __iter__(self) -> Iterator[OutboundTable]:
        return iter((self.subscriptions, self.advertisements))
