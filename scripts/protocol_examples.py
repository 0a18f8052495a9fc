"""The examples of docs/protocol.md: frames as bytes, written by the code that nodes and clients use.

python scripts/protocol_examples.py           write them into the page
python scripts/protocol_examples.py --check   exit with 1 if they are out of date
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec

from thatch import Space
from thatch.protocol import messages as m
from thatch.protocol import wire as w
from thatch.protocol.codec import encode
from thatch.protocol.digest import digest
from thatch.protocol.versions import DIGEST, VERSION_MAX

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "protocol.md"
BEGIN, END = "<!-- examples -->\n", "<!-- end of examples -->\n"
WIDTH = 116  # characters of a line of bytes

SPACE = Space.parse("price double not null 0..1000").to_json()
HERE, THERE = 7 << 32, 9 << 32  # the sessions of the client and of the node
EVENT = m.Publish("bob:3:1", {"price": 5.0}, b"\x01\x02")
DIGEST_KEY = bytes(range(1, 17))
DIGESTED = digest([("cheap", "price < 20", None)], 1, DIGEST_KEY)
Frame = tuple[str, tuple[m.Message, ...]]  # who sends it, and what it says
EXAMPLES: dict[str, tuple[Frame, ...]] = {
    "A client that cannot hash greets, and lists what it wants. The node takes it.": (
        (
            "client",
            (
                m.Hello("ann", 7, SPACE, is_client=True, version_max=VERSION_MAX, capabilities={DIGEST: "none"}),
                m.Synced(HERE | 1, 1, {0: {"cheap": ("price < 20", None)}}, {0: {}}),
            ),
        ),
        ("node", (m.Hello("B1", 9, SPACE, version_max=VERSION_MAX),)),
        ("node", (m.Accepted(HERE | 1), m.Settled(HERE | 1))),
    ),
    "To a client that hashes the node sends what it holds, here this one subscription.": (
        ("node", (m.Digest(THERE | 1, 1, DIGESTED.hashes, (0,), DIGEST_KEY, DIGESTED.counts, (0,)),)),
    ),
    "The client advertises and publishes. An event of another client comes.": (
        ("client", (m.Advertise(HERE | 2, "all", "TRUE"), m.Publish("ann:7:1", {"price": 12.5}))),
        ("node", (w.Published(1), w.Event(("cheap",), EVENT))),
    ),
    "A clause that cannot be read is refused.": (
        ("client", (m.Subscribe(HERE | 3, "odd", "prize < 5"),)),
        ("node", (m.Refused(HERE | 3, "odd", "line 1, column 1: …", "subscriptions", "clause"),)),
    ),
    "A durable subscription, an event of it, and its acknowledgement.": (
        ("client", (w.DurableSubscribe("alerts", "price < 20", 1_000_000, 86_400.0),)),
        ("node", tuple(w.DurableStatus("alerts", "price < 20", state) for state in ("accepted", "settled"))),
        ("node", (w.DurableEvent("alerts", 2**40 + 1, EVENT),)),
        ("client", (w.Ack("alerts", 2**40 + 1),)),
    ),
}


def examples() -> str:
    """Markdown: what each frame says, and its bytes."""
    return "\n".join(
        f"{title}\n\n" + "".join(_block(sender, messages) for sender, messages in frames)
        for title, frames in EXAMPLES.items()
    )


def _block(sender: str, messages: tuple[m.Message, ...]) -> str:
    encoded = [encode(each) for each in messages]
    said = [f"{sender}: {_shown(msgspec.msgpack.decode(each))}" for each in encoded]
    bytes_ = w.frame(encoded).hex()
    lines = [*said, *(bytes_[at : at + WIDTH] for at in range(0, len(bytes_), WIDTH))]
    return "".join(f"    {line}\n" for line in lines)


def _shown(value: Any) -> str:
    """A value of MessagePack for people."""
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_shown(key)}: {_shown(each)}' for key, each in value.items())}}}"
    if isinstance(value, bytes):
        return f"bytes({value.hex(' ')})"
    return "nil" if value is None else json.dumps(value, ensure_ascii=False)


def page(text: str) -> str:
    """A page with its examples as they are now."""
    assert BEGIN in text and END in text
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}{examples()}{END}", text, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    text = PAGE.read_text()
    if parser.parse_args().check:
        sys.exit(page(text) != text)
    PAGE.write_text(page(text))


if __name__ == "__main__":
    main()
