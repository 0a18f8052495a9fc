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

from collections.abc import Iterator, Mapping

from thatch.broker.image import Decision
from thatch.broker.policy import Policy, Worth
from thatch.cover import ActiveSet, Change
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS, alias, merger_prefix
from thatch.region.region import Region
from thatch.space.space import Space

Prune = dict[str, int]  # for each advertisement, the hops along which a subscription is still to be withdrawn
Net = tuple[list[tuple[str, str, str | None]], list[str]]  # (id, where, where before) to send; ids to withdraw


class OutboundTable:
    def __init__(self, space: Space, policy: Policy, merged_as: str | None = None) -> None:
        """`merged_as`: how ids of mergers begin; None: nothing is merged."""
        self.policy = policy
        self.active_set = policy.new_active_set(space)
        self.merging = None if merged_as is None else policy.merging(space)
        self.wheres: dict[str, str] = {}  # of all that was offered, forwarded or held back
        self.sent: dict[str, str] = {}  # what the neighbour holds, as far as it was sent
        self.changed: dict[str, None] = {}  # ids to look at when the message has been handled
        self.aliases: dict[str, tuple[str, ...]] = {}  # the ids that an id is offered under, where it is not one
        self.preserved: dict[str, Prune] = {}  # how far each is still to be withdrawn over this link; {}: not at all
        self.prunes: dict[str, Prune] = {}  # how far what is withdrawn now is to be withdrawn further on
        self.unsaved: dict[str, None] = {}  # preserved ones that came or went since their records were written
        self._held_back: dict[str, int] = {}  # how many each preserved one held back when it was last replaced
        self._incarnations = 0
        self._merged_as = merged_as
        self._members: dict[str, str] = {}  # of the mergers, with their clauses
        self._mergers: dict[str, str] = {}  # id -> clause
        self._stale: dict[str, None] = {}  # ids of mergers that may be no more
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
        self.changed[id] = None

    def load(self, offers: Mapping[str, tuple[str, Region]], known: Mapping[str, Decision]) -> None:
        """Into a table with nothing but what is preserved: what the neighbour needs to know, in order of arrival. What
        is known of it is not decided again, unless something is preserved."""
        same = {id for id, (where, _) in offers.items() if id in known and known[id].where == where}
        certificates = {id: known[id].certificate for id in offers if id in same and known[id].certificate is not None}
        active = same - certificates.keys()
        taken = {id: names for id, names in certificates.items() if names is not None and active.issuperset(names)}
        if isinstance(self.active_set, ActiveSet) and active and not self.wheres:
            loaded = {id: region for id, (_, region) in offers.items() if id in active or id in taken}
            self.active_set.load(loaded, taken)
            self.wheres = {id: offers[id][0] for id in loaded}
            self.changed = dict.fromkeys(loaded)
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
        self.changed.update(dict.fromkeys([*gone, *new]))

    def _subscribe(self, id: str, region: Region) -> Change:
        if isinstance(self.active_set, ActiveSet):
            check = self._worth.next()
            change = self.active_set.subscribe(id, region, check, witness=False)
            if not check:
                return change
        else:
            change = self.active_set.subscribe(id, region)
        self._worth.saw(not change.forward)
        return change

    def _note(self, change: Change) -> None:
        self.changed.update(dict.fromkeys(change.forward))
        self.changed.update(dict.fromkeys(change.withdraw))

    # --- Preserved ---------------------------------------------------------------------------------------------------

    def may_hold_back(self, id: str, more_than: float) -> bool:
        """Whether a subscription with hops left may be preserved meanwhile. Relation graphs forward all or none."""
        return isinstance(self.active_set, ActiveSet) and len(self.active_set.dependents(id)) > more_than

    def preserve(self, id: str, hops_left: Prune, at_once: float) -> bool:
        """What was offered under an id leaves, but stays forwarded for the subscriptions that it holds back, if there
        are any; one with hops left, only if they are more than may be forwarded at once. Whether it stays."""
        if id not in self.wheres or not self.active_set.is_active(id):
            return False
        if hops_left and not self.may_hold_back(id, at_once):
            return False
        if not self.active_set.promotes_more_than(id, more_than=at_once if hops_left else 0):
            return False
        self.preserved[id], self.unsaved[id] = hops_left, None
        self._held_back[id] = len(self.active_set.dependents(id))
        return True

    def preserve_again(self, id: str, where: str, region: Region, hops_left: Prune) -> None:
        """As before a restart: nobody that it holds back is known yet."""
        self.wheres[id] = where
        self._note(self.active_set.subscribe(id, region))
        self.preserved[id], self.changed[id] = hops_left, None

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
            if isinstance(self.active_set, ActiveSet):
                # Newcomers since the last time are forwarded in addition: else it never ends where many come.
                newcomers = max(0, held - self._held_back.get(id, held)) if hops_left else 0
                self._note(self.active_set.release(id, most - done + newcomers))
                done += min(held - newcomers, most - done)
                self._held_back[id] = len(self.active_set.dependents(id))
            elif held <= most - done:  # of a relation graph, all or none
                self._end(id)
                done += held
            if done >= most:
                break
        self.end_preserved()
        return done

    def _end(self, id: str) -> None:
        self.prunes[id] = self.preserved[id]  # {}: what it hid further on is to come out as calmly
        self._drop_mark(id)
        del self.wheres[id]
        self._note(self.active_set.unsubscribe(id))
        self.changed[id] = None

    def _drop_mark(self, id: str) -> None:
        del self.preserved[id]
        self._held_back.pop(id, None)
        self.unsaved[id] = None

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
        self._note(self.active_set.subscribe(aside, region, check=False) if isinstance(self.active_set, ActiveSet)
                   else self.active_set.subscribe(aside, region))  # fmt: skip
        self.preserved[aside] = hops_left
        self._held_back[aside] = len(self.active_set.dependents(aside))
        self.unsaved[aside] = self.changed[aside] = None

    # --- What the neighbour holds ------------------------------------------------------------------------------------

    def net(self) -> Net:
        """What to send. Nothing that came and went since then."""
        send: list[tuple[str, str, str | None]] = []
        withdraw: list[str] = []
        for id in self.changed if self.merging is None else self._merge():
            now, before = self._forwarded_where(id), self.sent.get(id)
            if now is not None and now != before:
                send.append((id, now, before))
                self.sent[id] = now
            elif now is None and before is not None:
                withdraw.append(id)
                del self.sent[id]
        self.changed = {}
        return send, withdraw

    def mark_synced(self) -> None:
        """The neighbour was sent all that it should hold."""
        self.sent, self.changed = self.forwarded(), {}

    def take_unsaved(self) -> dict[str, tuple[str, Prune] | None]:
        """Preserved subscriptions that came or went since the last time, with clause and hops left; None: it ended."""
        unsaved, self.unsaved = self.unsaved, {}
        return {id: (self.wheres[id], self.preserved[id]) if id in self.preserved else None for id in unsaved}

    def take_prunes(self) -> dict[str, Prune]:
        """How far what is withdrawn now is to be withdrawn further on."""
        prunes, self.prunes = self.prunes, {}
        return prunes

    def skip(self) -> None:
        """The link is down: the neighbour gets the difference when it is back."""
        if self.merging is not None:
            self._merge()
        self.changed, self.prunes = {}, {}

    def _merge(self) -> dict[str, None]:
        """Give the mergers the members that are active now. The ids under which something may have changed."""
        assert self.merging is not None
        add: dict[str, Region] = {}
        discard: dict[str, int | None] = {}  # with the key of its merger
        for id in self.changed:
            now, before = self._active_where(id), self._members.get(id)
            if now == before:
                continue
            if before is not None:
                discard[id] = self.merging.key_of(id)
                del self._members[id]
            if now is not None:
                add[id] = self.active_set.region(id)
                self._members[id] = now
        change, stale, self._stale = self.merging.update(add, discard), self._stale, {}
        for id, key in discard.items():
            if id in self.prunes and key in change.withdraw:
                self.prunes[f"{self._merged_as}{key}"] = self.prunes[id]
        for key, region in change.forward.items():
            self._mergers[f"{self._merged_as}{key}"] = region.to_sql()
        for key in change.withdraw:
            del self._mergers[f"{self._merged_as}{key}"]
        return dict.fromkeys(f"{self._merged_as}{key}" for key in (*change.forward, *change.withdraw)) | stale

    def _active_where(self, id: str) -> str | None:
        return self.wheres[id] if id in self.wheres and self.active_set.is_active(id) else None

    def _forwarded_where(self, id: str) -> str | None:
        return self._active_where(id) if self.merging is None else self._mergers.get(id)

    def sent_as(self, id: str) -> str | None:
        """The id under which the neighbour knows what an id wants; None if it is held back."""
        if self._active_where(id) is None:
            return None
        return id if self.merging is None else f"{self._merged_as}{self.merging.key_of(id)}"

    def decisions(self) -> dict[str, Decision]:
        """What was decided about each id; nothing of a relation graph, which decides again."""
        if not isinstance(self.active_set, ActiveSet):
            return {}
        certificates = self.active_set.passive
        return {id: Decision(where, certificates.get(id)) for id, where in self.wheres.items()}

    def forwarded(self) -> dict[str, str]:
        """Ids and clauses that the neighbour should hold."""
        return {id: self.wheres[id] for id in self.active_set.active} if self.merging is None else dict(self._mergers)

    def move(self, space: Space, regions: dict[str, Region]) -> None:
        """Into another space: what is no longer proven covered is forwarded, and all that is forwarded is merged
        again."""
        self.active_set, change = self.active_set.recompiled(
            space, {id: regions[where] for id, where in self.wheres.items()}
        )
        self._note(change)
        if self.merging is not None:
            self._stale.update(dict.fromkeys(self._mergers))
            self.merging, self._members, self._mergers = self.policy.merging(space), {}, {}
            self.changed.update(dict.fromkeys(self.wheres))

    def check_invariants(self) -> None:
        self.active_set.check_invariants()
        assert len(self.active_set) == len(self.wheres) and all(id in self.active_set for id in self.wheres)
        for id in self.preserved:
            assert self.active_set.is_active(id) and self.active_set.holds_back(id), f"{id!r} is preserved for nobody"
        if self.merging is not None:
            self.merging.check_invariants()
            assert self._members == {id: self.wheres[id] for id in self.active_set.active}
            assert self.merging.regions.keys() == {int(id.rsplit("/", 1)[1]) for id in self._mergers}


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
