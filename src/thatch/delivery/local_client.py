"""A client that lives in the node itself: a durable subscription, or a user of plain HTTP."""

from __future__ import annotations

from thatch.broker import ClientState
from thatch.delivery.driver import ClientEndpoint, Driver, Outcome
from thatch.protocol.ids import random_token
from thatch.protocol.messages import Message, Publish, Refused
from thatch.protocol.messages import Send as Sending


class LocalClient(ClientEndpoint):
    def __init__(self, driver: Driver, name: str, durable: bool = False) -> None:
        self.name, self.driver = name, driver
        self.client = ClientState(name, driver.broker.space, token=random_token(driver.random_bytes))
        self._durable = durable

    @property
    def home(self) -> str:
        return self.driver.broker.name

    def connect(self, wheres: dict[str, str] | None = None) -> None:
        """`wheres`: the subscriptions that the broker has of this client, by id."""
        link_up = self.driver.next_link_up(is_client=True, durable=self._durable)
        self.driver.connect(self.name, self)
        sends = self.client.connect(self.home, link_up.session)
        self.client.adopt(self.home, wheres or {})
        self.driver.take(link_up, self.name)
        self.send_all(sends)

    def send_all(self, sends: list[Sending]) -> None:
        for each in sends:
            self.driver.take(each.message, self.name)

    def publish(self, event: Publish) -> Outcome:
        return self.driver.publish([event], self.name)[0]

    def send(self, message: Message) -> None:
        self.send_all(self.client.handle(message, self.home))
        self.on_message(message)

    def on_message(self, message: Message) -> None:
        """A message for this client; subclasses that wait for answers override it."""

    def deliver(self, ids: tuple[str, ...], event: bytes) -> None:
        """An event for this client; subclasses that subscribe override it."""

    def send_refusal(self, refused: Refused, close: bool) -> None:
        self.send(refused)
