"""A broker that is lost for good, and operators who attach its neighbours to one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thatch.delivery.admission import why_unsettled
from thatch.sim.node_network import NodeNetwork
from thatch.sim.node_oracle import Loss, NodeOracle
from thatch.sim.node_process import NodeProcess
from thatch.sim.topology import Links, path


class Move:
    def __init__(self, links: Links, network: NodeNetwork, publish: Callable[[], None]) -> None:
        """`publish` has each publisher publish: what is promised is promised in every state of a move."""
        self.links: Sequence[tuple[str, str]] = links  # at present
        self.lost = self.parent = ""  # the lost broker, and the one to which its other neighbours are attached
        self._orphans: list[str] = []
        self._network, self._publish = network, publish

    def way(self, one: str, other: str) -> list[str]:
        return _way_along(self.links, one, other)

    def neighbours(self, name: str) -> list[str]:
        return [each for link in self.links if name in link for each in link if each != name]

    def _process(self, name: str) -> NodeProcess:
        process = self._network.machines[name].process
        assert process is not None
        return process

    def destroy(self, name: str, parent: str, oracle: NodeOracle) -> None:
        """A broker, with its disk. From then on the others are linked by the one that becomes the parent."""
        before = self.links
        oracle.former_ways.append(lambda one, other: _way_along(before, one, other))
        self.lost, self.parent = name, parent
        self._orphans = [each for each in self.neighbours(name) if each != parent]
        self.links = [link for link in before if name not in link] + [(parent, each) for each in self._orphans]
        self._network.remove_machine(self._network.machines[name])
        oracle.losses.append(Loss(name, -1.0, self._network.now))
        oracle.note_crash(self._network.now)

    def attach(self, name: str, neighbour: str, oracle: NodeOracle) -> bool:
        """What is kept for the lost one is copied, so it may come twice."""
        process = self._network.machines[name].process
        if process is None or self.lost not in process.driver.broker.links:
            return False
        oracle.note_crash(self._network.now)
        process.attach(neighbour, self.lost, dials=name == self.parent)
        return True

    def go_on(self, oracle: NodeOracle) -> None:
        """Operators attach whoever is not attached, and when all of that has settled, they forget the lost one: at the
        parent first. One that heard no answer, because its broker ended, tries again."""
        parent = self._process(self.parent)
        if self.lost not in parent.driver.broker.links:
            for process in map(self._process, self._orphans):
                self._forget(process)
            return
        ends = [pair for name in self._orphans for pair in ((name, self.parent), (self.parent, name))]
        missing = [(one, other) for one, other in ends if self._process(one).driver.attachments.of(other) is None]
        for one, other in missing:
            self.attach(one, other, oracle)
        if not missing and not why_unsettled(parent.driver, self.lost):
            self._forget(parent)

    def _forget(self, process: NodeProcess) -> None:
        if self.lost in process.driver.broker.links:
            process.forget(self.lost)
            self._publish()


def _way_along(links: Sequence[tuple[str, str]], one: str, other: str) -> list[str]:
    """The brokers from one to another; empty if there is no way."""
    steps = path(list(links), one, other)
    return [] if steps is None else [one, *(step[1] for step in steps)]
