"""What an operator decides about a neighbour: it may come, or it never comes again.

accept   expected from now on; the next one that comes under this name is the one to go on with, whatever store and
         past it has. What is kept for it is offered to it. It hears which life was known: if that is not one of its
         own, it is an old copy, and says so.
forget   its link goes, with its interest and what is kept for it, and nobody waits for it any more. A tombstone
         stays: up to where its events came is still known, so that it can come back without a false alarm. It then
         joins as new, if it is expected.
"""

from __future__ import annotations

from thatch.delivery.doors import Doors
from thatch.delivery.driver import Driver
from thatch.delivery.history import ACCEPTING, FORGOTTEN
from thatch.delivery.journal import NeighbourRow
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


def check_known(driver: Driver, name: str) -> None:
    """Refuse to forget what is not there."""
    link, row = driver.broker.links.get(name), driver.neighbours.get(name)
    is_link = link is not None and not link.is_client
    if not is_link and name not in driver.streams and (row is None or row.state == FORGOTTEN):
        raise CallerError(f"no neighbour {shown(name)} is known here; `thatch admin links` lists them", code="name")


def forget(driver: Driver, doors: Doors, name: str) -> None:
    """Its connection must have ended before."""
    check_known(driver, name)
    doors.forget(name)
    driver.put_neighbour(NeighbourRow(name, FORGOTTEN))
    link = driver.broker.links.get(name)
    if link is not None and not link.is_client:
        driver.take(LinkDown(forget=True), name)
    driver.drop_stream(name)
