"""A space that grows, by numbered steps: a proposal spreads, every broker compiles its clauses again, and when that has
settled everywhere the step opens: from then on events and clauses may use what is new.

    operator ── Extend ─▶ B1 ── Grow 1, B1 ─▶ B2   each compiles its clauses, forwards what is no longer covered
                          B1 ◀── Settled ──── B2   all have it: B1 opens it,
                          B1 ── Grow 1, B1, opened ─▶ B2   and from then on what is new may be used

A step is proposed on top of the last one that has opened. Where two proposals of one step meet, that of the lower name
wins everywhere; the other broker proposes what it wanted again, on top of it, as the next step. Each broker hears of a
better proposal before it hears that its own has settled, so no two of one step open. A step that has opened is never
taken back. What an operator wants, the proposal and what has opened are records.

A broker that has opened nothing, because it is new or lost its disk, takes the space of its neighbour, whatever its
own settings say.
"""

from __future__ import annotations

from thatch.broker.forwarding import Forwarding
from thatch.broker.handling import Handling
from thatch.broker.link import Link
from thatch.broker.own_space import Compile, OwnSpace, ReadSpace
from thatch.broker.router import Router
from thatch.broker.settling import Settling
from thatch.broker.waits import Waiting
from thatch.errors import CallerError, PeerError
from thatch.protocol.messages import OPERATOR, Extend, Grow, Message, Refused
from thatch.protocol.records import SpaceRecord
from thatch.space.space import Space
from thatch.space.union import union_of

RULE = "nullable attributes, or values of enums, may be added at the end"


