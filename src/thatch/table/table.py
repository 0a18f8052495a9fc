"""The subscription table: who wants this event, and which subscriptions must be forwarded?

An active set (cover/active_set.py) decides what is active, an index (matching/) finds who wants an event; this puts
names to both. Writers take a lock; readers take a moment, which is an immutable view of the index with the ids of that
time, and never wait."""

from __future__ import annotations

import gc
import heapq
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from thatch.cover import ENGINES, ActiveSet, Change, Verdict, covers
from thatch.errors import (
    CallerError,
    ClauseError,
    EmptyRegionWarning,
    EventError,
    SnapshotError,
    UnknownSubscription,
    check_on_error,
    shown,
)
from thatch.matching.groups import Groups
from thatch.region.columns import Columns, boxes_of_columns, listed, regions_of_boxes
from thatch.region.packing import pack_ints, pack_labels, pack_regions, unpack_ints, unpack_regions, unpack_runs
from thatch.region.region import Region
from thatch.space.space import Space
from thatch.table import snapshot as files
from thatch.table.explain import Explanation, explain_status, why_not, with_near_name
from thatch.table.moment import Moment, pairs_of
from thatch.table.names import Names, is_text, own_id

if TYPE_CHECKING:
    import pyarrow as pa

Id = str | int

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subscription:
    id: Id
    owner: str | None
    region: Region
    active: bool
    certificate: tuple[Id, ...] | None  # who covers it, if it is passive
    expires: float | None  # seconds since 1970


@dataclass(frozen=True, slots=True)
class RegionMatch:
    """Who wants an event that is only known to lie somewhere in a region."""

    certain: list[Id]  # want it wherever it lies
    possible: list[Id]  # want it somewhere in there, the certain ones included
    jointly: Verdict  # Covered: wherever it lies, one of those named wants it


