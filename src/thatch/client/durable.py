"""The durable subscriptions of a client: what the broker is asked for, again on every connection, until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from thatch.broker.waits import Missing
from thatch.client.subscription import AsyncSubscription, Mark
from thatch.client.waiting import Until, fail, refusal, succeed, to_stand, within
from thatch.errors import CallerError, PeerError, Unavailable, shown
from thatch.protocol import wire
from thatch.protocol.messages import Message, SettledExcept

_ENDS = {"accepted": (Until.ACCEPTED,), "settled": tuple(Until)}  # of calls, by the state of a subscription


class _Asked(msgspec.Struct):
    """A subscription, or another clause of one, that a call waits for."""

    id: str
    where: str
    until: Until
    future: asyncio.Future[None]


class _Cancel(msgspec.Struct):
    """A cancel that the broker has not answered."""

    future: asyncio.Future[None]
    times_said: int = 0


class DurableSubscriptions:
    def __init__(
        self, say: Callable[[Message], bool], follow: Callable[[AsyncSubscription, str], None] | None = None
    ) -> None:
        """`say` sends a message if the broker takes messages at present, and returns whether it does; `resume` says
        later what could not be said. `follow` takes a subscription that was moved to a broker at an address; without it
        such a subscription ends."""
        self._say, self._follow = say, follow
        self._moved: dict[str, DurableSubscriptions | None] = {}  # where each is that was moved; None: not yet there
        self._by_id: dict[str, AsyncSubscription] = {}
        self._asked: list[_Asked] = []
        self._cancels: dict[str, _Cancel] = {}
        self._accepted: dict[str, str] = {}  # by id, the clause that the broker has accepted last
        self._known: set[str] = set()  # ids that were spoken of on this connection
        self._connection, self.life = 0, ""  # which connection this is, and the life of the broker's store

    async def subscribe(
        self, id: str, where: str, limits: tuple[int, float], settled: bool, timeout_seconds: float | None
    ) -> AsyncSubscription:
        """Make one, or attach to it; `limits` are bytes and seconds."""
        async with within(timeout_seconds, f"the cancel of durable subscription {shown(id)}"):
            while id in self._cancels:
                with suppress(CallerError):
                    await asyncio.shield(self._cancels[id].future)
        if id in self._by_id or id in self._moved:
            raise CallerError(f"there is a durable subscription {shown(id)}: replace it")
        subscription = AsyncSubscription({id: where}, 2**62, self._acknowledge)  # the broker's window bounds it
        subscription.limits = limits
        self._by_id[id] = subscription
        try:
            await self.replace(subscription, where, settled, timeout_seconds)
        except BaseException:
            self._by_id.pop(id, None)
            raise
        return subscription

    async def replace(
        self, subscription: AsyncSubscription, where: str, settled: bool, timeout_seconds: float | None
    ) -> None:
        """Ask for a clause of one of these."""
        id = subscription.id
        there = self._moved.get(id)
        if there is not None:
            return await there.replace(subscription, where, settled, timeout_seconds)
        until = Until.SETTLED if settled else Until.ACCEPTED
        asked = _Asked(id, where, until, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        before, subscription.wheres[id] = subscription.where, where
        self._ask(subscription)
        try:
            async with within(timeout_seconds, f"durable subscription {shown(id)} {to_stand(settled)}"):
                await asked.future
        except CallerError:
            subscription.wheres[id] = before
            raise

    async def wait_settled(self, subscription: AsyncSubscription, timeout_seconds: float | None) -> None:
        """Until one of these has settled everywhere."""
        id, where = subscription.id, subscription.where
        if not subscription.missing:
            return
        asked = _Asked(id, where, Until.WHOLE, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        async with within(timeout_seconds, f"durable subscription {shown(id)} to settle everywhere"):
            await asked.future

    async def cancel(self, subscription: AsyncSubscription, timeout_seconds: float | None) -> None:
        """Ask for the end of one. Whoever waits for it may give up; it is asked for until the broker has answered."""
        id = subscription.id
        there = self._moved.get(id)
        if there is not None:
            await there.cancel(subscription, timeout_seconds)
            del self._moved[id]
            return
        if id not in self._cancels:
            self._cancels[id] = _Cancel(asyncio.get_running_loop().create_future())
            self._by_id.pop(id, None)
            self._ask_to_cancel(id)
        async with within(timeout_seconds, f"the cancel of durable subscription {shown(id)}"):
            await asyncio.shield(self._cancels[id].future)

    def begin(self, connection: int, life: str) -> None:
        """The broker has greeted on a connection, the first or a later one."""
        self._connection, self.life = connection, life

    def resume(self) -> None:
        """On a new connection: say what the broker may not know."""
        self._known.clear()
        for id in self._cancels:
            self._ask_to_cancel(id)
        for each in self._by_id.values():
            self._ask(each)

    def fail(self, error: Exception, is_closed: bool) -> None:
        """The client has ended: it was closed, or failed."""
        for asked in self._asked:
            fail(asked.future, error)
        for cancel in self._cancels.values():
            fail(cancel.future, error)
        for subscription in self._by_id.values():
            subscription.end(None if is_closed else error)

    # --- What comes --------------------------------------------------------------------------------------------------

    def event(self, message: wire.DurableEvent) -> None:
        subscription = self._by_id.get(message.id)
        if subscription is not None:
            subscription.arrived(message.event, Mark(self._connection, message.number, self.life))

    def lost(self, message: wire.Lost) -> None:
        subscription = self._by_id.get(message.id)
        if subscription is not None:
            subscription.lose(message, Mark(self._connection, message.number, self.life))

    def notice(self, message: wire.Notice) -> None:
        subscription = self._by_id.get(message.id)
        if subscription is not None:
            subscription.noticed(message)
        elif message.id not in self._known:
            raise PeerError(f"a notice about durable subscription {shown(message.id)}, which this client does not have")

    def status(self, message: wire.DurableStatus) -> None:
        cancel = self._cancels.get(message.id)
        if cancel is not None and (message.state == "gone" or (message.state == "refused" and not message.where)):
            del self._cancels[message.id]
            if message.state == "gone" or cancel.times_said > 1:  # what was said before the connection was lost did it
                succeed(cancel.future)
            else:
                fail(cancel.future, refusal(message))
            self._answer(message.id, Unavailable(f"durable subscription {shown(message.id)} was cancelled"))
        elif message.state == "refused" and message.url:
            self._move_on(message)
        elif message.state == "refused":
            self._answer(message.id, refusal(message))
        elif message.state in ("accepted", "settled"):
            self._accepted[message.id] = message.where
            subscription = self._by_id.get(message.id)
            if message.state == "settled" and subscription is not None:
                subscription.find_missing(tuple)
            self._stands(message.id, message.where, *_ENDS[message.state])

    def _move_on(self, message: wire.DurableStatus) -> None:
        """A subscription was moved to another broker, and all that was left here has been dealt with."""
        subscription = self._by_id.get(message.id)
        if subscription is None or message.id in self._moved:
            return
        if self._follow is None:
            del self._by_id[message.id]
            self._answer(message.id, refusal(message))
            subscription.end(refusal(message))
            return
        self._moved[message.id] = None
        self._follow(subscription, message.url)

    def hand_over(self, subscription: AsyncSubscription, other: DurableSubscriptions) -> None:
        """It goes on there, and so do calls that wait for it."""
        id = subscription.id
        if self._by_id.pop(id, None) is None:  # cancelled meanwhile
            self._moved.pop(id, None)
            return
        self._moved[id] = other
        asked = [each for each in self._asked if each.id == id]
        self._asked = [each for each in self._asked if each.id != id]
        subscription.go_on(other._acknowledge)
        other._by_id[id] = subscription
        other._asked += asked
        other._ask(subscription)

    def settled_except(self, message: SettledExcept) -> None:
        """What the broker has accepted last has settled, except behind brokers that are away."""
        subscription = self._by_id.get(message.id)
        if subscription is not None:
            missing = Missing(message.brokers, message.others).names
            subscription.find_missing(lambda: missing)
            self._stands(message.id, self._accepted.get(message.id, ""), Until.ACCEPTED, Until.SETTLED)

    def _stands(self, id: str, where: str, *ends: Until) -> None:
        """It stands with a clause, and so do those that were asked for before it."""
        places = [at for at, each in enumerate(self._asked) if (each.id, each.where) == (id, where)]
        waiting = []
        for at, each in enumerate(self._asked):
            is_answered = each.id == id and bool(places) and at <= places[-1]
            if is_answered and each.until in ends:
                succeed(each.future)
            elif not each.future.done():
                waiting.append(each)
        self._asked = waiting

    def _answer(self, id: str, error: Exception) -> None:
        for each in self._asked:
            if each.id == id:
                fail(each.future, error)
        self._asked = [each for each in self._asked if each.id != id]

    # --- What is said ------------------------------------------------------------------------------------------------

    def _ask(self, subscription: AsyncSubscription) -> None:
        if self._say(wire.DurableSubscribe(subscription.id, subscription.where, *subscription.limits)):
            self._known.add(subscription.id)

    def _ask_to_cancel(self, id: str) -> None:
        if self._say(wire.DurableCancel(id)):
            self._known.add(id)
            self._cancels[id].times_said += 1

    def _acknowledge(self, id: str, mark: Mark) -> None:
        """The events up to this one have been dealt with."""
        self._say(wire.Ack(id, mark.number, mark.life))