class Growth(OwnSpace):
    def __init__(
        self,
        name: str,
        router: Router,
        forwarding: Forwarding,
        settling: Settling,
        handling: Handling,
        compile: Compile | None,
        read_space: ReadSpace,
    ) -> None:
        """`name`: of the broker."""
        super().__init__(router, forwarding, handling, compile, read_space)
        self._name, self._links, self._settling = name, forwarding.links, settling
        self._opening: Waiting | None = None  # a proposal that this broker opens when it has settled
        self._resumes = False  # after a restart: it opens a proposal from before

    # --- Messages -----------------------------------------------------------------------------------------------------

    def extend(self, message: Extend, link: str) -> None:
        """From the operator, or from a neighbour that knows no steps."""
        self._check_source(link)
        space = self.read(message.space)
        if link == OPERATOR:
            self._want(space)
        elif message.opened:
            is_new = space.extends(self.open_space) and space != self.open_space
            self._take_opened(self.open_step + is_new, self._origin or link, space, link)
        elif not self.space.extends(space):
            if not space.extends(self.space):
                raise CallerError(f"{space} does not extend {self.space}: {RULE}", code="space")
            self._take_proposal(self.open_step + 1, link if self.is_open else self._origin, space, link)

    def grow(self, message: Grow, link: str) -> None:
        self._check_source(link)
        take = self._take_opened if message.opened else self._take_proposal
        take(message.step, message.origin, self.read(message.space), link)

    def _check_source(self, link: str) -> None:
        source = self._links.get(link)
        if source is not None and source.is_client:
            raise CallerError("a client cannot extend the space: only the operator can", code="not_allowed")

    def _want(self, space: Space) -> None:
        """An operator wants all that is in this space."""
        if not space.extends(self.open_space):
            if self.space.extends(space):  # it has grown already
                return
            raise CallerError(f"{space} does not extend {self.open_space}: {RULE}", code="space")
        if self._wanted:
            both, conflicts = union_of(self.read(self._wanted), space)
            space = space if conflicts else both  # else he has changed his mind
        if space == self.open_space:
            return
        self._wanted = space.to_json()
        self._record()
        self._proceed()

    def _take_proposal(self, step: int, origin: str, space: Space, link: str) -> None:
        if step > self.open_step + 1:
            raise PeerError(f"step {step} of the space was proposed before step {self.open_step + 1} opened")
        if (step, origin) == (self.step, self._origin) and space == self.space:
            return
        is_overtaken = step <= self.open_step or not space.extends(self.open_space)
        if is_overtaken or (not self.is_open and not self._loses_to(origin, space)):
            self._answer(link)
            return
        self._move(space, step, origin)
        self._record()
        self._opening = None
        self._proceed(link)

    def _loses_to(self, origin: str, space: Space) -> bool:
        """Whether another proposal of its step wins over the present one. Two of one broker can differ only if it lost
        its disk in between: the wider one wins."""
        if origin != self._origin:
            return origin < self._origin
        if space.extends(self.space) or self.space.extends(space):
            return space.extends(self.space)
        return space.to_json() < self.text

    def _take_opened(self, step: int, origin: str, space: Space, link: str) -> None:
        own = self.open_space
        if self.open_step and not step:  # the neighbour has opened nothing, and takes ours
            return
        if step and not self.open_step:
            if union_of(space, own).space != space:
                self._wanted = self.open_text  # what only our settings have is proposed like any other
        elif own.extends(space):
            space = own  # never taken back
        elif not space.extends(own):
            raise PeerError(f"{link!r} has opened another space: {space}; here {own} has opened", code="space")
        if step <= self.open_step and space == own:
            return
        self._move(space, max(step, self.open_step), origin)
        self._open()
        self._opening, self._resumes = None, False
        self._spread(link)
        self._proceed()

    # --- What follows from them ---------------------------------------------------------------------------------------

    def _proceed(self, link: str = OPERATOR) -> None:
        """See to it that a proposal opens, if it is this broker's or it waits to propose another one; a proposal of
        others, which came over a link, is passed on. If nothing is proposed: propose what an operator wants."""
        if not self.is_open:
            if self._wanted or self._origin in ("", self._name):
                self._begin_opening()
            else:
                self._spread(link)
            return
        if not self._wanted:
            return
        space, conflicts = union_of(self.space, self.read(self._wanted))
        self._wanted = "" if space == self.space else space.to_json()
        if self._wanted:
            self._move(space, self.open_step + 1, self._name)
        self._record()
        if conflicts:
            reason = f"the space has grown otherwise meanwhile, and some cannot be added: {'; '.join(conflicts)}"
            self._handling.reject(OPERATOR, Refused(0, "", reason, code="space"))
        if self._wanted:
            self._begin_opening()

    def _begin_opening(self) -> None:
        """Tell all neighbours, also the one that it came from: what they answer says that they all have it."""
        self._spread(OPERATOR)
        self._opening = Waiting(0, self._settling.unsettled(OPERATOR))

    def open_if_settled(self) -> None:
        """Every broker has compiled its clauses again: the step opens."""
        if self._resumes:  # all links are down: who has it is asked again when they are up
            self._resumes = False
            self._opening = Waiting(0, self._settling.unsettled(OPERATOR))
        while self._opening is not None and self._opening.is_over(self._links):
            self._open()
            self._opening = None
            self._spread(OPERATOR)
            self._proceed()

    def restore(self, grown: SpaceRecord | None, opened: SpaceRecord | None, open_space: Space) -> None:
        """As before a restart."""
        super().restore(grown, opened, open_space)
        self._resumes = not self.is_open and (bool(self._wanted) or self._origin in ("", self._name))

    def forget_link(self, name: str) -> None:
        if self._opening is not None:
            self._opening.forget(name)

    # --- What neighbours hear -----------------------------------------------------------------------------------------

    def messages_for(self, link: Link, knows_opened: bool = False) -> list[Message]:
        """What has opened, and what is proposed on top of it; if it knows what had opened, only what is new."""
        messages: list[Message] = []
        if self.is_open or not knows_opened:
            messages.append(Grow(link.next_seq(), self.open_step, self._open_origin, self.open_text, True))
        if not self.is_open:
            messages.append(Grow(link.next_seq(), self.step, self._origin, self.text))
        return messages

    def catch_up(self, link: Link) -> None:
        """A neighbour is met. What has opened since it was greeted it hears now: events that follow may use it."""
        if not link.is_client and link.greeted_in != self.open_text:
            self._handling.send(link.name, *self.messages_for(link))

    def _spread(self, but: str) -> None:
        """To every neighbour but one, also to those that are not synced: one that hears that its own proposal has
        settled has heard of a better one. One that has not said what it holds may have opened less, or nothing."""
        for link in self._forwarding.brokers():
            if link.name == but:
                continue
            if link.is_met:
                self._handling.send(link.name, *self.messages_for(link, link.is_listing or link.is_synced))
            else:
                link.mark_unsent()

    def _answer(self, name: str) -> None:
        """A neighbour said what is overtaken here. It hears so before that settles; on a synced link it has."""
        link = self._links.get(name)
        if link is not None and link.is_met and not link.is_synced:
            self._handling.send(name, *self.messages_for(link))
