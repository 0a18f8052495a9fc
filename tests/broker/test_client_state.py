"""The client: what it sends, what it remembers of each broker, and what it hands on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from thatch import Space
from thatch.broker import Broker, ClientState, Settings
from thatch.broker import client_state as client_module
from thatch.errors import CallerError, PeerError
from thatch.protocol import codec
from thatch.protocol.codec import Codec
from thatch.protocol.digest import BUCKET, bucket_of, digest
from thatch.protocol.messages import (
    Accepted,
    Advertise,
    Deliver,
    Digest,
    Effect,
    Flush,
    Flushed,
    Hello,
    LinkUp,
    Message,
    Publish,
    Refused,
    Reject,
    Replace,
    Send,
    Settled,
    Subscribe,
    Synced,
    Tick,
    Unadvertise,
    Unsubscribe,
    seq_of,
)
from thatch.protocol.versions import VERSION_MAX
from thatch.sim.network import Network, Observer

SPACE = Space.parse("x int not null 0..100")
SUBSCRIPTIONS, ADVERTISEMENTS = "subscriptions", "advertisements"
EMPTY = ((0,), (0,))  # the digest of a broker that holds nothing


def connected(client: ClientState, session: int = 5, hashes: Any = EMPTY, version: int = 0) -> list[Message]:
    """The client is up at broker B1, whose session is 9 and which holds what the digest says. What it sends then."""
    client.connect("B1", session)
    client.handle(Hello("B1", 9, SPACE.to_json(), version_max=version), "B1")
    return [send.message for send in client.handle(Digest(seq_of(9, 1), 1, *hashes), "B1")]


def sent(sends: list[Send]) -> list[Message]:
    return [send.message for send in sends]


class Pair:
    """A client and the real broker, wired by hand: what is sent is taken at once, unless the wire is cut."""

    def __init__(self) -> None:
        self.broker = Broker("B1", SPACE, Settings(routing="subscriptions"))
        self.client = ClientState("ann", SPACE)
        self.now = 0.0
        self.is_up = False
        self.session = 0
        self.said: list[Message] = []  # by the client, in this session

    def connect(self) -> None:
        self.session += 1
        self.is_up = True
        self.said.clear()
        hello = self.client.connect("B1", self.session)
        self.run(self.broker.handle(LinkUp(self.session, is_client=True, key=b"%d" % self.session), "ann", self.now))
        self.say(hello)

    def cut(self) -> None:
        self.is_up = False
        self.client.disconnect("B1")

    def say(self, sends: list[Send]) -> None:
        for send in sends:
            if self.is_up:
                self.said.append(send.message)
                self.run(self.broker.handle(send.message, "ann", self.now))

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send | Reject):
                message = effect.message if isinstance(effect, Send) else effect.refused
                self.say(self.client.handle(message, "B1"))

    @property
    def wanted(self) -> dict[str, str]:
        """What the client thinks that the broker holds."""
        wheres = self.client.homes["B1"].wheres
        return {f"B1/ann/{id}": where for (table, id), where in wheres.items() if table == SUBSCRIPTIONS}

    @property
    def held(self) -> dict[str, str]:
        return self.broker.received_from(SUBSCRIPTIONS, "ann")


# --- Connecting ------------------------------------------------------------------------------------------------------


def test_the_first_word_is_hello() -> None:
    hello = Hello("ann", 5, SPACE.to_json(), is_client=True, version_max=VERSION_MAX)
    assert ClientState("ann", SPACE).connect("B1", 5) == [Send("B1", hello)]


@pytest.mark.parametrize("name", ["", "a/b", "a~b", "a:b"])
def test_a_name_that_ids_could_not_hold_is_refused(name: str) -> None:
    with pytest.raises(CallerError, match="without '/', '~' and ':'"):
        ClientState(name, SPACE)


def test_what_was_asked_for_before_the_link_is_synced_is_sent_with_it() -> None:
    client = ClientState("ann", SPACE)
    client.connect("B1", 5)
    assert client.subscribe("B1", "s", "x < 5", expires=60.0) == []
    assert client.advertise("B1", "a", "x < 9") == []
    synced = Synced(seq_of(5, 1), 1, {0: {"s": ("x < 5", 60.0)}}, {0: {"a": ("x < 9", None)}})
    assert connected(client) == [synced]


def test_each_change_is_one_message_with_the_next_number() -> None:
    client = ClientState("ann", SPACE)
    assert connected(client) == [Synced(seq_of(5, 1), 1)]
    said = client.subscribe("B1", "s", "x < 5") + client.replace("B1", "s", "x < 6") + client.unsubscribe("B1", "s")
    said += client.advertise("B1", "a", "TRUE") + client.unadvertise("B1", "a") + client.flush("B1")
    assert sent(said) == [
        Subscribe(seq_of(5, 2), "s", "x < 5"),
        Replace(seq_of(5, 3), "s", "x < 6"),
        Unsubscribe(seq_of(5, 4), "s"),
        Advertise(seq_of(5, 5), "a", "TRUE"),
        Unadvertise(seq_of(5, 6), "a"),
        Flush(seq_of(5, 7)),
    ]


def test_what_is_not_there_cannot_be_changed() -> None:
    client = ClientState("ann", SPACE)
    connected(client)
    with pytest.raises(CallerError, match="no subscription 's' to replace"):
        client.replace("B1", "s", "TRUE")
    with pytest.raises(CallerError, match="no subscription 's' at broker 'B1'"):
        client.unsubscribe("B1", "s")
    with pytest.raises(CallerError, match="no advertisement 'a' at broker 'B1'"):
        client.unadvertise("B1", "a")


def test_what_a_client_does_not_take_is_refused() -> None:
    client = ClientState("ann", SPACE)
    connected(client)
    with pytest.raises(CallerError, match="a client takes no Subscribe"):
        client.handle(Subscribe(1, "s", "TRUE"), "B1")


def test_a_digest_of_an_earlier_session_or_a_second_one_is_ignored() -> None:
    client = ClientState("ann", SPACE)
    client.connect("B1", 5)
    client.handle(Hello("B1", 9, SPACE.to_json()), "B1")
    assert client.handle(Digest(seq_of(8, 1), 1, *EMPTY), "B1") == []
    assert len(client.handle(Digest(seq_of(9, 1), 1, *EMPTY), "B1")) == 1
    assert client.handle(Digest(seq_of(9, 1), 1, *EMPTY), "B1") == []


def test_a_malformed_digest_is_the_brokers_fault() -> None:
    with pytest.raises(PeerError, match="a digest says that it has 3 buckets, and has 1"):
        client = ClientState("ann", SPACE)
        client.connect("B1", 5)
        client.handle(Hello("B1", 9, SPACE.to_json()), "B1")
        client.handle(Digest(seq_of(9, 1), 3, *EMPTY), "B1")


# --- Settling --------------------------------------------------------------------------------------------------------


def test_settled_is_of_this_and_all_before_it_in_this_session() -> None:
    client = ClientState("ann", SPACE)
    connected(client)
    client.subscribe("B1", "s", "x < 5")
    client.subscribe("B1", "t", "x < 6")
    for other in (4, 6):
        client.handle(Settled(seq_of(other, 99)), "B1")
    client.handle(Accepted(seq_of(5, 3)), "B1")
    assert not client.is_settled("B1", SUBSCRIPTIONS, "s")
    client.handle(Settled(seq_of(5, 2)), "B1")
    assert client.is_settled("B1", SUBSCRIPTIONS, "s") and not client.is_settled("B1", SUBSCRIPTIONS, "t")
    client.handle(Settled(seq_of(5, 3)), "B1")
    assert client.is_settled("B1", SUBSCRIPTIONS, "t")
    client.disconnect("B1")
    assert not client.is_settled("B1", SUBSCRIPTIONS, "t")


def test_a_flush_waits_for_its_own_answer() -> None:
    client = ClientState("ann", SPACE)
    assert connected(client, version=5)
    assert sent([*client.flush("B1"), *client.subscribe("B1", "s", "x < 5"), *client.flush("B1")]) == [
        Flush(seq_of(5, 2)),
        Subscribe(seq_of(5, 3), "s", "x < 5"),
        Flush(seq_of(5, 4)),
    ]
    for answer in (Settled(seq_of(5, 4)), Flushed(seq_of(5, 2)), Flushed(seq_of(4, 4))):
        client.handle(answer, "B1")
        assert not client.is_flushed("B1")
    client.handle(Flushed(seq_of(5, 4)), "B1")
    assert client.is_flushed("B1")


def test_the_answer_of_an_older_broker_to_a_flush_is_settled() -> None:
    client = ClientState("ann", SPACE)
    connected(client, version=4)
    client.flush("B1")
    client.handle(Settled(seq_of(5, 1)), "B1")
    assert not client.is_flushed("B1")
    client.handle(Settled(seq_of(5, 2)), "B1")
    assert client.is_flushed("B1")


def test_a_flush_that_meets_a_cut_is_said_again_when_the_broker_knows_what_is_wanted() -> None:
    client = ClientState("ann", SPACE)
    connected(client, version=5)
    client.flush("B1")
    client.disconnect("B1")
    client.handle(Flushed(seq_of(5, 2)), "B1")
    assert not client.is_flushed("B1") and client.flush("B1") == []
    assert [type(each) for each in connected(client, 6, version=5)] == [Synced, Flush]
    client.handle(Flushed(seq_of(6, 2)), "B1")
    assert client.is_flushed("B1")
    client.disconnect("B1")
    assert [type(each) for each in connected(client, 7, version=5)] == [Synced]


def test_what_was_dropped_while_the_link_was_cut_settles_with_the_resynchronisation() -> None:
    client = ClientState("ann", SPACE)
    connected(client)
    client.subscribe("B1", "s", "x < 5")
    client.disconnect("B1")
    client.unsubscribe("B1", "s")
    connected(client, 6, (digest([("s", "x < 5", None)], 1).hashes, (0,)))
    assert not client.is_settled("B1", SUBSCRIPTIONS, "s")


def test_what_is_gone_and_has_settled_is_not_remembered() -> None:
    pair = Pair()
    pair.connect()
    for at in range(100):
        pair.say(pair.client.subscribe("B1", f"s{at}", "x < 5"))
        pair.say(pair.client.unsubscribe("B1", f"s{at}"))
    assert pair.client.homes["B1"].changed_at == {} and pair.client.homes["B1"].before == {}


# --- Events ----------------------------------------------------------------------------------------------------------


def test_an_event_is_handed_on_once() -> None:
    client = ClientState("ann", SPACE)
    assert client.deliver(Deliver("ann", Publish("bob:1", {"x": 1}), ("s",)))
    assert not client.deliver(Deliver("ann", Publish("bob:1", {"x": 1}), ("s",)))
    assert client.deliver(Deliver("ann", Publish("bob:2", {"x": 1}), ("s",)))


def test_only_the_last_events_are_remembered() -> None:
    client = ClientState("ann", SPACE, remembered=3)
    handed_on = [client.deliver(Deliver("ann", Publish(id, {}), ("s",))) for id in "abcdda"]
    assert handed_on == [True, True, True, True, False, True]


def test_published_events_have_ids_of_their_own() -> None:
    client = ClientState("ann", SPACE)
    connected(client)
    said = sent(client.publish("B1", {"x": 1}) + client.publish("B1", {"x": 1}, b"payload"))
    assert said == [Publish("ann:5:1", {"x": 1}), Publish("ann:5:2", {"x": 1}, b"payload")]
    connected(client, 6)  # the same client goes on counting
    assert sent(client.publish("B1", {"x": 1})) == [Publish("ann:5:3", {"x": 1})]


def test_events_of_a_publisher_that_was_restarted_are_not_taken_for_copies() -> None:
    subscriber = ClientState("ann", SPACE)
    handed_on = []
    for session in (5, 6):  # a new process, which says so by its session
        publisher = ClientState("bob", SPACE)
        connected(publisher, session)
        (message,) = sent(publisher.publish("B1", {"x": session}))
        assert isinstance(message, Publish)
        handed_on.append(subscriber.deliver(Deliver("ann", message, ("s",))))
    assert handed_on == [True, True]


# --- Resynchronisation -----------------------------------------------------------------------------------------------


def test_nothing_is_sent_again_when_the_broker_holds_it_already() -> None:
    client = ClientState("ann", SPACE)
    connected(client)
    client.subscribe("B1", "s", "x < 5")
    client.disconnect("B1")
    assert connected(client, 6, (digest([("s", "x < 5", None)], 1).hashes, (0,))) == [Synced(seq_of(6, 1), 1)]


def test_a_lease_that_is_a_whole_number_is_not_sent_again() -> None:
    client = ClientState("ann", SPACE)
    connected(client)
    (send,) = client.subscribe("B1", "s", "x < 5", expires=60)
    arrived = Codec(SPACE).decode(codec.encode(send.message))
    assert isinstance(arrived, Subscribe)
    client.disconnect("B1")
    hashes = digest([("s", "x < 5", arrived.expires)], 1).hashes, (0,)
    assert connected(client, 6, hashes) == [Synced(seq_of(6, 1), 1)]


def test_changes_made_while_the_link_is_cut_arrive_when_it_is_back() -> None:
    pair = Pair()
    pair.connect()
    for id, where in (("kept", "x < 5"), ("replaced", "x < 6"), ("dropped", "x < 7")):
        pair.say(pair.client.subscribe("B1", id, where))
    pair.cut()
    pair.client.replace("B1", "replaced", "x > 6")
    pair.client.unsubscribe("B1", "dropped")
    pair.client.subscribe("B1", "added", "x < 8")
    pair.connect()
    assert pair.held == {"B1/ann/kept": "x < 5", "B1/ann/replaced": "x > 6", "B1/ann/added": "x < 8"}
    assert pair.client.is_settled("B1", SUBSCRIPTIONS, "added")


def test_of_many_subscriptions_only_those_that_changed_while_the_link_was_cut_are_sent_again() -> None:
    """Enough for several buckets: those without a change are not listed, and of the others all that is gone goes."""
    pair = Pair()
    pair.connect()
    for number in range(8 * BUCKET):
        pair.say(pair.client.subscribe("B1", f"s{number}", f"x = {number % 100}"))
    for dropped in ([], ["s3"], [f"s{number}" for number in range(40, 60)]):
        pair.cut()
        for id in dropped:
            pair.client.unsubscribe("B1", id)
        pair.connect()
        assert pair.held == pair.wanted
        (synced,) = [each for each in pair.said if isinstance(each, Synced)]
        changed = {bucket_of(id, synced.size) for id in dropped}
        assert synced.size >= 6 and synced.subscriptions.keys() == changed
    assert len(pair.held) == 8 * BUCKET - 21


def test_what_was_said_into_a_cut_wire_is_sent_again() -> None:
    pair = Pair()
    pair.connect()
    pair.is_up = False  # and the client has not noticed
    pair.say(pair.client.subscribe("B1", "s", "x < 5"))
    assert pair.held == {}
    pair.cut()
    pair.connect()
    assert pair.held == {"B1/ann/s": "x < 5"}


def test_a_lease_renewed_while_the_link_is_cut_goes_on() -> None:
    pair = Pair()
    pair.connect()
    pair.say(pair.client.subscribe("B1", "s", "x < 5", expires=10.0))
    pair.cut()
    pair.client.subscribe("B1", "s", "x < 5", expires=1000.0)
    pair.connect()
    pair.broker.handle(Tick(), "", 500.0)
    assert pair.held == {"B1/ann/s": "x < 5"}


# --- Refusals --------------------------------------------------------------------------------------------------------


def test_a_refused_subscription_is_forgotten() -> None:
    client = ClientState("ann", SPACE)
    connected(client)
    client.subscribe("B1", "s", "nonsense")
    client.subscribe("B1", "t", "x < 5")
    refused = Refused(seq_of(5, 2), "s", "no attribute 'nonsense'", SUBSCRIPTIONS)
    assert client.handle(refused, "B1") == []
    assert list(client.refusals) == [refused]
    client.disconnect("B1")
    assert connected(client, 6) == [Synced(seq_of(6, 1), 1, {0: {"t": ("x < 5", None)}})]


def test_only_the_last_refusals_are_kept() -> None:
    pair = Pair()
    pair.connect()
    for at in range(client_module.REFUSALS + 5):
        pair.client.handle(Refused(0, f"ann:1:{at}", "because"), "B1")
    assert [each.id for each in pair.client.refusals] == [f"ann:1:{at + 5}" for at in range(client_module.REFUSALS)]


def test_a_refused_event_changes_nothing() -> None:
    pair = Pair()
    pair.connect()
    pair.say(pair.client.subscribe("B1", "s", "x < 5"))
    pair.say(pair.client.publish("B1", {"y": 1}))
    (refused,) = pair.client.refusals
    assert (refused.seq, refused.id) == (0, "ann:1:1") and "attribute 'y' is not in the space" in refused.reason
    assert pair.held == {"B1/ann/s": "x < 5"}


def test_subscriptions_refused_in_a_resynchronisation_are_forgotten() -> None:
    pair = Pair()
    pair.client.connect("B1", 0)
    pair.client.subscribe("B1", "bad", "nonsense = 1")
    pair.client.subscribe("B1", "good", "x < 5")
    pair.connect()
    assert pair.held == {"B1/ann/good": "x < 5"}
    assert [refused.id for refused in pair.client.refusals] == ["bad"]
    with pytest.raises(CallerError, match="no subscription 'bad'"):
        pair.client.unsubscribe("B1", "bad")


def test_a_refused_replacement_leaves_the_subscription_as_it_was() -> None:
    pair = Pair()
    pair.connect()
    pair.say(pair.client.subscribe("B1", "s", "x < 5"))
    pair.say(pair.client.replace("B1", "s", "nonsense"))
    assert pair.held == {"B1/ann/s": "x < 5"} == pair.wanted
    pair.cut()
    pair.connect()
    assert pair.held == {"B1/ann/s": "x < 5"} == pair.wanted


@pytest.mark.parametrize(
    "said",
    [
        [("subscribe", "x < 5"), ("replace", "nonsense"), ("replace", "x < 9")],
        [("subscribe", "x < 5"), ("replace", "nonsense"), ("replace", "worse")],
        [("subscribe", "nonsense"), ("unsubscribe",), ("subscribe", "x < 9")],
        [("subscribe", "nonsense"), ("subscribe", "x < 9")],
    ],
    ids=lambda said: " ".join(each[0] for each in said) + (" worse" if said[-1][-1] == "worse" else ""),
)
def test_a_refusal_that_comes_late_undoes_only_what_it_refuses(said: list[tuple[str, ...]]) -> None:
    pair = Pair()
    pair.connect()
    pair.say([send for what, *where in said for send in getattr(pair.client, what)("B1", "s", *where)])
    assert pair.wanted == pair.held
    held = pair.held
    pair.cut()
    pair.connect()
    assert pair.wanted == pair.held == held


def test_a_refused_subscription_leaves_the_lease_as_it_was() -> None:
    pair = Pair()
    pair.connect()
    pair.say(pair.client.subscribe("B1", "s", "x < 5", expires=10.0))
    pair.say(pair.client.subscribe("B1", "s", "nonsense", expires=99.0))
    assert pair.client.homes["B1"].expires == {(SUBSCRIPTIONS, "s"): 10.0}


def test_after_a_replacement_refused_in_a_resynchronisation_both_hold_the_same() -> None:
    pair = Pair()
    pair.connect()
    pair.say(pair.client.subscribe("B1", "s", "x < 5"))
    pair.cut()
    pair.client.replace("B1", "s", "nonsense")
    pair.connect()
    assert pair.wanted == pair.held


def test_a_refused_subscription_leaves_an_advertisement_of_the_same_id() -> None:
    pair = Pair()
    pair.client.connect("B1", 0)
    pair.client.subscribe("B1", "same", "nonsense = 1")
    pair.client.advertise("B1", "same", "x < 5")
    pair.connect()
    assert pair.broker.received_from(ADVERTISEMENTS, "ann") == {"B1/ann/same": "x < 5"}
    assert pair.client.unadvertise("B1", "same")


# --- Moving ----------------------------------------------------------------------------------------------------------


class Deliveries(Observer):
    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    def delivered(self, client: str, broker: str, delivered: Deliver, now: float) -> None:
        self.events.append((client, delivered.event.event["x"]))


def test_a_client_that_moves_gets_every_event_once() -> None:
    """Subscribe there, await settled; flush here, await settled; unsubscribe here. Events go on all the while."""
    deliveries = Deliveries()
    network = Network(SPACE, observer=deliveries)
    for name in ("B1", "B2", "B3"):
        network.add_broker(name, Settings(routing="subscriptions"))
    network.join("B1", "B2", latency=0.5)
    network.join("B2", "B3", latency=0.5)
    bob, ann = network.add_client("bob"), network.add_client("ann")
    for broker, client in (("B1", "ann"), ("B3", "ann"), ("B2", "bob")):
        network.join(broker, client)
    network.run()
    network.tell("ann", ann.subscribe("B1", "s", "x < 90"))
    network.run()
    for at in range(80):
        network.at(network.now + at * 0.1, lambda at=at: network.tell("bob", bob.publish("B2", {"x": at})))

    steps: list[tuple[Callable[[], bool], Callable[[], list[Send]]]] = [
        (lambda: True, lambda: ann.subscribe("B3", "s", "x < 90")),
        (lambda: ann.is_settled("B3", SUBSCRIPTIONS, "s"), lambda: ann.flush("B1")),
        (lambda: ann.is_flushed("B1"), lambda: ann.unsubscribe("B1", "s")),
    ]
    end = network.now + 10.0
    while network.now < end:
        if steps and steps[0][0]():
            network.tell("ann", steps.pop(0)[1]())
        network.run(until=network.now + 0.05)
    assert not steps
    assert network.nodes["B1"].broker.received_from(SUBSCRIPTIONS, "ann") == {}
    assert sorted(deliveries.events) == [("ann", at) for at in range(80)]
