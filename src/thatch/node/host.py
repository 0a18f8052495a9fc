"""What the parts of a node ask of the node that they belong to."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from thatch.delivery.doors import Doors
from thatch.delivery.driver import Driver, Endpoint
from thatch.delivery.outgoing import Gate
from thatch.delivery.queues import Queues
from thatch.node.config import Config
from thatch.node.store import Store


class Host(Protocol):
    """The node, as its connections, its HTTP interface and its metrics see it."""

    config: Config
    driver: Driver
    doors: Doors
    store: Store
    gate: Gate
    queues: Queues
    is_ready: bool
    started_at: float

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run some work in the background until the node stops."""

    def client_connected(self, client: Any) -> None:
        """A client has said its name."""

    def client_resumed(self, name: str) -> None:
        """A client of the node's own is there: its subscriptions do not end with those of clients that are away."""

    def is_neighbour(self, name: str) -> bool:
        """Whether a name is that of a neighbour, which may be away."""

    def give_name_to_neighbour(self, name: str) -> None:
        """A neighbour comes: a client that has its name gives it up."""

    def end_as_old_copy(self, neighbour: str, reason: str) -> None:
        """A neighbour refuses the store of this node: acknowledge nothing more, and end."""

    def hang_up(self, name: str, reason: str) -> None:
        """On who is connected under this name, at once."""

    def dialled_at(self, name: str) -> str:
        """Where a neighbour is dialled; empty if it dials."""

    def dial(self, name: str) -> None:
        """If it is to be dialled, and is not yet."""

    def client_left(self, client: Any) -> None:
        """A client's connection has ended."""

    def note_skipped(self, kind: str, peer: str) -> None:
        """A message was skipped: a peer sent a kind that is not known here and may be ignored."""

    def note_backlog(self, client: Any) -> None:
        """A client has much to read."""

    async def wait_for_backlog(self, but: Endpoint | None = None) -> None:
        """Wait for receivers that have much to read and are reading; for all but one."""

    @property
    def connection_count(self) -> int:
        """Connections that are open."""

    @property
    def skipped_count(self) -> int:
        """Messages of unknown kinds that were skipped."""

    @property
    def dropped_count(self) -> int:
        """Events that slow clients have lost."""

    def totals(self) -> dict[str, int]:
        """Events taken in and sent out, over all lives of the store."""
