"""Overlays: the papers', and random trees. A topology is a list of links between named brokers, without a cycle."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

Links = list[tuple[str, str]]
CORE = "ABCDE"  # the core brokers of `congestion`


def chain(names: Sequence[str]) -> Links:
    return list(pairwise(names))


def star(names: Sequence[str]) -> Links:
    return [(names[0], name) for name in names[1:]]


def random_tree(brokers: int, rng: random.Random) -> Links:
    """Each broker is linked to one that was there before: long chains and stars both occur."""
    reach = rng.choice((1, 3, brokers))
    return [(f"B{rng.randrange(max(0, at - reach), at)}", f"B{at}") for at in range(1, brokers)]


def congestion() -> tuple[Links, list[str], list[str]]:
    """The congestion paper's 49 brokers (figure 8): links, the 3 edge brokers of publishers near E, and the 32 of
    subscribers. The core A to E is a chain. The text leaves open how the rest is joined: here 9 inner brokers hang on
    the core, two on each of A to D and one on E, and the subscribers' brokers on these, three or four each."""
    links = chain(CORE)
    publishers = [f"P{at}" for at in range(1, 4)]
    links += [("E", name) for name in publishers]
    inner = [f"I{at}" for at in range(1, 10)]
    links += [("AABBCCDDE"[at], name) for at, name in enumerate(inner)]
    edge = [f"S{at}" for at in range(1, 33)]
    links += [(inner[at % 9], name) for at, name in enumerate(edge)]
    return links, publishers, edge


def domains() -> tuple[Links, list[str]]:
    """The congestion paper's workflow overlay: four domains of ten brokers in three levels, and the six engines of
    each. How domains are joined is not said: here their heads are a chain."""
    links = chain([f"D{domain}" for domain in range(1, 5)])
    engines = []
    for domain in range(1, 5):
        links += [(f"D{domain}", f"D{domain}M{at}") for at in range(1, 4)]
        for at in range(6):
            engines.append(f"D{domain}E{at + 1}")
            links.append((f"D{domain}M{at % 3 + 1}", engines[-1]))
    return links, engines


def regions() -> tuple[Links, list[list[str]]]:
    """The congestion paper's tiers of figure 17, whose size is not said: here a centre, four regional brokers, three
    below each, and three edge brokers below each of these. The edge brokers by region."""
    links = [("C", f"R{region}") for region in range(1, 5)]
    edge: list[list[str]] = []
    for region in range(1, 5):
        links += [(f"R{region}", f"R{region}M{at}") for at in range(1, 4)]
        edge.append([f"R{region}E{at}" for at in range(1, 10)])
        links += [(f"R{region}M{(at - 1) // 3 + 1}", f"R{region}E{at}") for at in range(1, 10)]
    return links, edge


def monte_carlo() -> Links:
    """The monte-carlo paper's nine brokers (figure 1); B8, whose link is lost, hangs on B7."""
    pairs = ((1, 3), (2, 3), (3, 4), (4, 5), (4, 6), (4, 7), (7, 9), (7, 8))
    return [(f"B{one}", f"B{other}") for one, other in pairs]


def eleven() -> Links:
    """Eleven brokers, as in figure 1 of the negative-space and MICS papers, whose links are lost: a tree of depth 3."""
    pairs = ((1, 2), (1, 3), (1, 4), (2, 5), (2, 6), (3, 7), (3, 8), (4, 9), (4, 10), (10, 11))
    return [(f"B{one}", f"B{other}") for one, other in pairs]


def names_of(links: Links) -> list[str]:
    return list(dict.fromkeys(name for link in links for name in link))


def path(links: Links, start: str, end: str) -> list[tuple[str, str]] | None:
    """The links from one broker to another, in order; None where they are apart."""
    neighbours: dict[str, list[str]] = {}
    for one, other in links:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    came_from: dict[str, str] = {start: start}
    todo = deque([start])
    while todo and end not in came_from:
        here = todo.popleft()
        for name in neighbours.get(here, ()):
            if name not in came_from:
                came_from[name] = here
                todo.append(name)
    if end not in came_from:
        return None
    steps = []
    while end != start:
        steps.append((came_from[end], end))
        end = came_from[end]
    return steps[::-1]
