"""What an operator decides about a neighbour: it may come, or it never comes again.

accept   expected from now on; the next one that comes under this name is the one to go on with, whatever store and
         past it has. What is kept for it is offered to it. It hears which life was known: if that is not one of its
         own, it is an old copy, and says so.
attach   it comes in the place of one that is lost for good (attachments.py): what is kept for the lost one is kept for
         it, too, and it is accepted. The lost one may not come before it is forgotten: it could close a cycle.
forget   its link goes, with its interest and what is kept for it, and nobody waits for it any more. A tombstone
         stays: up to where its events came is still known, so that it can come back without a false alarm. It then
         joins as new, if it is expected.
"""

from __future__ import annotations

from thatch.delivery.doors import Doors
from thatch.delivery.driver import Driver
from thatch.delivery.history import ACCEPTING, FORGOTTEN
from thatch.delivery.journal import AttachmentRow, NeighbourRow
from thatch.errors import CallerError, shown
from thatch.protocol.ids import check_name
from thatch.protocol.messages import LinkDown


def accept(driver: Driver, doors: Doors, name: str) -> None:
    """A link to a client of this name must have gone before."""
    check_name(name)
    if name == driver.broker.name:
        raise CallerError(f"{name!r} is this broker itself", code="name")
    row = driver.neighbours.get(name) or NeighbourRow(name, ACCEPTING)
    driver.put_neighbour(row._replace(state=ACCEPTING))
    doors.admit(name)


def attach(driver: Driver, doors: Doors, name: str, instead_of: str, url: str = "") -> int:
    """How many events that were kept for the lost one are offered to it. `url`: where it is dialled."""
    own, lost = driver.broker.name, driver.broker.links.get(instead_of)
    check_name(name)
    if len({name, instead_of, own}) < 3:
        raise CallerError("a broker, its neighbour and the lost one are three", code="name")
    if lost is None or lost.is_client:
        raise _unknown(instead_of)
    if lost.is_up:
        raise CallerError(f"{instead_of!r} is connected: it is not lost", code="not_allowed")
    if driver.attachments.is_lost(name):
        raise CallerError(f"{name!r} is lost, others are attached in its place: forget it first", code="not_allowed")
    known = driver.attachments.of(name)
    link = driver.broker.links.get(name)
    if link is not None and not link.is_client and (known is None or not known.instead_of):
        raise CallerError(f"{name!r} is a neighbour already: attach those that were behind {instead_of!r}", code="name")
    if known is not None and known.instead_of not in ("", instead_of):
        why = f"{name!r} is attached instead of {known.instead_of!r} here: forget {known.instead_of!r} first"
        raise CallerError(why, code="not_allowed")
    row = driver.neighbours.get(name)
    if row is None or row.state == FORGOTTEN or not doors.is_expected(name):
        accept(driver, doors, name)
    count = driver.attach(AttachmentRow(name, instead_of, url or driver.attachments.url_of(name)))
    doors.give_up(driver.attachments.attached_to)
    return count


def restore_attachments(driver: Driver, doors: Doors) -> None:
    """Of a broker that starts."""
    driver.attach_again()
    doors.give_up(driver.attachments.attached_to)


def why_unsettled(driver: Driver, lost: str) -> str:
    """Why a lost neighbour cannot be forgotten yet: one in its place does not know all that this broker has to say, or
    has not said all. Empty if it can."""
    for name in driver.attachments.attached_to.get(lost, ()):
        link = driver.broker.links.get(name)
        if link is not None and not link.knows_all:
            return f"{name!r}, which is attached instead of {lost!r}, has not settled"
    return ""


def check_known(driver: Driver, name: str) -> None:
    """Refuse to forget what is not there."""
    link, row = driver.broker.links.get(name), driver.neighbours.get(name)
    is_link = link is not None and not link.is_client
    if not is_link and name not in driver.streams and (row is None or row.state == FORGOTTEN):
        raise _unknown(name)


def forget(driver: Driver, doors: Doors, name: str) -> None:
    """Its connection must have ended before."""
    check_known(driver, name)
    doors.forget(name)
    driver.put_neighbour(NeighbourRow(name, FORGOTTEN))
    link = driver.broker.links.get(name)
    if link is not None and not link.is_client:
        driver.take(LinkDown(forget=True), name)
    driver.drop_stream(name)
    driver.end_attachments(name)
    doors.give_up(driver.attachments.attached_to)


def _unknown(name: str) -> CallerError:
    return CallerError(f"no neighbour {shown(name)} is known here; `thatch admin links` lists them", code="name")
