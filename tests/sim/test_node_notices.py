"""What the oracle of whole nodes excuses because programs were told of it: all of that, and no more."""

from __future__ import annotations

import pytest

from thatch.protocol.messages import Publish
from thatch.protocol.wire import Gap, Lost
from thatch.region.region import Region
from thatch.sim.node_oracle import DurableInterest, Loss, NodeOracle
from thatch.sim.oracle import Failed
from thatch.sim.topology import Links, path
from thatch.space.space import Space

SPACE = Space.parse("x int not null 0..11")


def way_along(links: Links, one: str, other: str) -> list[str]:
    steps = path(links, one, other)
    return [] if steps is None else [one, *(step[1] for step in steps)]


class Case:
    """c0 at the last broker wants all; p0 publishes at the first."""

    def __init__(self, links: Links, home: str, at: str) -> None:
        self.oracle = NodeOracle(lambda one, other: way_along(links, one, other), lambda loss: None)
        self.keep = DurableInterest("c0", at, "k1", Region.everything(SPACE), True, 0.0)
        self.oracle.keeps["c0", "k1"] = self.keep
        self.home, self.count = home, 0

    def publish(self, **came: float) -> None:
        """An event that is acknowledged; when it came to each broker."""
        self.count += 1
        id = f"p0:{self.count}"
        event = Publish(id, {"x": 1})
        self.oracle.publish(event, self.home, float(self.count))
        self.oracle.publications[id].is_acknowledged = True
        for broker, at in came.items():
            self.oracle.take(broker, event, at, at)

    def tell(self, count: int, since: float, until: float, sender: str, receiver: str) -> None:
        self.oracle.tell(self.keep, Lost("k1", 1, count, since, until, sender, receiver))


def test_a_notice_is_left_for_the_event_of_which_no_other_speaks() -> None:
    """B1's notice may speak of all three events and counts one, B2's may speak of two: they are the ones for it, also
    where B1's, which is about less time, has been counted for one of them at an earlier rest."""
    for split in (False, True):
        case = Case([("B1", "B2")], "B1", "B2")
        case.tell(1, 1.0, 2.0, "B1", "B2")
        case.tell(2, 1.0, 9.0, "B2", "c0@k1")
        case.publish(B1=1.0, B2=5.0)
        case.publish(B1=1.5, B2=6.0)
        if split:
            case.oracle.check_all()
        case.publish(B1=2.0)
        case.oracle.check_all()
        assert case.oracle.noticed == 3


def test_no_more_is_excused_than_notices_count() -> None:
    case = Case([("B1", "B2")], "B1", "B2")
    case.tell(1, 1.0, 2.0, "B1", "B2")
    case.tell(1, 1.0, 9.0, "B2", "c0@k1")
    for at in range(3):
        case.publish(B1=1.0 + at / 2, B2=5.0)
    with pytest.raises(Failed, match="never came to c0@k1"):
        case.oracle.check_all()


def test_a_later_event_than_a_notice_speaks_of_is_not_excused_by_making_room() -> None:
    case = Case([("B1", "B2")], "B1", "B2")
    case.tell(2, 1.0, 2.0, "B1", "B2")
    case.publish(B1=1.0)
    case.oracle.check_all()
    case.publish(B1=3.0)
    with pytest.raises(Failed, match="never came to c0@k1"):
        case.oracle.check_all()


def moved() -> Case:
    """B0 linked B1, B2 and B3, and is lost for good: B2 and B3 are attached to B1."""
    case = Case([("B1", "B2"), ("B1", "B3")], "B3", "B2")
    former: Links = [("B1", "B0"), ("B2", "B0"), ("B0", "B3")]
    case.oracle.former_ways.append(lambda one, other: way_along(former, one, other))
    return case


def test_what_came_by_a_new_link_and_was_kept_for_the_lost_broker_is_on_its_way() -> None:
    """B3 was attached before B2: B1 keeps for B0 what B2 is to get later, and its limit ends that."""
    case = moved()
    case.publish(B3=1.0, B1=2.0)
    case.tell(1, 2.0, 2.0, "B1", "B0")
    case.oracle.check_all()
    assert case.oracle.noticed == 1


@pytest.mark.parametrize(
    ("sender", "receiver"), [("B1", "B3"), ("B1", "B9"), ("B2", "B0"), ("B2", "B1"), ("B0", "B1"), ("B1", "c0@k1")]
)
def test_a_notice_of_a_place_that_leads_elsewhere_excuses_nothing(sender: str, receiver: str) -> None:
    case = moved()
    case.publish(B3=1.0, B1=2.0, B0=2.0, B2=2.0)
    case.tell(1, 2.0, 2.0, sender, receiver)
    with pytest.raises(Failed, match="never came to c0@k1"):
        case.oracle.check_all()


@pytest.mark.parametrize(
    ("taken_at", "released_at", "is_excused"),
    [(2.4, 2.5, False), (2.4, 3.5, True), (2.4, None, True), (4.4, 4.5, False)],
)
def test_a_gap_that_a_broker_had_is_lost_with_its_store(
    taken_at: float, released_at: float | None, is_excused: bool
) -> None:
    """B1's limit has cost an event, B2 has what tells so, and says that when it greets, or before; then a backup takes
    the place of its store."""
    case, gap = Case([("B1", "B2")], "B1", "B2"), Gap(1, 1, 1.0, 1.0, "B1", "B2")
    case.publish(B1=1.0)
    case.oracle.take("B2", gap, taken_at, taken_at)
    if released_at is not None:
        case.oracle.release("B2", gap, released_at)
    case.oracle.losses.append(Loss("B2", since=3.0, until=4.0))
    if is_excused:
        case.oracle.check_all()
        assert case.oracle.excused == 1
        return
    with pytest.raises(Failed, match="never came to c0@k1"):
        case.oracle.check_all()


@pytest.mark.parametrize("is_full", [False, True])
def test_an_event_waits_for_room_while_the_clock_is_stepped_back(is_full: bool) -> None:
    """It is kept at an earlier time than it came, as the clock says, and a limit ends that."""
    case = Case([("B1", "B2")], "B1", "B2")
    if is_full:
        case.oracle.held_up.add("B2")
    case.publish(B1=5000.0, B2=5001.0)
    case.oracle.step_clock("B2", -3600.0)
    case.tell(1, 1403.0, 1403.0, "B2", "c0@k1")
    if is_full:
        case.oracle.check_all()
        assert case.oracle.noticed == 1
        return
    with pytest.raises(Failed, match="never came to c0@k1"):
        case.oracle.check_all()
