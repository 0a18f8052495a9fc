"""The way of events: to clients that want them, and to neighbours over whose links somebody asked for them.

An event changes nothing that routes events. What is wrong with a client's is refused; a neighbour that sends what
cannot be read is hung up on. Between neighbours that agree on cells (cells.py), the number of its cell says where an
event goes; where things leave by incremental pruning, it carries the hops since somebody else wanted it, too
(statistics.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thatch.broker.cells import CLIENTS, LinkCells
from thatch.broker.forwarding import Forwarding
from thatch.broker.link import Link
from thatch.broker.policy import Settings
from thatch.broker.statistics import Distances
from thatch.broker.tables import Entry
from thatch.errors import CallerError, EventError, ThatchError, shown, suggestion
from thatch.protocol.messages import Deliver, Effect, Publish, Refused, Reject, Send
from thatch.space.axis import Coordinates
from thatch.space.batches import plain_columns
from thatch.space.space import Space
from thatch.table.explain import why_not

REASON_MAX = 500  # characters of a refusal
HOPS_MAX = 1 << 20  # that an event may have come
Errors = dict[int, Exception]  # of messages, by their place


class Router:
    def __init__(self, space: Space, settings: Settings, forwarding: Forwarding) -> None:
        self.space = space
        self.open_space = space  # what events may carry; behind `space` while that spreads
        self.distances = Distances(settings.history_seconds)
        self._settings, self._forwarding, self._links = settings, forwarding, forwarding.links
        self._counts_distance = settings.is_incremental
        self._floods = settings.routing == "events"

    def tune(self, settings: Settings) -> None:
        if settings.history_seconds != self._settings.history_seconds:
            self.distances = Distances(settings.history_seconds)
        self._settings, self._counts_distance = settings, settings.is_incremental

    def grow(self, space: Space) -> None:
        """Events are read in this space; what is new in it they may not carry before it is opened."""
        self.space = space

    def open(self, space: Space) -> None:
        """Events may carry what is in this space."""
        self.open_space = space

    # --- One event, or many -----------------------------------------------------------------------------------------

    def publish(self, message: Publish, link: str, now: float, effects: list[Effect]) -> None:
        source = self._links.get(link)
        if source is None or not source.is_met:
            return
        cells = self._forwarding.cells
        if cells is not None and source.agrees and 0 <= message.cell < cells.end:
            source.counts.note_in()
            self._pass_on(message, source, cells, effects)
            return
        point = self._point_of(message, source, effects)
        if point is not None and self._is_advertised(message, source, point, effects):
            held = self._forwarding.received.subscriptions.holding(point)
            if self._counts_distance:
                message = self._noted(message, source, point, held, now)
            if cells is not None:
                header = message.distance, message.count, cells.number(point)
                message = Publish(message.id, message.event, message.payload, *header)
            self._route(message, source, held, effects)

    def publish_all(self, messages: Sequence[Publish], link: str, now: float) -> tuple[list[list[Effect]], Errors]:
        """The effects of each, as one after the other, and the errors of those that fail. The index is asked once."""
        source = self._links.get(link)
        effects: list[list[Effect]] = [[] for _ in messages]
        errors: Errors = {}
        if source is None or not source.is_met:
            return effects, errors
        if self._counts_distance or self._forwarding.cells is not None:  # each is marked on its way
            for at, message in enumerate(messages):
                try:
                    self.publish(message, link, now, effects[at])
                except Exception as error:
                    errors[at] = error
                if not source.is_client and any(isinstance(each, Reject) for each in effects[at]):
                    break
            return effects, errors
        columns = self._plain_columns(messages, source)
        taken: Sequence[int] = range(len(messages))
        if columns is None:
            taken, columns = self._columns(messages, source, effects, errors)
        if not taken:
            return effects, errors
        try:
            are_advertised = self._are_advertised(source, columns)
            held = self._forwarding.received.subscriptions.holding_all(columns)
        except Exception:  # of one of them: each alone says which
            for row, at in enumerate(taken):
                try:
                    point = [int(column[row]) for column in columns]
                    if self._is_advertised(messages[at], source, point, effects[at]):
                        entries = self._forwarding.received.subscriptions.holding(point)
                        self._route(messages[at], source, entries, effects[at])
                except Exception as error:
                    errors[at] = error
            return effects, errors
        for at, is_advertised, entries in zip(taken, are_advertised, held, strict=True):
            own, message = effects[at], messages[at]
            try:
                if is_advertised or self._is_advertised(message, source, self.space.encode(message.event), own):
                    self._route(message, source, entries, own)
            except Exception as error:
                errors[at] = error
        return effects, errors

    # --- What may be published --------------------------------------------------------------------------------------

    def _plain_columns(self, messages: Sequence[Publish], source: Link) -> list[Coordinates] | None:
        """Their coordinates, if nothing is wrong or odd about any of them."""
        are_own = not source.is_client or all(each.id.startswith(source.prefix) for each in messages)
        is_behind = self.open_space is not self.space if source.is_client else source.is_ahead_of(self.space)
        if not are_own or is_behind:
            return None
        try:
            columns = plain_columns([each.event for each in messages], self.space)
        except Exception:  # of one of them: whoever looks at each says which
            return None
        if columns is not None:
            source.counts.note_in(len(messages))
        return columns

    def _columns(
        self, messages: Sequence[Publish], source: Link, effects: list[list[Effect]], errors: Errors
    ) -> tuple[list[int], list[Coordinates]]:
        """Which of them are taken, and their coordinates, looking at each."""
        taken, points = [], []
        for at, message in enumerate(messages):
            try:
                point = self._point_of(message, source, effects[at])
            except Exception as error:
                errors[at] = error
                continue
            if point is not None:
                taken.append(at)
                points.append(point)
            elif not source.is_client:  # what cannot be read: nothing that follows is taken before it
                break
        return taken, list(np.array(points, np.int64).T.copy())

    def _point_of(self, message: Publish, source: Link, effects: list[Effect]) -> list[int] | None:
        """The point of an event; None if the event was refused."""
        source.counts.note_in()
        try:
            if source.is_client:
                if not message.id.startswith(source.prefix):
                    prefix = source.prefix
                    raise CallerError(
                        f"ids of events of {source.name!r} begin with {prefix!r}, unlike {shown(message.id)}",
                        code="id",
                    )
                self._check_names(message.event)
            elif source.is_ahead_of(self.space):
                for name in message.event:
                    if self.space.index(name) is None:
                        raise EventError(name, message.event[name], "is new, and not known here yet")
            return self.space.encode(message.event)
        except (EventError, CallerError) as error:
            effects.append(self._rejection(message, source, error))
            return None

    def _check_names(self, event: Mapping[str, Any]) -> None:
        """A publisher's attributes are those of the space, and nothing that the overlay does not know yet."""
        for name in event if not event.keys() <= self.space.names else ():
            if not isinstance(name, str) or self.space.index(name) is None:
                close = suggestion(name, (each.name for each in self.space))
                raise CallerError(f"attribute {shown(name)} is not in the space {self.space}{close}", code="event")
        if self.open_space is not self.space:
            for name in event:
                if self.open_space.index(name) is None:
                    why = f"attribute {shown(name)} is new, and not known everywhere yet: try again later"
                    raise CallerError(why, code="later")
            self.open_space.encode(event)

    def _is_advertised(self, message: Publish, source: Link, point: list[int], effects: list[Effect]) -> bool:
        try:
            if source.is_client:
                self._check_advertised(message, source, point)
        except (EventError, CallerError) as error:
            effects.append(self._rejection(message, source, error))
            return False
        return True

    def _are_advertised(self, source: Link, columns: list[Coordinates]) -> list[bool]:
        """For each point, whether its publisher may publish it."""
        if not source.is_client or self._settings.routing != "advertisements":
            return [True] * len(columns[0])
        found = np.zeros(len(columns[0]), np.bool_)
        for entry in self._forwarding.received.advertisements.of_link(source.name).values():
            found |= entry.region.contains_points(columns)
            if found.all():
                break
        return found.tolist()

    def _check_advertised(self, message: Publish, source: Link, point: list[int]) -> None:
        if self._settings.routing != "advertisements":
            return
        own = self._forwarding.received.advertisements.of_link(source.name)
        if any(entry.region.contains_point(point) for entry in own.values()):
            return
        if not own:
            raise CallerError(
                f"{source.name!r} publishes without an advertisement: advertise first, such as advertise('TRUE')",
                code="advertisement",
            )
        near = min((why_not(each.peer_id, each.region, message.event) for each in own.values()), key=_failures)
        raise CallerError(f"outside what {source.name!r} advertised: {near}", code="advertisement")

    # --- Where it goes ----------------------------------------------------------------------------------------------

    def _route(self, message: Publish, source: Link, held: list[Entry], effects: list[Effect]) -> None:
        """To every client that wants it, and to every neighbour over whose link somebody asked for it."""
        if len(held) == 1 and not self._floods:  # most events: nothing has to be gathered
            entry = held[0]
            target = self._links[entry.link]
            is_asked_for = not target.pending.placeholders
            if is_asked_for and target.is_met and target.behind is None and (source.is_client or target is not source):
                target.counts.note_out()
                to_client = target.is_client
                effects.append(
                    Deliver(entry.link, message, (entry.peer_id,)) if to_client else Send(entry.link, message)
                )
                return
        wanted: dict[str, list[str]] = {}  # by link, the ids that the one behind it knows
        for entry in held:
            ids = wanted.get(entry.link)
            if ids is None:
                wanted[entry.link] = [entry.peer_id]
            else:
                ids.append(entry.peer_id)
        self._send_on(message, source, wanted, effects)

    def _pass_on(self, message: Publish, source: Link, cells: LinkCells, effects: list[Effect]) -> None:
        """An event whose cell is known: its values are read only where a client may want it."""
        wanted: dict[str, list[str]] = {name: [] for name in cells.wanting(message.cell)}
        if wanted.pop(CLIENTS, None) is not None:
            try:
                point = self.space.encode(message.event)
            except EventError as error:
                effects.append(self._rejection(message, source, error))
                return
            for entry in self._forwarding.received.subscriptions.holding(point):
                if self._links[entry.link].is_client:
                    wanted.setdefault(entry.link, []).append(entry.peer_id)
        self._send_on(message, source, wanted, effects)

    def _send_on(self, message: Publish, source: Link, wanted: dict[str, list[str]], effects: list[Effect]) -> None:
        """To links, each with the ids of a client that want it."""
        if self._floods:
            wanted |= {each.name: [] for each in self._forwarding.brokers()}
        if not source.is_client:
            wanted.pop(source.name, None)
            if not wanted:
                source.counts.note_false_positive()
        for name, ids in wanted.items():
            target = self._links[name]
            is_held = not target.is_met and self._settings.holds_events and not target.is_client
            if not (target.is_met or is_held) or (
                target.behind is not None and not _is_read_in(target.behind, message.event)
            ):
                target.counts.note_lost()
                continue
            target.counts.note_out()
            if target.is_client:
                ids.sort()
                effects.append(Deliver(name, message, tuple(ids)))
            else:
                effects.append(Send(name, message, bool(ids) and all(map(target.pending.is_placeholder, ids))))

    def _rejection(self, message: Publish, source: Link, error: ThatchError) -> Reject:
        """A client gets the reason. A neighbour is hung up on; but what one sends whose space has grown further, and
        cannot be read yet, waits there until this broker has grown, too."""
        reason = str(error)
        short = reason if len(reason) <= REASON_MAX else f"{reason[:REASON_MAX]}…"
        waits = not source.is_client and source.is_ahead_of(self.space)
        if not source.is_client and not waits:
            source.hang_up()
        refused = Refused(0, message.id, short, code="later" if waits else error.code)
        return Reject(source.name, refused, close=not source.is_client and not waits)

    def _noted(self, message: Publish, source: Link, point: list[int], entries: list[Entry], now: float) -> Publish:
        """The event as it goes on, with the hops since somebody else wanted it, too; noted for the subscriptions of
        this broker's clients. A publisher has no say in it, and a neighbour's numbers stay such as can be sent."""
        if source.is_client:
            return Publish(message.id, message.event, message.payload)
        hits = sum(entry.link != source.name for entry in entries)
        distance, count = (max(0, min(each, HOPS_MAX)) for each in (message.distance, message.count))
        distance, count = (0, count + 1) if hits > 1 else (distance + 1, count)
        own = [entry.id for entry in entries if self._links[entry.link].is_client]
        if own:
            held = self._forwarding.received.advertisements.holding(point)
            advertisements = [each.id for each in held if each.link == source.name]
            for id in own:
                self.distances.saw(id, advertisements, distance, now)
        return Publish(message.id, message.event, message.payload, distance, count)


def _is_read_in(space: Space, event: Mapping[str, Any]) -> bool:
    try:
        space.encode(event)
    except EventError:
        return False
    return True


def _failures(explanation: Any) -> int:
    return len(explanation.failures or ())
