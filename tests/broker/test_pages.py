"""Resynchronisation in pages: bounded messages, and nothing that had settled is missed between two of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from helpers.broker_bench import FLOOD, KINDS, MORE_KINDS, NOTHING, SESSION, SPACE, Bench, as_held, rejected
from thatch import Space
from thatch.broker import Broker, Policy, Settings
from thatch.broker.pages import CHARACTERS_MAX, ENTRIES_MAX, Room, Unlisted
from thatch.protocol.codec import BYTES_MAX, encode
from thatch.protocol.digest import BUCKETS_MAX, bucket_of, digest, digest_size
from thatch.protocol.ids import ADVERTISEMENTS, SUBSCRIPTIONS
from thatch.protocol.messages import (
    OPERATOR,
    Accepted,
    Deliver,
    Digest,
    Effect,
    Extend,
    Grow,
    Hello,
    LinkDown,
    LinkUp,
    Message,
    Page,
    Publish,
    Replace,
    Send,
    Settled,
    Subscribe,
    Synced,
    Unsubscribe,
    seq_of,
)
from thatch.protocol.versions import LIMITS, PAGES, VERSION_MAX
from thatch.region.region import Region
from thatch.sim.network import Network

ALL = Settings("subscriptions", Policy(None))


def without_comments(where: str, space: Space) -> Region:
    """A clause may have any number of comments between its literals; these have one, for the sake of speed."""
    return space.where(where.partition("/*")[0])


class Paging(Bench):
    """A broker with a client ann, and a neighbour B2 that was away while ann subscribed."""

    def __init__(self, wheres: dict[str, str], page_characters: int = 1, version: int = VERSION_MAX) -> None:
        super().__init__(broker=Broker("B1", SPACE, ALL, without_comments, page_characters=page_characters))
        self.client("ann")
        for id, where in wheres.items():
            self.says("ann", Subscribe, id, where)
        self.version = version

    def digest(self, hashes: Any = NOTHING) -> list[Message]:
        self.counts["B2"] = 0
        self.handle(LinkUp(1), "B2")
        self.handle(Hello("B2", SESSION, SPACE.to_json(), members=("B2",), version_max=self.version), "B2")
        return listed(self.says("B2", Digest, len(hashes[0]), *hashes))

    def accepts(self) -> list[Message]:
        """The neighbour has taken the last message that it was sent. What it is sent then."""
        link = self.broker.links["B2"]
        return listed(self.handle(Accepted(seq_of(link.session, link.sent_count)), "B2"))


def listed(effects: list[Effect], link: str = "B2") -> list[Message]:
    return [
        each.message
        for each in effects
        if isinstance(each, Send) and each.link == link and not isinstance(each.message, Grow | Settled)
    ]


def names(page: Message) -> list[str]:
    """The ids that a message lists, without where they live."""
    assert isinstance(page, Page | Synced)
    found = page.subscriptions
    ids = [*found] if isinstance(page, Page) else [id for bucket in found.values() for id in bucket]
    return [id.rpartition("/")[2] for id in ids]


# --- What a message carries -------------------------------------------------------------------------------------------


def test_hole_14_a_difference_larger_than_a_message_is_sent_in_pages() -> None:
    """66 subscriptions with comments of 1 MiB, made while the neighbour was away."""
    comment = f"/* {'.' * 2**20} */"
    bench = Paging({f"s{at}": f"x = {at} {comment}" for at in range(66)}, CHARACTERS_MAX)
    pages = bench.digest()
    while not isinstance(pages[-1], Synced):
        pages += bench.accepts()
    assert [id for page in pages for id in names(page)] == [f"s{at}" for at in range(66)]
    assert max(len(encode(page)) for page in pages) < BYTES_MAX / 16


def test_a_page_has_as_many_entries_as_there_is_room_for_and_is_sent_when_the_one_before_was_taken() -> None:
    bench = Paging({f"s{at}": f"x = {at}" for at in range(5)}, 2 * len("B1/ann/s0x = 0"))
    (first,) = bench.digest()
    assert isinstance(first, Page) and names(first) == ["s0", "s1"] and bench.broker.links["B2"].is_listing
    (second,) = bench.accepts()
    assert isinstance(second, Page) and names(second) == ["s2", "s3"]
    (last,) = bench.accepts()
    assert isinstance(last, Synced) and names(last) == ["s4"] and bench.broker.links["B2"].is_synced
    bench.settles("B2")
    assert bench.broker.links["B2"].settled == bench.broker.links["B2"].sent_total


def test_a_page_has_a_bound_of_entries_too() -> None:
    room = Room(CHARACTERS_MAX)
    for at in range(ENTRIES_MAX):
        assert room.has(f"s{at}", "x = 0")
        room.fill(f"s{at}", "x = 0")
    assert not room.has("s", "x = 0")


def test_a_page_with_the_longest_clause_there_is_fits_a_message() -> None:
    longest = "x < 5 /* " + "\N{SNOWMAN}" * (LIMITS[VERSION_MAX].clause_characters_max - 12) + " */"
    bench = Paging({"s0": "x = 0", "s1": longest, "s2": "x = 2"}, CHARACTERS_MAX)
    pages = bench.digest() + bench.accepts() + bench.accepts()
    assert [names(page) for page in pages] == [["s0"], ["s1"], ["s2"]]
    assert max(len(encode(page)) for page in pages) < BYTES_MAX / 4


def test_a_digest_fits_a_message_however_much_there_is() -> None:
    size = digest_size(10**9)
    assert size == BUCKETS_MAX
    most = (2**64 - 1,) * size, (10**9,) * size
    assert len(encode(Digest(1, size, most[0], most[0], b"key", most[1], most[1]))) < BYTES_MAX / 16


def test_a_neighbour_that_knows_no_pages_gets_all_in_one_message() -> None:
    bench = Paging({f"s{at}": f"x = {at}" for at in range(5)}, version=PAGES - 1)
    (whole,) = bench.digest()
    assert isinstance(whole, Synced) and names(whole) == [f"s{at}" for at in range(5)]


# --- What changes between pages ---------------------------------------------------------------------------------------


def test_a_page_lists_what_holds_when_it_is_sent() -> None:
    bench = Paging({f"s{at}": f"x = {at}" for at in range(4)})
    bench.digest()
    for kind, fields in ((Replace, ("s2", "x = 22")), (Unsubscribe, ("s1",)), (Subscribe, ("new", "x = 9"))):
        assert listed(bench.says("ann", kind, *fields)) == []
    found = [page for _ in range(3) for page in bench.accepts()]
    assert [names(page) for page in found] == [["s2"], ["s3"], ["new"]]
    assert isinstance(found[0], Page) and found[0].subscriptions == {"B1/ann/s2": "x = 22"}
    assert isinstance(found[-1], Synced)


def test_what_was_listed_and_changes_is_listed_again_and_what_leaves_is_withdrawn_at_the_end() -> None:
    bench = Paging({f"s{at}": f"x = {at}" for at in range(4)})
    bench.digest()
    bench.accepts()
    bench.says("ann", Unsubscribe, "s0")
    bench.says("ann", Replace, "s1", "x = 11")
    assert [names(*bench.accepts()), names(*bench.accepts())] == [["s2"], ["s3"]]
    last, gone = bench.accepts()
    assert isinstance(last, Synced) and names(last) == ["s1"]
    assert isinstance(gone, Unsubscribe) and gone.id == "B1/ann/s0"


def test_one_that_changes_all_the_time_holds_up_no_other() -> None:
    bench = Paging({f"s{at}": f"x = {at}" for at in range(6)})
    found = [names(*bench.digest())]
    for at in range(5):
        bench.says("ann", Replace, "s0", f"x = {10 + at}")
        found.append(names(*bench.accepts()))
    assert found == [["s0"], ["s1"], ["s2"], ["s3"], ["s4"], ["s5"]]
    unlisted = Unlisted("ab")
    unlisted.add("a")
    unlisted.drop_first()
    assert unlisted.first == "b"


def test_a_space_that_grows_between_pages_is_said_before_the_next_one() -> None:
    bench = Bench(broker=Broker("B1", KINDS, ALL, page_characters=1)).client("ann")
    for at in range(3):
        bench.says("ann", Subscribe, f"s{at}", f"kind <> 'b' /* {at} */")
    bench.counts["B2"] = 0
    bench.handle(LinkUp(1), "B2")
    bench.handle(Hello("B2", SESSION, KINDS.to_json(), members=("B2",), version_max=VERSION_MAX), "B2")
    bench.says("B2", Digest, 1, *NOTHING)
    link = bench.broker.links["B2"]
    page = seq_of(link.session, link.sent_count)
    sent = bench.handle(Extend(0, MORE_KINDS.to_json()), OPERATOR) + bench.handle(Accepted(page), "B2")
    assert [each.message.space for each in sent if isinstance(each, Send) and isinstance(each.message, Grow)] == [
        MORE_KINDS.to_json()
    ]
    assert isinstance(listed(sent)[0], Page)
    sent = bench.handle(Accepted(seq_of(link.session, link.sent_count)), "B2")
    assert [type(each.message) for each in sent if isinstance(each, Send)] == [Synced] and link.behind is None


def test_what_changes_in_a_bucket_that_is_equal_travels_in_a_page_and_not_in_the_last_one() -> None:
    held = {f"B1/ann/s{at}": f"x = {at}" for at in range(8)}
    bench = Paging({id.rpartition("/")[2]: where for id, where in held.items()})
    equal = {id: where for id, where in held.items() if bucket_of(id, 2) == 1}
    (changed, *_), count = equal, len(held) - len(equal)
    found = bench.digest((digest(as_held(equal), 2).hashes, (0, 0)))
    bench.says("ann", Replace, changed.rpartition("/")[2], "x = 50")
    while not isinstance(found[-1], Synced):
        found += bench.accepts()
    assert count > 1 and [len(names(page)) for page in found] == [1] * (count + 1) + [0]
    assert isinstance(found[-2], Page) and found[-2].subscriptions == {changed: "x = 50"}
    assert found[-1].subscriptions == {0: {}}


# --- Who breaks the rules ---------------------------------------------------------------------------------------------


def test_an_acceptance_of_no_page_closes_the_link_and_one_of_an_earlier_page_is_ignored() -> None:
    bench = Paging({f"s{at}": f"x = {at}" for at in range(3)})
    bench.digest()
    link = bench.broker.links["B2"]
    assert bench.handle(Accepted(seq_of(link.session, link.sent_count - 1)), "B2") == []
    assert len(bench.accepts()) == len(bench.accepts()) == 1 and link.is_synced
    assert rejected(bench.handle(Accepted(seq_of(link.session, link.sent_count)), "B2")).close
    assert rejected(bench.handle(Accepted(seq_of(SESSION, 1)), "ann")).close


def test_a_page_after_the_last_one_closes_the_link_and_so_does_one_of_a_client() -> None:
    bench = Paging({})
    bench.digest()
    assert listed(bench.says("B2", Page, {"B2/bob/s": "x < 5"}))[0] == Accepted(seq_of(SESSION, 2))
    bench.says("B2", Synced, 1, {0: {}}, {0: {}})
    assert bench.broker.received_from(SUBSCRIPTIONS, "B2") == {"B2/bob/s": "x < 5"}
    assert rejected(bench.says("B2", Page, {"B2/bob/t": "x < 6"})).close
    assert rejected(bench.says("ann", Page, {"s": "x < 5"})).close


# --- Every point at which two brokers may be cut apart ----------------------------------------------------------------


class Pair:
    """B1, where ann lives, and B2, where pub publishes, and what is on the way between the two, message by message."""

    def __init__(self) -> None:
        self.brokers = {name: Broker(name, SPACE, FLOOD, page_characters=1) for name in ("B1", "B2")}
        self.wire: deque[tuple[str, Message]] = deque()
        self.got: list[int] = []
        self.session = self.published = 0
        self.asked = self.settled = 0  # of ann
        for name, client in (("B1", "ann"), ("B2", "pub")):
            self.handle(name, LinkUp(1, is_client=True), client)
            self.handle(name, Hello(client, SESSION, SPACE.to_json(), is_client=True), client)

    def handle(self, name: str, message: Message, link: str) -> None:
        other = {"B1": "B2", "B2": "B1"}[name]
        for effect in self.brokers[name].handle(message, link, 0.0):
            if isinstance(effect, Deliver):
                self.got.append(effect.event.event["x"])
            elif isinstance(effect, Send) and effect.link == other and isinstance(effect.message, Publish):
                self.handle(other, effect.message, name)  # events overtake the rest
            elif isinstance(effect, Send) and effect.link == other:
                self.wire.append((other, effect.message))
            elif isinstance(effect, Send) and effect.link == "ann" and isinstance(effect.message, Settled):
                self.settled = effect.message.seq

    def ann(self, kind: Any, *fields: Any) -> None:
        self.asked += 1
        self.handle("B1", kind(seq_of(SESSION, self.asked), *fields), "ann")

    def heal(self) -> None:
        self.session += 1
        for name, other in (("B1", "B2"), ("B2", "B1")):
            self.handle(name, LinkUp(self.session), other)

    def cut(self) -> None:
        self.wire.clear()
        for name, other in (("B1", "B2"), ("B2", "B1")):
            self.handle(name, LinkDown(), other)

    def step(self) -> None:
        to, message = self.wire.popleft()
        self.handle(to, message, "B1" if to == "B2" else "B2")

    def run(self) -> None:
        while self.wire:
            self.step()

    def gets(self, x: int) -> bool:
        """Whether an event that is published now arrives; it does while the two have not met: there it waits."""
        if not (self.brokers["B1"].links["B2"].is_met and self.brokers["B2"].links["B1"].is_met):
            return True
        self.published += 1
        self.got.clear()
        self.handle("B2", Publish(f"pub:{self.published}", {"x": x}), "pub")
        return self.got == [x]

    def check_at_rest(self) -> None:
        one, other = self.brokers["B1"], self.brokers["B2"]
        one.check_invariants()
        other.check_invariants()
        for table in (SUBSCRIPTIONS, ADVERTISEMENTS):
            assert one.outbound(table, "B2").sent == one.outbound(table, "B2").forwarded()
            assert one.outbound(table, "B2").forwarded() == other.received_from(table, "B1")
        assert self.settled == seq_of(SESSION, self.asked)


def parted() -> Pair:
    """What was held back by others had settled, and comes out from behind them during a cut."""
    pair = Pair()
    wheres = {"wide": "x < 50", "inner": "x < 10", "top": "x > 90", "other": "x = 70"}
    wheres |= {"broad": "x BETWEEN 75 AND 89", "deep": "x = 77"}
    for id, where in wheres.items():
        pair.ann(Subscribe, id, where)
    pair.heal()
    pair.run()
    pair.check_at_rest()
    pair.cut()
    pair.ann(Unsubscribe, "wide")
    pair.ann(Replace, "top", "x > 95")
    pair.ann(Replace, "broad", "x = 80")
    for at in range(2):
        pair.ann(Subscribe, f"new{at}", f"x = {60 + at}")
    pair.heal()
    return pair


SETTLED = (5, 77, 96)  # in `inner` and `deep`, which were held back, and in both versions of `top`
ACTS: dict[str, Callable[[Pair], None]] = {
    "nothing": lambda pair: None,
    "narrows": lambda pair: pair.ann(Replace, "inner", "x BETWEEN 4 AND 7"),
    "widens": lambda pair: pair.ann(Replace, "other", "x BETWEEN 68 AND 75"),
    "changes": lambda pair: pair.ann(Replace, "new1", "x = 65"),
    "leaves": lambda pair: pair.ann(Unsubscribe, "other"),
    "covers": lambda pair: pair.ann(Subscribe, "late", "x < 55"),
}


@pytest.mark.parametrize("is_cut", [False, True], ids=["goes on", "is cut"])
@pytest.mark.parametrize("act", ACTS)
def test_t1_7_an_event_a_replace_and_a_cut_between_any_two_pages(
    act: str, is_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thatch.protocol.digest.BUCKET", 1)  # some buckets are equal
    pair, steps, pages = parted(), 0, 0
    while pair.wire:
        pages += isinstance(pair.wire[0][1], Page)
        pair.step()
        steps += 1
    assert pages > 2
    for point in range(steps + 1):
        pair = parted()
        for _ in range(point):
            pair.step()
        assert all(map(pair.gets, SETTLED))
        ACTS[act](pair)
        assert all(map(pair.gets, SETTLED))
        if is_cut:  # twice: what pages have brought stays
            pair.cut()
            pair.heal()
            for _ in range(point):
                if pair.wire:
                    pair.step()
            assert all(map(pair.gets, SETTLED))
            pair.cut()
            pair.heal()
        while pair.wire:
            pair.step()
            assert all(map(pair.gets, SETTLED))
        pair.check_at_rest()
        assert not pair.gets(92) and pair.gets(60) and pair.gets(40) == (act == "covers")


def test_t1_7_what_had_settled_stays_through_cuts_although_it_is_changed_more_than_once() -> None:
    """Of a subscription that narrows step by step, with a cut after each page, the neighbour holds the clause that had
    settled until the end: what is covered by it alone has settled, too."""
    pair = parted()
    pair.cut()
    pair.ann(Replace, "inner", "x IN (5, 6, 7)")
    for at in (95, 98, 92):
        pair.ann(Replace, "top", f"x > {at}")
        pair.heal()
        while not isinstance(pair.wire[0][1], Synced) or pair.wire[0][0] == "B1":
            pair.step()
        held = set(pair.brokers["B2"].received_from(SUBSCRIPTIONS, "B1").values())
        assert {"x < 50", "x > 90", "x = 70", f"x > {at}"} <= held
        pair.cut()
    pair.heal()
    pair.run()
    pair.check_at_rest()


def test_pages_bring_a_broker_that_lost_its_disk_back() -> None:
    network = Network(SPACE)
    for name in ("B1", "B2"):
        network.add_broker(name, FLOOD, page_characters=1)
    network.join("B1", "B2")
    network.add_client("ann")
    network.join("B1", "ann")
    network.run()
    for at in range(9):
        network.tell("ann", network.clients["ann"].subscribe("B1", f"s{at}", f"x = {at}"))
    network.run()
    network.crash("B2", keep_store=False)
    network.restart("B2")
    network.run()
    assert network.nodes["B2"].handled["Page"] == 8
    assert len(network.nodes["B2"].broker.received_from(SUBSCRIPTIONS, "B1")) == 9
