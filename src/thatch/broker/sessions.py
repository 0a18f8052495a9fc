"""Links come up, greet, are met, go down, and are forgotten. link_states.py has the states; what a greeting must say to
be taken is checked here. A broker on both sides of a link closes a cycle: the younger link goes."""

from __future__ import annotations

from thatch.broker.flushing import Flushing
from thatch.broker.forwarding import Forwarding
from thatch.broker.greetings import Greetings
from thatch.broker.growth import Growth
from thatch.broker.handling import Handling
from thatch.broker.intake import Intake
from thatch.broker.link import Link
from thatch.broker.link_states import LinkAction, LinkInput
from thatch.broker.resync import Resync
from thatch.broker.settling import Settling
from thatch.errors import CallerError, PeerError, SpaceError, shown
from thatch.protocol.ids import check_link_name, check_name
from thatch.protocol.kinds import KINDS
from thatch.protocol.messages import Attached, Hello, LinkDown, LinkUp, Refused
from thatch.protocol.records import CLIENT, DURABLE_QUEUE, NEIGHBOUR, Drop, LinkKey, PeerKey
from thatch.protocol.versions import ROUTING, STEP, VERSION_MAX, Announced
from thatch.space.space import Space


class Sessions:
    def __init__(
        self,
        name: str,
        forwarding: Forwarding,
        settling: Settling,
        flushing: Flushing,
        growth: Growth,
        greetings: Greetings,
        intake: Intake,
        resync: Resync,
        handling: Handling,
    ) -> None:
        """`name`: of the broker."""
        self._name, self._forwarding, self._links = name, forwarding, forwarding.links
        self._settling, self._flushing, self._growth = settling, flushing, growth
        self._greetings, self._intake = greetings, intake
        self._resync, self._handling = resync, handling

    # --- Messages -----------------------------------------------------------------------------------------------------

    def link_up(self, message: LinkUp, name: str) -> None:
        check_link_name(name)
        link = self._links.get(name)
        peer = PeerKey(NEIGHBOUR if not message.is_client else DURABLE_QUEUE if message.durable else CLIENT, name)
        if link is not None and link.peer != peer:
            raise CallerError(f"link {name!r} was a {link.peer.kind}: forget it first")
        last = 0 if link is None else link.session
        if message.session <= last:
            raise CallerError(f"the session numbers of link {name!r} must rise: {message.session} came after {last}")
        if link is None:
            link = self._new_link(peer)
            if link.is_client:
                self._greetings.record(link)
        link.connect(message.session, message.key)
        self._greetings.greet(link)
        if link.is_client and link.is_durable:
            self._greetings.announce()

    def link_down(self, message: LinkDown, name: str) -> None:
        self._links[name].disconnect()
        if message.forget:
            self._forget(name)

    def hello(self, message: Hello, name: str) -> None:
        link = self._links[name]
        if message.session < link.peer_session:  # from before a cut
            return
        space, announced = self._checked(message, link)
        if not link.is_client and self._closes_cycle(message.members, link):
            return
        if link.action(LinkInput.HELLO) is LinkAction.MEET:
            agrees = not link.is_client and message.partition != "" and message.partition == self._greetings.partition()
            link.meet(message.session, agrees, None if link.is_client else space, self._growth.space, announced.version)
            self._growth.catch_up(link)
            if announced.hashes or not link.is_client:
                self._resync.send_digest(link)
        if not link.is_client:
            self._greetings.note_durable(link, message.durable)
            link.set_members(message.members, message.members_version)
            self._greetings.announce()

    def admit(self, name: str) -> bool:
        """A peer says something that is numbered: a neighbour that was not there before is one from now on. Whether it
        is handled: meanwhile another link may lead to the same brokers."""
        link = self._links[name]
        if not link.admission.is_new:
            return True
        if self._closes_cycle(link.members, link):
            return False
        self._admit(link)
        self._greetings.announce()
        return True

    def attach(self, message: Attached, link: str) -> None:
        """A neighbour comes in the place of one that is lost. The brokers behind the lost one may come by other links,
        so nothing is known to be behind it any more: the rule against cycles would refuse them. Its interest stays,
        until it is forgotten, for those that have not come."""
        newcomer = self._links.get(message.link)
        if newcomer is None:
            newcomer = self._new_link(PeerKey(NEIGHBOUR, message.link))
        if newcomer.admission.is_new:
            self._admit(newcomer)
            newcomer.admission.note_interest()  # it takes over what is kept for the lost one
        if newcomer.is_client:
            raise CallerError(f"{message.link!r} is the name of a client", code="name")
        self._forwarding.stand_for(newcomer, message.instead_of)
        lost = self._links.get(message.instead_of)
        if lost is not None and not lost.is_client:
            lost.set_members((), VERSION_MAX)
        self._greetings.announce()

    def refused(self, message: Refused, name: str) -> None:
        """A neighbour refuses the link; the driver hears it from the endpoint. What it knows of a cycle is as good as
        what is known here."""
        link = self._links[name]
        if not link.is_client and message.code == "cycle":
            self._give_up(link, message.reason)

    # --- What they bring about ----------------------------------------------------------------------------------------

    def add_link(self, peer: PeerKey) -> Link:
        """A peer that a record names."""
        link = self._new_link(peer)
        if link.admission.is_new:
            self._forwarding.admit(link)
            link.admission.note_interest()  # perhaps, before the restart
        return link

    def _admit(self, link: Link) -> None:
        self._forwarding.admit(link)
        self._greetings.record(link)
        if self._forwarding.settings.routing == "events":  # they come, whatever it wants
            link.admission.note_interest()

    def _new_link(self, peer: PeerKey) -> Link:
        """A peer that was not there before."""
        policy = self._forwarding.settings.policy_of(peer.name)
        link = Link(peer, self._growth.space, policy, self._name)
        self._forwarding.add_link(link)
        return link

    def _checked(self, message: Hello, link: Link) -> tuple[Space, Announced]:
        """The space of a peer whose greeting is in order, and what it can."""
        name = link.name
        if link.is_met and message.session > link.peer_session:
            raise PeerError(f"{name!r} begins session {message.session} within session {link.peer_session}")
        if message.name != name:
            raise PeerError(f"link {name!r}: the peer calls itself {message.name!r}", code="name")
        if message.is_client != link.is_client:
            kinds = ("a client", "a broker") if message.is_client else ("a broker", "a client")
            raise PeerError(f"link {name!r}: the peer says that it is {kinds[0]}, and not {kinds[1]}")
        for each in message.members:
            _check_member(each)
        self._check_routing(message)
        announced = KINDS.agreed(message)
        try:
            space = self._growth.read(message.space)
        except SpaceError as error:
            raise PeerError(str(error), code=error.code) from None
        self._check_space(message, space)
        return space, announced

    def _check_space(self, message: Hello, space: Space) -> None:
        """Of two brokers that have grown differently, one that has opened nothing takes the space of the other."""
        growth, steps = self._growth, message.capabilities.get(STEP)
        own = growth.space if message.is_client else growth.open_space
        if own.extends(space) or (not message.is_client and space.extends(own)):
            return
        takes = not message.is_client and isinstance(steps, int) and (steps == 0) != (growth.open_step == 0)
        if not takes:
            raise PeerError(f"{message.name!r} uses another space: {space}; this broker uses {own}", code="space")

    def _check_routing(self, message: Hello) -> None:
        """A neighbour that routes otherwise would settle everything, and send nothing. An old one does not say how it
        routes."""
        own, theirs = self._forwarding.settings.routing, message.capabilities.get(ROUTING, "")
        if not message.is_client and theirs not in ("", own):
            raise PeerError(
                f"{message.name!r} routes by {shown(theirs)}, this broker by {own!r}: set the same routing at both",
                code="routing",
            )

    def _closes_cycle(self, members: tuple[str, ...], link: Link) -> bool:
        """A broker on both sides of a link closes a cycle. Of the two links the younger one goes. Whether that is this
        one. What it takes does not depend on how many subscriptions there are: a refused neighbour tries again."""
        for name in members:
            rivals = [each for each in self._greetings.others(link) if name in each.members]
            if name != self._name and not rivals:
                continue
            order = list(self._links)
            younger = max([link, *rivals], key=lambda each: (each.admission.is_new, order.index(each.name)))
            reached = f"by link {rivals[0].name!r}" if rivals else "here"
            reason = f"broker {name!r} is reached {reached} already: link {younger.name!r} would close a cycle"
            self._handling.reject(younger.name, Refused(0, "", reason, code="cycle"), close=True)
            self._give_up(younger, reason)
            return younger is link
        return False

    def _give_up(self, link: Link, reason: str) -> None:
        """A link would close a cycle. It is forgotten if nothing ever came over it; the interest in another one, and
        what is kept for it, are lost only if an operator says so."""
        link.hang_up()
        if link.admission.is_bare:
            self._forget(link.name)
        else:
            link.admission.note_cycle(reason)
            self._greetings.announce()

    def _forget(self, name: str) -> None:
        link = self._links[name]
        self._intake.forget_link(name)
        if not link.admission.is_new:
            self._handling.record(Drop(LinkKey(link.peer)))
        self._settling.forget(name)
        self._flushing.forget(name)
        self._growth.forget_link(name)
        self._greetings.announce()


def _check_member(name: str) -> None:
    """A broker behind a link has a name that a broker can have: it is compared, greeted with and logged."""
    try:
        check_name(name)
    except CallerError as error:
        raise PeerError(str(error), code=error.code) from None