class SubscriptionTable(Mapping[Id, Subscription]):
    """Standing queries in one process.

    >>> table = SubscriptionTable(Space.parse("symbol string, price double not null 0..1000"))
    >>> table.subscribe("cheap", "price < 20", owner="ann").forward
    ['cheap']
    >>> table.subscribe("cheaper", "price < 10").forward  # covered: nobody else needs to know
    []
    >>> table.match({"symbol": "A", "price": 5.0})
    ['cheap', 'cheaper']
    >>> print(table.explain("cheaper"))
    'cheaper' is passive: it is covered by 'cheap'
    >>> table.unsubscribe("cheap")
    Change(forward=['cheaper'], withdraw=['cheap'], verdict=None)
    """

    def __init__(
        self,
        space: Space,
        cover: str | None = "exact",
        retract: bool | str = False,
        groups: bool = False,
        **options: Any,
    ) -> None:
        """`cover` is a cover engine, or None: everything is active. `retract`: a wider newcomer takes back those that
        it covers. `groups`: look at passive ones below active hits only (matching/groups.py says when)."""
        if not isinstance(space, Space):
            raise CallerError(f"space is a Space, not {shown(space)}: Space.parse(…) makes one of a text")
        self.space, self.cover, self.retract, self.groups, self.options = space, cover, retract, groups, options
        if cover is None and (retract or options):
            raise CallerError("with cover off there is nothing to retract and no engine to take options")
        try:
            self._active_set = None if cover is None else ActiveSet(space, cover, retract, **options)
        except TypeError:
            raise CallerError(f"the cover engine {cover!r} does not take options of these types") from None
        if groups and (cover is None or ENGINES[cover].may_err == "covered"):
            raise CallerError(f"groups need an engine that never says covered wrongly, which {cover!r} is not")
        self._groups = Groups(space, apart=groups)
        self._names = Names()
        self._regions: dict[Any, Region] = {}  # with cover off, of those that came as regions
        self._owners: dict[Any, str] = {}
        self._expires: dict[Any, float] = {}
        self._expiries: list[tuple[float, int, Any]] = []  # a heap; what was replaced or has left is skipped
        self._lock = threading.RLock()
        self._publish()

    def _publish(self) -> None:
        self._moment = Moment(self._groups.view(), self._names.chunks, self._names.kind)

    def _now(self) -> Moment:
        """A moment in the space's present coordinates."""
        moment = self._moment
        while not self.space.is_current(moment.view.label_codes):
            with self._lock:
                self._publish()
                moment = self._moment
        return moment

    def _at_one_moment(self, ask: Callable[[Moment], T]) -> tuple[Moment, T]:
        """A moment and its answer; asked again if an axis is recoded after the moment was taken."""
        while True:
            moment = self._now()
            answer = ask(moment)
            if self.space.is_current(moment.view.label_codes):
                return moment, answer

    # --- Readers ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[Id]:
        """Ids in order of arrival."""
        with self._lock:
            return iter(list(self._names))

    def __contains__(self, id: object) -> bool:
        return id in self._names

    def __getitem__(self, id: Id) -> Subscription:
        with self._lock:
            id = self._known(id)
            region = self._region(id)
            certificate = None if self._active_set is None else self._active_set.certificate(id)
            return Subscription(
                id, self._owners.get(id), region, certificate is None, certificate, self._expires.get(id)
            )

    def __repr__(self) -> str:
        active = len(self) if self._active_set is None else len(self._active_set.active)
        return f"<SubscriptionTable of {len(self):,}, {active:,} active, over {self.space}>"

    def match(self, event: Mapping[str, Any]) -> list[Id]:
        """The ids of all subscriptions, active or passive, that want an event, sorted. Attributes that the space does
        not have are ignored."""
        if type(event) is not dict and not isinstance(event, Mapping):
            raise CallerError(f"an event is a mapping of attributes to values, not {shown(event)}")
        try:
            moment, numbers = self._at_one_moment(lambda moment: moment.view.match_point(self.space.encode(event)))
        except EventError as error:
            raise with_near_name(error, event, self.space) from None
        return moment.ids(numbers)

    def match_batch(self, events: Any, on_error: str = "raise") -> pa.Table:
        """Who wants each event of an Arrow table or a dict of arrays: an Arrow table of event_index, subscription_id,
        sorted. `on_error="skip"` leaves out events that have a bad value, and counts them in the schema's metadata
        under `skipped`."""
        check_on_error(on_error)

        def matched(moment: Moment) -> tuple[Any, Any, int, Any]:
            if on_error == "skip":
                columns, good = self.space.encode_valid(events)
            else:
                columns, good = self.space.encode_batch(events), None
            return *moment.view.match_points(columns), len(columns[0]), good

        moment, (rows, numbers, size, good) = self._at_one_moment(matched)
        found = pairs_of(rows, numbers, moment, size)
        if good is not None:
            found[0] = np.flatnonzero(good)[found[0]]
        import pyarrow as pa

        pairs = pa.table({"event_index": pa.array(found[0]), "subscription_id": found[1]})
        return pairs if good is None else pairs.replace_schema_metadata({"skipped": str(int((~good).sum()))})

    def match_region(self, region: Region | str) -> RegionMatch:
        """Who wants an event that lies somewhere in a region (an imprecise one: a box, a union of boxes)."""
        asked = self._compiled(region)
        with self._lock:  # so that regions are those of the moment
            moment, numbers = self._at_one_moment(lambda moment: moment.view.meeting(asked))
            found = {id: self._region(id) for id in moment.ids(numbers)}
        certain = [id for id, each in found.items() if covers({id: each}, asked, self.space)]
        return RegionMatch(certain, list(found), covers(found, asked, self.space))

    def explain(self, id: Id, event: Mapping[str, Any] | None = None) -> Explanation:
        """Why a subscription is passive (who covers it) or active (an event that only it wants). With an event:
        whether it matches, and which conditions fail."""
        with self._lock:
            id = self._known(id)
            region = self._region(id)
            if event is not None:
                return why_not(id, region, event)
            certificate = None if self._active_set is None else self._active_set.certificate(id)
            others = {}
            if self._active_set is not None and certificate is None:
                numbers = self._now().view.active.meeting(region)
                near = [each for each in self._now().ids(numbers) if each != id]
                others = {each: self._active_set.region(each) for each in near if self._active_set.is_active(each)}
            return explain_status(id, region, certificate, others, self.cover)

    # --- Writers ---------------------------------------------------------------------------------------------------

    def subscribe(
        self, id: Id, where: str | Region, owner: str | None = None, expires: float | datetime | None = None
    ) -> Change:
        """Add a subscription. The change says what to forward, if anything; the verdict says why.

        `expires` is in seconds since 1970, or a datetime with a time zone; `expire` removes what is due.
        """
        id, due = own_id(id), _seconds(expires)
        _check_owner(owner)
        try:
            region = self._compiled(where)
        except ClauseError as error:
            raise self._if_swapped(error, id) from None
        with self._lock:
            self._names.check_new([id])
            change = Change([id]) if self._active_set is None else self._active_set.subscribe(id, region)
            self._groups.add(
                self._names.add([id])[0], region, self._active_set is None or self._active_set.is_active(id)
            )
            if self._active_set is None:
                self._regions[id] = region
            self._regroup(change, id)
            self._note(id, owner, due)
            self._publish()
        if region.is_empty:
            _warn_of_empty([id])
        return change

    def subscribe_many(
        self,
        ids: Sequence[Id],
        clauses: Sequence[str | Region] | None = None,
        *,
        low: Columns | None = None,
        high: Columns | None = None,
        owners: Sequence[str | None] | None = None,
    ) -> list[Change]:
        """Add many, with the decisions of one by one, in order; if one is wrong, none is added.

        As clauses, or as typed columns of lower and upper bounds by attribute (see columns.py).
        """
        ids, clauses = listed(ids), clauses if clauses is None else listed(clauses)
        if (clauses is None) == (low is None and high is None):
            raise CallerError("give either clauses, or columns of bounds as low= and high=")
        owners = [None] * len(ids) if owners is None else listed(owners)
        if len(owners) != len(ids):
            raise CallerError(f"{len(ids):,} ids and {len(owners):,} owners do not go together")
        for owner in owners:
            _check_owner(owner)
        with self._lock:
            self._names.check_new(ids)
            if clauses is not None:
                changes = self._many_regions(ids, self._compiled_all(ids, clauses))
            else:
                changes = self._many_boxes(ids, low or {}, high or {})
            for id, owner in zip(ids, owners, strict=True):
                self._note(id, owner, None)
            self._publish()
            empty = [id for id in ids if id in self._regions and self._regions[id].is_empty]
            if self._active_set is not None:
                empty = [id for id in ids if self._active_set.region(id).is_empty]
        if empty:
            _warn_of_empty(empty)
        return changes

    def _many_regions(self, ids: list[Id], regions: list[Region]) -> list[Change]:
        changes = (
            [Change([id]) for id in ids] if self._active_set is None else self._active_set.subscribe_many(ids, regions)
        )
        self._enter(ids, regions, changes)
        return changes

    def _many_boxes(self, ids: list[Id], low: Columns, high: Columns) -> list[Change]:
        boxes = boxes_of_columns(low, high, len(ids), self.space)
        if self._active_set is not None or self.space.label_codes or not boxes.full.all():
            return self._many_regions(ids, regions_of_boxes(boxes, self.space))
        # With cover off the index keeps the bounds, and a region is made of them when somebody asks.
        numbers = self._names.add(ids)
        self._groups.add_many(np.arange(numbers.start, numbers.stop), (boxes.low, boxes.high), active=True)
        return [Change([id]) for id in ids]

    def _enter(self, ids: list[Id], regions: list[Region], changes: list[Change]) -> None:
        """Into the index: those that are active at the end of it all, and the others."""
        numbers = self._names.add(ids)
        active_set = self._active_set
        for active in (True, False):
            own = [at for at, id in enumerate(ids) if (active_set is None or active_set.is_active(id)) == active]
            if own:
                self._groups.add_many([numbers[at] for at in own], [regions[at] for at in own], active)
        if active_set is None:
            self._regions.update(zip(ids, regions, strict=True))
        new = set(ids)
        for change in changes:
            for id in change.withdraw:
                if id not in new:
                    self._groups.move(self._names.number(id), self._region(id), active=False)

    def replace(self, id: Id, where: str | Region, owner: str | None = None) -> Change:
        """Give a subscription another region (and owner, if given) in one step; its expiry stays."""
        _check_owner(owner)
        region = self._compiled(where)
        with self._lock:
            id = self._known(id)
            change = Change([id]) if self._active_set is None else self._active_set.replace(id, region)
            self._groups.discard(self._names.number(id))
            number = self._names.renew(id)
            self._groups.add(number, region, self._active_set is None or self._active_set.is_active(id))
            if self._active_set is None:
                self._regions[id] = region
            self._regroup(change, id)
            if owner is not None:
                self._owners[id] = owner
            self._publish()
        if region.is_empty:
            _warn_of_empty([id])
        return change

    def unsubscribe(self, id: Id) -> Change:
        """Remove a subscription. Forward what is no longer covered before withdrawing it."""
        with self._lock:
            change = self._remove(self._known(id))
            self._publish()
            return change

    def expire(self, now: float | datetime) -> Change:
        """Remove all subscriptions whose time has come. The net change: what comes and goes within is left out."""
        due = _seconds(now)
        if due is None:
            raise CallerError("expire needs the present time")
        forward: dict[Any, None] = {}
        withdraw: dict[Any, None] = {}
        with self._lock:
            while self._expiries and self._expiries[0][0] <= due:
                when, _, id = heapq.heappop(self._expiries)
                if self._expires.get(id) != when:
                    continue
                change = self._remove(id)
                for each in change.withdraw:
                    if each in forward:
                        del forward[each]
                    else:
                        withdraw[each] = None
                for each in change.forward:
                    if each in withdraw:
                        del withdraw[each]
                    else:
                        forward[each] = None
            self._publish()
        return Change(list(forward), list(withdraw))

    def _remove(self, id: Id) -> Change:
        change = Change([], [id]) if self._active_set is None else self._active_set.unsubscribe(id)
        self._groups.discard(self._names.number(id))
        self._names.discard(id)
        for notes in (self._regions, self._owners, self._expires):
            notes.pop(id, None)
        self._regroup(change, id)
        return change

    def _regroup(self, change: Change, but: Id) -> None:
        """Those that became active or passive change the index they are in."""
        for ids, active in ((change.forward, True), (change.withdraw, False)):
            for id in ids:
                if id != but:
                    self._groups.move(self._names.number(id), self._region(id), active)

    def _note(self, id: Id, owner: str | None, due: float | None) -> None:
        if owner is not None:
            self._owners[id] = owner
        if due is not None:
            self._expires[id] = due
            heapq.heappush(self._expiries, (due, self._names.number(id), id))
            if len(self._expiries) > 64 + 2 * len(self._expires):  # most have left already
                self._expiries = [(when, self._names.number(each), each) for each, when in self._expires.items()]
                heapq.heapify(self._expiries)

    # --- Files -----------------------------------------------------------------------------------------------------

    def snapshot(self, path: str | Path) -> None:
        """Write the whole table to a file. A crash on the way leaves the old file."""
        with self._lock:
            ids = list(self._names)
            position = {id: at for at, id in enumerate(ids)}
            passive = {} if self._active_set is None else self._active_set.passive
            regions, codes = self.space.stable(
                lambda: pack_regions([self._region(id).terms_in(self.space) for id in ids])
            )
            certificates = [[position[name] for name in names] for names in passive.values()]
            body = files.Body(
                self.space.to_json(), self.cover, self.retract, self.groups, self.options, pack_labels(codes), ids,
                {position[id]: owner for id, owner in self._owners.items()},
                {position[id]: due for id, due in self._expires.items()},
                pack_ints([position[id] for id in passive]),
                pack_ints(np.cumsum([0, *map(len, certificates)])),
                pack_ints([name for names in certificates for name in names]),
                regions,
            )  # fmt: skip
        files.write(Path(path), body)

    @classmethod
    def load(cls, path: str | Path) -> SubscriptionTable:
        """The table of a snapshot, with a space of its own. Nothing is parsed or decided again."""
        body = files.read(Path(path))
        space = files.unpack_space(body)
        try:
            with _no_collection():
                table = cls(space, body.cover, body.retract, body.groups, **body.options)
                table._restore(body, unpack_regions(body.regions, space))
        except SnapshotError:
            raise
        except (IndexError, ValueError, KeyError, TypeError) as error:
            raise SnapshotError(f"{path}: its parts do not fit together: {error}") from None
        return table

    def _restore(self, body: files.Body, regions: list[Region]) -> None:
        ids: list[Any] = list(body.ids)
        self._names.check_new(ids)
        names, passive = unpack_ints(body.certificates), unpack_ints(body.passive)
        for positions in (names, passive, np.array([*body.owners, *body.expiries], np.int64)):
            if len(positions) and not (positions.min() >= 0 and positions.max() < len(ids)):
                raise ValueError("a position of no subscription")
        if len(np.unique(passive)) < len(passive):
            raise ValueError("a passive subscription twice")
        runs = unpack_runs(body.certificates_at, len(names))
        certificates = {
            ids[at]: tuple(ids[name] for name in names[start:stop].tolist())
            for at, (start, stop) in zip(passive.tolist(), runs, strict=True)
        }
        self._take_in(ids, regions, certificates)
        for at, owner in body.owners.items():
            self._note(ids[at], owner, None)
        for at, due in body.expiries.items():
            self._note(ids[at], None, _seconds(due))
        self._publish()

    @classmethod
    def of_reduced(
        cls,
        space: Space,
        subscriptions: Mapping[Id, str | Region],
        certificates: Mapping[Id, Sequence[Id]],
        cover: str = "exact",
        retract: bool | str = False,
        groups: bool = False,
        **options: Any,
    ) -> SubscriptionTable:
        """A table of subscriptions that were reduced elsewhere (`thatch.spark.reduce`): passive ones are those with a
        certificate, which names active ones. Nothing is decided again, nor verified.

        >>> space = Space.parse("price int not null 0..100")
        >>> clauses = {"low": "price < 20", "high": "price >= 20", "some": "price > 5"}
        >>> table = SubscriptionTable.of_reduced(space, clauses, {"some": ["low", "high"]})
        >>> print(table.explain("some"))
        'some' is passive: it is covered by the union of 'low', 'high'
        """
        table = cls(space, cover, retract, groups, **options)
        ids = [own_id(id) for id in subscriptions]
        table._names.check_new(ids)
        regions = table._compiled_all(ids, list(subscriptions.values()))
        with _no_collection():
            proofs = {own_id(id): tuple(map(own_id, names)) for id, names in certificates.items()}
            table._take_in(ids, regions, proofs)
        table._publish()
        return table

    def _take_in(self, ids: list[Any], regions: list[Region], certificates: Mapping[Any, tuple[Any, ...]]) -> None:
        """Fill an empty table without deciding anything."""
        if self._active_set is None:
            self._regions = dict(zip(ids, regions, strict=True))
        else:
            self._active_set.load(dict(zip(ids, regions, strict=True)), certificates)
        numbers = self._names.add(ids)
        for active in (True, False):
            own = [at for at, id in enumerate(ids) if (id not in certificates) == active]
            self._groups.add_many([numbers[at] for at in own], [regions[at] for at in own], active)

    def check_invariants(self) -> None:
        """That everything agrees with everything. For tests: it looks at all there is."""
        with self._lock:
            self._names.check_invariants()
            self._groups.check_invariants()
            members = set(self._names)
            numbers = {self._names.number(id) for id in members}
            held = (self._groups.active, self._groups.passive)
            assert all(any(number in each for each in held) for number in numbers)
            assert sum(map(len, {id(each): each for each in held}.values())) == len(numbers)
            assert self._owners.keys() | self._expires.keys() <= members
            assert {each: when for when, _, each in self._expiries}.keys() >= self._expires.keys()
            if self._active_set is not None:
                self._active_set.check_invariants()
                assert len(self._active_set) == len(members) and all(each in self._active_set for each in members)
                if self._groups.passive is not self._groups.active:
                    active = {self._names.number(each) for each in self._active_set.active}
                    assert all(number in self._groups.active for number in active)
                    assert len(self._groups.active) == len(active)

    # --- Small things ----------------------------------------------------------------------------------------------

    def _known(self, id: Id) -> Any:
        """The table's own form of an id. `True` and `1.0` equal 1, and are none."""
        own = own_id(id)
        if isinstance(own, bool | float) or own not in self._names:
            raise UnknownSubscription(id)
        return own

    def _region(self, id: Id) -> Region:
        if self._active_set is not None:
            return self._active_set.region(id)
        region = self._regions.get(id)
        return self._groups.active.region(self._names.number(id)) if region is None else region

    def _compiled(self, where: str | Region) -> Region:
        if isinstance(where, Region):
            where.require(self.space)
            return where
        if not isinstance(where, str):
            raise CallerError(f"a subscription is a clause or a region, not {shown(where)}")
        return self.space.where(where)

    def _if_swapped(self, error: ClauseError, id: Any) -> ClauseError:
        """A refusal of a clause that was given as the id: then it says so."""
        try:
            self._compiled(id)
        except CallerError:
            return error
        hint = f"the id comes first: subscribe(id, clause), and {shown(id)} is a clause"
        return ClauseError(error.rule, error.line, error.column, hint, error.construct)

    def _compiled_all(self, ids: list[Id], wheres: Sequence[str | Region]) -> list[Region]:
        if len(wheres) != len(ids):
            raise CallerError(f"{len(ids):,} ids and {len(wheres):,} clauses do not go together")
        regions = []
        for id, where in zip(ids, wheres, strict=True):
            try:
                regions.append(self._compiled(where))
            except ClauseError as error:
                raise error.within(f"subscription {shown(id)}") from None
        return regions


@contextmanager
def _no_collection() -> Iterator[None]:
    """A million new objects, none of them garbage: looking for cycles among them takes as long as making them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _warn_of_empty(ids: list[Id]) -> None:
    who = f"subscription {shown(ids[0])}" if len(ids) == 1 else f"{len(ids):,} subscriptions"
    warnings.warn(f"{who}: no event can match", EmptyRegionWarning, stacklevel=3)


def _seconds(when: float | datetime | None) -> float | None:
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise CallerError(f"a time needs a time zone, unlike {when}")
        return when.timestamp()
    if when is None:
        return None
    try:
        if isinstance(when, int | float) and not isinstance(when, bool) and when == when:
            return float(when)
    except OverflowError:
        pass
    raise CallerError(f"a time is a number of seconds since 1970 or a datetime, not {shown(when)}")


def _check_owner(owner: str | None) -> None:
    if owner is not None and not is_text(owner):
        raise CallerError(f"an owner is a string of valid Unicode, not {shown(owner)}")
