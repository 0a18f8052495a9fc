"""What one neighbour is told, of subscriptions or of advertisements.

    offers ──▶ told set: active, passive ──▶ merging, if it is on ──▶ what the neighbour holds (`sent`)
                   ▲
               preserved: told for those that they hold back

An offer is what follows from what came over the other links. The told set (cover/told.py) holds back what the others
cover; mergers (cover/merge.py) tell several as one, under ids of this link's own. What differs from what the neighbour
holds is its net change.

A preserved subscription has left, but goes on being told: incremental pruning keeps it here rather than tell all that
it holds back (statistics.py says when that is cheap). It is a member of the told set like any other, so it covers
newcomers, too; it ends when it holds back nobody, when others cover it, or when it comes back. If its id comes back
with another region, it goes on under an id with its incarnation number. While the broker is idle, those that it holds
back are told little by little, and then it ends.

One that is to be taken back further is preserved, too, while those that it holds back are more than can be told at
once: they are told little by little without waiting for an idle moment, and then it is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping

from thatch.broker.image import Decision
from thatch.broker.policy import Policy, Worth
from thatch.broker.tables import alias
from thatch.cover import Change, Told
from thatch.region.region import Region
from thatch.space.space import Space

Prune = dict[str, int]  # for each advertisement, the hops along which something is to be taken back
Net = tuple[list[tuple[str, str, str | None]], list[str]]  # (id, where, where before) to tell; ids to withdraw


class ToldTable:
    def __init__(self, space: Space, policy: Policy, merged_as: str | None = None) -> None:
        """`merged_as`: how ids of mergers begin; None: nothing is merged."""
        self.policy = policy
        self.told = policy.told(space)
        self.merging = None if merged_as is None else policy.merging(space)
        self.wheres: dict[str, str] = {}  # of all that it is to know, told or held back
        self.sent: dict[str, str] = {}  # what the neighbour holds, as far as it was sent
        self.changed: dict[str, None] = {}  # ids to look at when the message has been handled
        self.aliases: dict[str, tuple[str, ...]] = {}  # the ids that an id is offered under, where it is not one
        self.preserved: dict[str, Prune] = {}  # how far each is to be taken back over this link: {}: not at all
        self.prunes: dict[str, Prune] = {}  # how far what is withdrawn now is to be taken back
        self.unsaved: dict[str, None] = {}  # preserved ones that came or went since the broker kept them
        self._held: dict[str, int] = {}  # how many preserved ones held back when they were replaced last
        self._incarnations = 0
        self._merged_as = merged_as
        self._members: dict[str, str] = {}  # of the mergers, with their clauses
        self._mergers: dict[str, str] = {}  # id -> clause
        self._stale: dict[str, None] = {}  # ids of mergers that may be no more
        self._worth = Worth(policy.pays_from)

    # --- Offers ------------------------------------------------------------------------------------------------------

    def offer(self, id: str, where: str | None, region: Region | None) -> None:
        """The neighbour is to know an id with this region; None: it is not to know it."""
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
            change = self.told.unsubscribe(id)
        else:
            self.wheres[id] = where
            change = self.told.replace(id, region) if held is not None else self._subscribe(id, region)
        self._note(change)
        self.changed[id] = None

    def load(self, offers: Mapping[str, tuple[str, Region]], known: Mapping[str, Decision]) -> None:
        """Into one with nothing but what is preserved: what the neighbour is to know, in order of arrival. What is
        known of it is not decided again, unless something is preserved."""
        same = {id for id, (where, _) in offers.items() if id in known and known[id].where == where}
        certificates = {id: known[id].certificate for id in offers if id in same and known[id].certificate is not None}
        active = same - certificates.keys()
        taken = {id: names for id, names in certificates.items() if names is not None and active.issuperset(names)}
        if isinstance(self.told, Told) and active and not self.wheres:
            loaded = {id: region for id, (_, region) in offers.items() if id in active or id in taken}
            self.told.load(loaded, taken)
            self.wheres = {id: offers[id][0] for id in loaded}
            self.changed = dict.fromkeys(loaded)
        for id, (where, region) in offers.items():
            if id not in self.wheres or id in self.preserved:
                self.offer(id, where, region)

    def offer_all(self, id: str, wanted: dict[str, tuple[str, Region]]) -> None:
        """The neighbour is to know an id under these ids, with these regions, and under no other."""
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
        self._note(self.told.exchange(gone, {id: region for id, (_, region) in new.items()}))
        self.changed.update(dict.fromkeys([*gone, *new]))

    def _subscribe(self, id: str, region: Region) -> Change:
        if isinstance(self.told, Told):
            check = self._worth.next()
            change = self.told.subscribe(id, region, check, witness=False)
            if not check:
                return change
        else:
            change = self.told.subscribe(id, region)
        self._worth.saw(not change.forward)
        return change

    def _note(self, change: Change) -> None:
        self.changed.update(dict.fromkeys(change.forward))
        self.changed.update(dict.fromkeys(change.withdraw))

    # --- Preserved ---------------------------------------------------------------------------------------------------

    def may_hold_back(self, id: str, more_than: float) -> bool:
        """Whether one that is to be taken back further may be preserved meanwhile. Relation graphs tell all or none."""
        return isinstance(self.told, Told) and len(self.told.dependents(id)) > more_than

    def preserve(self, id: str, further: Prune, at_once: float) -> bool:
        """What was offered under an id leaves, but goes on being told for those that it holds back, if there are
        any; one that is to be taken back further, only if they are more than may be told at once. Whether it does."""
        if id not in self.wheres or not self.told.is_active(id):
            return False
        if further and not self.may_hold_back(id, at_once):
            return False
        if not self.told.exposes(id, more_than=at_once if further else 0):
            return False
        self.preserved[id], self.unsaved[id] = further, None
        self._held[id] = len(self.told.dependents(id))
        return True

    def preserve_again(self, id: str, where: str, region: Region, further: Prune) -> None:
        """As before a restart: nobody that it holds back is known yet."""
        self.wheres[id] = where
        self._note(self.told.subscribe(id, region))
        self.preserved[id], self.changed[id] = further, None

    def end_preserved(self) -> None:
        """Those that hold back nobody, or that others cover; then those that held back no others than these."""
        while ended := [id for id in self.preserved if not self.told.is_active(id) or not self.told.holds_back(id)]:
            for id in ended:
                self._end(id)

    def replace_preserved(self, most: int, is_idle: bool) -> int:
        """Tell some of what preserved ones hold back, and end those that hold back nobody then; unless the broker is
        idle, only of those that are to be taken back further. How many were told, or proved covered by others."""
        done = 0
        for id, further in list(self.preserved.items()):
            if not (further or is_idle) or not self.told.is_active(id):  # what was told just now took it back
                continue
            held = len(self.told.dependents(id))
            if isinstance(self.told, Told):
                # Those that came since the last time are told besides: else it never ends where many come.
                came = max(0, held - self._held.get(id, held)) if further else 0
                self._note(self.told.relieve(id, most - done + came))
                done += min(held - came, most - done)
                self._held[id] = len(self.told.dependents(id))
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
        self._note(self.told.unsubscribe(id))
        self.changed[id] = None

    def _drop_mark(self, id: str) -> None:
        del self.preserved[id]
        self._held.pop(id, None)
        self.unsaved[id] = None

    def _set_aside(self, id: str) -> None:
        """A preserved one makes room for another region under its id."""
        self._incarnations += 1
        aside = alias(id, f"/{self._incarnations}")
        while aside in self.wheres:  # from before a restart
            self._incarnations += 1
            aside = alias(id, f"/{self._incarnations}")
        further = self.preserved[id]
        self._drop_mark(id)
        self.wheres[aside], region = self.wheres[id], self.told.region(id)
        self._note(self.told.subscribe(aside, region, check=False) if isinstance(self.told, Told)
                   else self.told.subscribe(aside, region))  # fmt: skip
        self.preserved[aside] = further
        self._held[aside] = len(self.told.dependents(aside))
        self.unsaved[aside] = self.changed[aside] = None

    # --- What the neighbour holds ------------------------------------------------------------------------------------

    def net(self) -> Net:
        """What to send. Nothing that came and went since then."""
        tell: list[tuple[str, str, str | None]] = []
        withdraw: list[str] = []
        for id in self.changed if self.merging is None else self._merge():
            now, before = self._told_where(id), self.sent.get(id)
            if now is not None and now != before:
                tell.append((id, now, before))
                self.sent[id] = now
            elif now is None and before is not None:
                withdraw.append(id)
                del self.sent[id]
        self.changed = {}
        return tell, withdraw

    def skip(self) -> None:
        """The neighbour is told when it is back."""
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
                add[id] = self.told.region(id)
                self._members[id] = now
        retold, stale, self._stale = self.merging.update(add, discard), self._stale, {}
        for id, key in discard.items():
            if id in self.prunes and key in retold.withdraw:
                self.prunes[f"{self._merged_as}{key}"] = self.prunes[id]
        for key, region in retold.forward.items():
            self._mergers[f"{self._merged_as}{key}"] = region.to_sql()
        for key in retold.withdraw:
            del self._mergers[f"{self._merged_as}{key}"]
        return dict.fromkeys(f"{self._merged_as}{key}" for key in (*retold.forward, *retold.withdraw)) | stale

    def _active_where(self, id: str) -> str | None:
        return self.wheres[id] if id in self.wheres and self.told.is_active(id) else None

    def _told_where(self, id: str) -> str | None:
        return self._active_where(id) if self.merging is None else self._mergers.get(id)

    def told_as(self, id: str) -> str | None:
        """The id under which the neighbour was told of what an id wants; None if it is held back."""
        if self._active_where(id) is None:
            return None
        return id if self.merging is None else f"{self._merged_as}{self.merging.key_of(id)}"

    def decisions(self) -> dict[str, Decision]:
        """What was decided about each id; nothing of a relation graph, which decides anew."""
        if not isinstance(self.told, Told):
            return {}
        certificates = self.told.passive
        return {id: Decision(where, certificates.get(id)) for id, where in self.wheres.items()}

    def all_told(self) -> dict[str, str]:
        return {id: self.wheres[id] for id in self.told.active} if self.merging is None else dict(self._mergers)

    def move(self, space: Space, regions: dict[str, Region]) -> None:
        """Into another space: what is no longer proven to be covered is told, and all that is told is merged anew."""
        self.told, change = self.told.recompiled(space, {id: regions[where] for id, where in self.wheres.items()})
        self._note(change)
        if self.merging is not None:
            self._stale.update(dict.fromkeys(self._mergers))
            self.merging, self._members, self._mergers = self.policy.merging(space), {}, {}
            self.changed.update(dict.fromkeys(self.wheres))

    def check_invariants(self) -> None:
        self.told.check_invariants()
        assert len(self.told) == len(self.wheres) and all(id in self.told for id in self.wheres)
        for id in self.preserved:
            assert self.told.is_active(id) and self.told.holds_back(id), f"{id!r} is preserved for nobody"
        if self.merging is not None:
            self.merging.check_invariants()
            assert self._members == {id: self.wheres[id] for id in self.told.active}
            assert self.merging.told.keys() == {int(id.rsplit("/", 1)[1]) for id in self._mergers}
