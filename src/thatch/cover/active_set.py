"""Active sets: which subscriptions are forwarded (active), which are held back (passive), and why (certificates).

A subscription that the active ones cover is passive, and its certificate names the active ones that prove it. The
subscription table holds one active set, and every link of a broker holds one.

Certificates make unsubscription cheap: a passive subscription is rechecked only when a member of its certificate
leaves, and then only the part that the departed member held is checked again: the others still hold the rest.

    passive  |--------- s ---------|          certificate {a, b}
    active   |----- a ------|                 b leaves: only s & b is checked, against a and c;
                      |------ b ------|       covered by c: the certificate is {a, c}
                      |------ c -------|

Retraction (the congestion paper's *active* covering): a newcomer retracts those that it covers, one at a time, each
certified against the active set without it; all at once could be circular. Certificates that name a retracted
subscription get its own certificate in its place. With an engine that covers by a union, `retract="union"` also
retracts those that the newcomer covers together with others: every member that meets it is checked again. That forwards
the least, and costs a check for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from thatch.cover.cover_set import Change
from thatch.cover.engines import engine
from thatch.cover.verdict import Covered, Uncovered, Verdict, is_covered
from thatch.errors import CallerError, TooManyBoxes, UnknownSubscription, shown
from thatch.region.region import Region
from thatch.space.space import Space

NAMES_MAX = 32  # a longer certificate is computed again
UNION = "union"


class ActiveSet:
    """A `CoverSet` by a cover engine."""

    is_gradual = keeps_certificates = True

    def __init__(self, space: Space, cover: str | None = "exact", retract: bool | str = False, **options: Any) -> None:
        """`cover=None`: everything is active. `retract` is False, True or "union"."""
        if retract not in (False, True, UNION):
            raise CallerError(f"retract is False, True or {UNION!r}, not {shown(retract)}")
        self.space = space
        self.retract = retract
        self.rechecks = 0  # checks made because somebody left
        self._cover, self._options = cover, options
        self._engine = None if cover is None else engine(cover, space, **options)
        self._regions: dict[Any, Region] = {}  # in order of arrival
        self._arrival: dict[Any, int] = {}
        self._arrivals = 0
        self._active: dict[Any, None] = {}
        self._certificates: dict[Any, tuple[Any, ...]] = {}  # of passive ones
        self._named_by: dict[Any, dict[Any, None]] = {}  # active -> passive ones whose certificate names it

    @property
    def active(self) -> list[Any]:
        """The active ids, in order of arrival."""
        return sorted(self._active, key=self._arrival.__getitem__)

    @property
    def passive(self) -> dict[Any, tuple[Any, ...]]:
        """The passive ids, each with its certificate."""
        return dict(self._certificates)

    def region(self, id: Any) -> Region:
        return self._regions[self._known(id)]

    def is_active(self, id: Any) -> bool:
        return self._known(id) in self._active

    def certificate(self, id: Any) -> tuple[Any, ...] | None:
        """Who covers a passive one; None for an active one."""
        return self._certificates.get(self._known(id))

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, id: object) -> bool:
        return id in self._regions

    def _known(self, id: Any) -> Any:
        if id not in self._regions:
            raise UnknownSubscription(id)
        return id

    def subscribe(self, id: Any, region: Region, check: bool = True, witness: bool = True) -> Change:
        """Without `check` it is active, covered or not, and others are checked against it. Without `witness` the
        verdict is left out where the point would have to be searched for now, before members are retracted."""
        self._register(id, region)
        if self._engine is None:
            self._active[id] = None
            return Change([id])
        if not check:
            self._activate(id)
            return Change([id])
        verdict = self._engine.check(region)
        if isinstance(verdict, Covered):
            self._deactivate(id, verdict.certificate)
            return Change([], [], verdict)
        candidates = self._candidates(region)
        final: Verdict | None = verdict
        if candidates and isinstance(verdict, Uncovered):  # completed now: retraction takes members out
            final = Uncovered(verdict.witness, space=self.space) if witness else None
        self._activate(id)
        return Change([id], self._retract(candidates), final)

    def _candidates(self, region: Region) -> list[Any]:
        """Those that a newcomer with this region may retract."""
        assert self._engine is not None
        if self.retract == UNION and self._engine.covers_by == "union":
            return self._engine.members_meeting(region)
        return self._engine.members_within(region) if self.retract else []

    def subscribe_many(self, ids: Sequence[Any], regions: Sequence[Region]) -> list[Change]:
        """The changes of subscribing one by one, in order; in one call of the engine where nothing is retracted."""
        seen: set[Any] = set()
        for id, region in zip(ids, regions, strict=True):
            if id in self._regions or id in seen:
                raise CallerError(f"{id!r} is subscribed already")
            seen.add(id)
            region.require(self.space)
        if self._engine is None or self.retract:
            changes = []
            for id, region in zip(ids, regions, strict=True):
                change = self.subscribe(id, region)
                if isinstance(change.verdict, Uncovered):
                    change.verdict.witness  # noqa: B018  # completed now: the next one may retract members
                changes.append(change)
            return changes
        changes = []
        for id, region, verdict in zip(ids, regions, self._engine.add_many(ids, regions), strict=True):
            self._register(id, region)
            if isinstance(verdict, Covered):
                self._deactivate(id, verdict.certificate)
                changes.append(Change([], [], verdict))
            else:
                self._active[id] = None
                changes.append(Change([id], [], verdict))
        return changes

    def unsubscribe(self, id: Any) -> Change:
        """Forward names those that are no longer covered, in order of arrival; withdraw names the one that leaves."""
        region = self._regions[self._known(id)]
        if id not in self._active:
            self._drop_certificate(id)
            self._forget(id)
            return Change()
        del self._active[id]
        forward, withdraw = self._depart(id, region)
        self._forget(id)
        return Change(forward, [*withdraw, id])

    def replace(self, id: Any, region: Region) -> Change:
        """Give a subscription another region, in one step: forwarding it again supersedes what was sent under its id.

        Those that the old region covered are rechecked when the new one is in its place, so that what both cover stays
        held back.
        """
        held = self._regions[self._known(id)]
        region.require(self.space)
        was_active = id in self._active
        if not was_active:
            self._drop_certificate(id)
        self._regions[id] = region
        if self._engine is None:
            return Change([id])
        if was_active:
            del self._active[id]
            self._engine.discard(id)
        before_change = {id: was_active}  # before this change, of all that it may concern
        verdict = self._engine.check(region)
        if isinstance(verdict, Covered):
            self._deactivate(id, verdict.certificate)
        else:
            candidates = self._candidates(region)
            if isinstance(verdict, Uncovered):
                verdict = Uncovered(verdict.witness, space=self.space)  # completed now: members come and go below
            self._activate(id)
            before_change.update(dict.fromkeys(self._retract(candidates), True))
        if was_active:
            promoted, withdrawn = self._recheck(id, held)
            before_change = dict.fromkeys(withdrawn, True) | dict.fromkeys(promoted, False) | before_change
        forward = [
            each for each, before in before_change.items() if each in self._active and (each == id or not before)
        ]
        withdraw = [each for each, before in before_change.items() if before and each not in self._active]
        return Change(sorted(forward, key=self._arrival.__getitem__), withdraw, verdict)

    def exchange(self, gone: Sequence[Any], new: Mapping[Any, Region]) -> Change:
        """Some leave and others come in their place, in one step: the newcomers are checked once, against what stays,
        and what the others held back after that."""
        held = {id: self._regions[self._known(id)] for id in gone}
        for id, region in new.items():
            if id in self._regions:
                raise CallerError(f"{id!r} is subscribed already")
            region.require(self.space)
        before_change: dict[Any, bool] = {}  # before this change, of all that it may concern
        for id in held:
            if id in self._active:
                before_change[id] = True
                del self._active[id]
                if self._engine is not None:
                    self._engine.discard(id)
            else:
                self._drop_certificate(id)
        for id, region in new.items():
            change = self.subscribe(id, region, witness=False)
            before_change = dict.fromkeys(change.withdraw, True) | dict.fromkeys(change.forward, False) | before_change
        for id in [id for id in held if id in before_change and self._engine is not None]:
            promoted, withdrawn = self._recheck(id, held[id])
            before_change = dict.fromkeys(withdrawn, True) | dict.fromkeys(promoted, False) | before_change
        forward = [each for each, before in before_change.items() if not before and each in self._active]
        forward.sort(key=self._arrival.__getitem__)
        withdraw = [
            each for each, before in before_change.items() if before and each not in self._active and each not in held
        ]
        for id in held:
            self._forget(id)
        return Change(forward, [*withdraw, *(id for id in held if id in before_change)])

    def dependents(self, id: Any) -> list[Any]:
        """Those that an active one holds back, alone or with others, in order of arrival."""
        return sorted(self._named_by.get(self._known(id), ()), key=self._arrival.__getitem__)

    def holds_back(self, id: Any) -> bool:
        return self._known(id) in self._named_by

    def promotes_more_than(self, id: Any, more_than: float = 0) -> bool:
        """Whether more than so many would be promoted if an active one left, each seen alone: of those promoted, some
        may cover others."""
        region = self._regions[self._known(id)]
        if self._engine is None or len(self._named_by.get(id, ())) <= more_than:
            return False
        del self._active[id]
        self._engine.discard(id)
        held = self._named_by[id]
        exposed = (1 for each in held if self._repaired(each, self._certificates[each], id, region) is None)
        found = any(number > more_than for number, _ in enumerate(exposed, 1))
        self._activate(id)
        return found

    def release(self, id: Any, most: int) -> Change:
        """Make an active one hold back `most` fewer than it does: others cover them, or they are promoted."""
        region = self._regions[self._known(id)]
        if self._engine is None:
            return Change()
        del self._active[id]
        self._engine.discard(id)
        forward, withdraw = self._recheck(id, region, most)
        self._activate(id)
        return Change(forward, withdraw)

    def load(self, regions: Mapping[Any, Region], certificates: Mapping[Any, tuple[Any, ...]]) -> None:
        """Into an empty set: what was decided elsewhere, in order of arrival. Nothing is decided again; those without a
        certificate are active."""
        active = [id for id in regions if id not in certificates]
        known = set(active)
        if (
            self._regions
            or not certificates.keys() <= regions.keys()
            or not known.issuperset(chain(*certificates.values()))
        ):
            raise CallerError("an active set is loaded into an empty one, and certificates name active members only")
        self._regions = dict(regions)
        self._arrival = {id: position for position, id in enumerate(regions)}
        self._arrivals = len(regions)
        self._active = dict.fromkeys(active)
        if self._engine is not None:
            self._engine.load(active, [regions[id] for id in active])
        for id, certificate in certificates.items():
            self._deactivate(id, certificate)

    def recompiled(self, space: Space, regions: Mapping[Any, Region]) -> tuple[ActiveSet, Change]:
        """The same subscriptions with other regions: their space has grown, and clauses mean more than before. What is
        still proven to be covered stays passive; what is not is promoted."""
        new = ActiveSet(space, self._cover, self.retract, **self._options)
        held = [id for id in self._regions if id in self._certificates]
        new.load({id: regions[id] for id in self._regions if id in self._active}, {})
        new._arrival, new._arrivals = dict(self._arrival), self._arrivals
        new.rechecks = self.rechecks
        promoted = []
        for id in held:
            assert new._engine is not None
            new.rechecks += 1
            new._regions[id] = regions[id]
            verdict = new._engine.check(regions[id])
            if isinstance(verdict, Covered):
                new._deactivate(id, verdict.certificate)
            else:
                new._activate(id)
                promoted.append(id)
        new._regions = {id: regions[id] for id in self._regions}  # in order of arrival
        return new, Change(promoted)

    def _register(self, id: Any, region: Region) -> None:
        if id in self._regions:
            raise CallerError(f"{id!r} is subscribed already")
        region.require(self.space)
        self._regions[id] = region
        self._arrival[id] = self._arrivals
        self._arrivals += 1

    def _forget(self, id: Any) -> None:
        del self._regions[id], self._arrival[id]

    def _activate(self, id: Any) -> None:
        assert self._engine is not None
        self._active[id] = None
        self._engine.add(id, self._regions[id])

    def _deactivate(self, id: Any, certificate: tuple[Any, ...]) -> None:
        self._certificates[id] = certificate
        for name in certificate:
            self._named_by.setdefault(name, {})[id] = None

    def _drop_certificate(self, id: Any) -> tuple[Any, ...]:
        """Take the certificate of a passive subscription away, and return it."""
        certificate = self._certificates.pop(id)
        for name in certificate:
            holders = self._named_by[name]
            del holders[id]
            if not holders:
                del self._named_by[name]
        return certificate

    def _depart(self, id: Any, region: Region) -> tuple[list[Any], list[Any]]:
        """The active one `id` has gone: recheck those whose certificate names it. Net forward and withdraw lists."""
        if self._engine is None:
            return [], []
        self._engine.discard(id)
        return self._recheck(id, region)

    def _recheck(self, id: Any, region: Region, most: int | None = None) -> tuple[list[Any], list[Any]]:
        """Recheck those (or the first so many) whose certificate names one that no longer holds this region. Which are
        promoted, and which are retracted by these?"""
        assert self._engine is not None
        promoted: dict[Any, None] = {}
        withdrawn: dict[Any, None] = {}
        for orphan in sorted(self._named_by.get(id, ()), key=self._arrival.__getitem__)[:most]:
            certificate = self._drop_certificate(orphan)
            repaired = self._repaired(orphan, certificate, id, region)
            if repaired is not None:
                self._deactivate(orphan, repaired)
                continue
            candidates = self._candidates(self._regions[orphan])
            self._activate(orphan)
            promoted[orphan] = None
            for gone in self._retract(candidates):
                if gone in promoted:
                    del promoted[gone]  # promoted and retracted in one change: never sent
                else:
                    withdrawn[gone] = None
        return list(promoted), list(withdrawn)

    def _repaired(self, id: Any, certificate: tuple[Any, ...], gone: Any, held: Region) -> tuple[Any, ...] | None:
        """A certificate without the one that has gone: only what that one held is checked again."""
        assert self._engine is not None
        self.rechecks += 1
        region = self._regions[id]
        part, rest = region, tuple[Any, ...]()
        # All of it where balls are, whose bounds prove less of parts than of the whole; and where the one that has gone
        # is back with another region (`replace`), for which a certificate may name it by now.
        if not (region.has_balls or held.has_balls or gone in self._active):
            with suppress(TooManyBoxes):
                part, rest = region & held, tuple(name for name in certificate if name != gone)
        verdict = self._engine.check(part)
        if not isinstance(verdict, Covered):
            return None
        return self._short(id, tuple(dict.fromkeys(rest + verdict.certificate)))

    def _short(self, id: Any, certificate: tuple[Any, ...]) -> tuple[Any, ...]:
        """Past NAMES_MAX names compute it again, and keep the long one if that proves nothing."""
        if len(certificate) <= NAMES_MAX:
            return certificate
        assert self._engine is not None
        verdict = self._engine.check(self._regions[id])
        return verdict.certificate if isinstance(verdict, Covered) else certificate

    def _retract(self, candidates: list[Any]) -> list[Any]:
        """Retract those that a newcomer covers, one at a time, and return them."""
        retracted = []
        for other in candidates:
            assert self._engine is not None
            self._engine.discard(other)
            verdict = self._engine.check(self._regions[other])
            if not isinstance(verdict, Covered):
                self._engine.add(other, self._regions[other])
                continue
            del self._active[other]
            self._deactivate(other, verdict.certificate)
            retracted.append(other)
            for dependent in list(self._named_by.get(other, ())):
                names = self._drop_certificate(dependent)
                replaced = [each for name in names for each in (verdict.certificate if name == other else (name,))]
                self._deactivate(dependent, self._short(dependent, tuple(dict.fromkeys(replaced))))
        return retracted

    def check_invariants(self) -> None:
        assert self._active.keys() | self._certificates.keys() == self._regions.keys()
        assert self._active.keys().isdisjoint(self._certificates)
        if self._engine is not None:
            assert set(self._engine) == self._active.keys()
            self._engine.check_invariants()
        named: dict[Any, set[Any]] = {}
        for id, certificate in self._certificates.items():
            assert set(certificate) <= self._active.keys(), f"{id!r} is certified by someone who is not active"
            for name in certificate:
                named.setdefault(name, set()).add(id)
            if self._engine is not None and self._engine.may_err != "covered":
                assert is_covered(self._regions[id], [self._regions[name] for name in certificate])
        assert named == {name: set(holders) for name, holders in self._named_by.items()}
