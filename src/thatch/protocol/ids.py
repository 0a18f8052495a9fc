"""The grammar of names and ids.

    B1                  a broker
    ann                 a client
    B1/ann/cheap        what the overlay calls the client's subscription or advertisement `cheap`: it lives at broker B1
    ann@alerts          the durable subscription `alerts` of client ann: a client of its own inside the node
    @http               a client inside the node that serves people without a name
    B1/~B2/7            merger 7 that broker B1 sends to B2
    B1/~~B2/B1/pub/all  broker B1 keeps for B2, which is away, what the publisher's advertisement `all` brings
    ~B2~B1/ann/cheap    another region under the same id, which came over link B2
    ann:dGhhdGNo:15     an event: what its publisher drew by lot when it started, and a number
    @http:/here 7       an event that brought its own id: the same at whichever broker it is published

Names have no '/', '~' or ':', so that no id that a client chooses can look like one of the overlay's own. The names of
brokers and of clients that connect have no '@' either: no peer can have a name of the node's own.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable

from thatch.errors import CallerError, shown

SUBSCRIPTIONS, ADVERTISEMENTS = "subscriptions", "advertisements"
ENTRY_NAMES = {SUBSCRIPTIONS: "subscription", ADVERTISEMENTS: "advertisement"}  # what a table holds, one of them
INSIDE = "@"  # between a client and its durable subscription, and before the names of the node's own clients
NAME_CHARACTERS_MAX = 255


def is_name(name: str) -> bool:
    """Whether it can be the name of a broker, or of a client that connects."""
    return _is_name(name, "/~:" + INSIDE, NAME_CHARACTERS_MAX)


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a broker, or of a client that connects."""
    if not is_name(name):
        rule = f"without '/', '~', ':' and {INSIDE!r}, of 1 to {NAME_CHARACTERS_MAX} characters"
        raise CallerError(f"the name of a broker or a client is a text {rule}, not {shown(name)}", code="name")


def check_durable_id(id: str) -> None:
    """Refuse what cannot be the id of a durable subscription."""
    if not _is_name(id, "/~:", NAME_CHARACTERS_MAX):
        rule = f"without '/', '~' and ':', of 1 to {NAME_CHARACTERS_MAX} characters"
        raise CallerError(f"the id of a durable subscription is a text {rule}, not {shown(id)}", code="id")


def check_link_name(name: str) -> None:
    """Refuse what cannot be the name of a link: that of a broker, of a client, or of one inside the node."""
    if not _is_name(name, "/~:", 2 * NAME_CHARACTERS_MAX + len(INSIDE)):
        why = f"the name of a broker or a client is a text without '/', '~' and ':', not {shown(name)}"
        raise CallerError(why, code="name")


def _is_name(name: str, excluded: str, characters_max: int) -> bool:
    return 0 < len(name) <= characters_max and not any(each in name for each in excluded)


def overlay_id(broker: str, client: str, id: str) -> str:
    """What the overlay calls a client's id."""
    return f"{broker}/{client}/{id}"


def client_id(id: str) -> str:
    """What the client calls an id that the overlay knows.

    >>> client_id(overlay_id("B1", "ann", "a/b"))
    'a/b'
    """
    return id.split("/", 2)[2]


def is_of_broker(id: str, broker: str) -> bool:
    """Whether what an id stands for lives at a broker, also under an alias."""
    return without_alias(id).startswith(f"{broker}/")


def durable_name(client: str, id: str) -> str:
    """The name of a durable subscription inside the node."""
    return f"{client}{INSIDE}{id}"


def split_durable_name(name: str) -> tuple[str, str]:
    """The client and the id of a durable subscription."""
    client, _, id = name.partition(INSIDE)
    return client, id


def is_durable_name(name: str) -> bool:
    """Whether a name inside the node is that of a durable subscription, and not of another client that lives there.

    >>> is_durable_name("ann@alerts"), is_durable_name("@reader1"), is_durable_name("ann")
    (True, False, False)
    """
    return all(split_durable_name(name))


def inner_name(what: str) -> str:
    """The name of a client that belongs to the node itself."""
    return f"{INSIDE}{what}"


def merger_prefix(broker: str, link: str) -> str:
    """How the ids of the mergers begin that a broker sends over a link; the merger's key follows."""
    return f"{broker}/~{link}/"


def placeholder_prefix(broker: str, link: str) -> str:
    """How the ids of the subscriptions begin that a broker holds on behalf of a neighbour that is away; the id of an
    advertisement follows."""
    return f"{broker}/~~{link}/"


def event_prefix(publisher: str) -> str:
    """How the ids of a publisher's events begin; what the publisher chooses follows."""
    return f"{publisher}:"


def publisher_of(event: str) -> str:
    """Who published the event with this id."""
    return event.partition(":")[0]


def random_token(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """What no other process has in the ids of its events, also not under the same name or in the same second."""
    return urlsafe_b64encode(random_bytes(8)).rstrip(b"=").decode()


def alias(id: str, link: str = "") -> str:
    """Another id for what an id stands for, which no client can have chosen."""
    return f"~{link}~{id}"


def without_alias(id: str) -> str:
    """The id that an alias stands for.

    >>> without_alias(alias(alias("B1/ann/cheap", "B2"), "/1"))
    'B1/ann/cheap'
    """
    while id.startswith("~"):
        id = id.split("~", 2)[-1]
    return id
