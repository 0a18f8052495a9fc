"""docs/protocol.md has every message, field and code of the code, and names none that the code does not have."""

from __future__ import annotations

import re
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from protocol_examples import DIGESTED, EXAMPLES, PAGE, page

from thatch.errors import Code
from thatch.protocol import messages as m
from thatch.protocol import versions
from thatch.protocol import wire as w
from thatch.protocol.kinds import KINDS
from thatch.protocol.wire import Frames, FromClient, FromNeighbour, FromNode
from thatch.space.space import Space

TEXT = PAGE.read_text()
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##)", TEXT.partition("## Messages")[2], re.M | re.S))
TYPES: dict[Any, str] = {
    int: "int",
    str: "text",
    bool: "bool",
    bytes: "bytes",
    float: "float",
    float | None: "float or nil",
    tuple[str, ...]: "array of text",
    tuple[int, ...]: "array of int",
    dict[str, str]: "map of text to text",
    dict[w.Ordinal, w.StoreId]: "map of int to text",
    dict[w.StoreId, m.Number]: "map of text to int",
    tuple[w.StoreId, ...]: "array of text",
    dict[str, Any]: "map of text to any",
    dict[str, dict[str, int]]: "map of text to map of text to int",
    m.Listing: "map of int to map of text to array of text, float or nil",
    m.Publish: "Publish",
    m.Publish | w.Gap | None: "Publish, gap or nil",
}


def rows(text: str) -> list[list[str]]:
    """The rows of the first table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_has_every_kind_and_no_other() -> None:
    assert set(SECTIONS) == {kind.struct.__name__ for kind in KINDS.by_tag.values()}


@pytest.mark.parametrize("tag", KINDS.by_tag)
def test_the_page_has_every_field_and_no_other(tag: str) -> None:
    kind = KINDS.by_tag[tag]
    section = SECTIONS[kind.struct.__name__]
    (said, senders) = re.findall(r"^Tag `(\w+)`, sent by ([\w, ]+)\.", section)[0]
    assert said == tag
    assert re.split(r", | and ", senders) == [sender.value for sender in kind.senders]
    found = []
    for field in msgspec.structs.fields(kind.struct):
        if field.default_factory is not msgspec.NODEFAULT:
            default = msgspec.json.encode(field.default_factory()).decode()
        elif field.default is not msgspec.NODEFAULT:
            default = msgspec.json.encode(field.default).decode()
        else:
            default = ""
        since = kind.struct.added.get(field.name, kind.since)
        plain = get_args(field.type)[0] if get_origin(field.type) is Annotated else field.type  # bounds are in the text
        found.append([f"`{field.name}`", TYPES[plain], default.replace("null", "nil"), str(since)])
    assert [row[:4] for row in rows(section)] == found


def test_the_page_names_nothing_that_is_not_there() -> None:
    words = set(re.findall(r"`(\w+)`", TEXT.partition("## Examples")[0]))
    fields = {name for kind in KINDS.by_tag.values() for name in kind.struct.__struct_fields__}
    limits = {*versions.ProtocolLimits.__struct_fields__, versions.DIGEST, versions.NAMED_KINDS, versions.LIFE}
    types = {"bool", "int", "float", "double", "string", "date", "timestamp", "timestamp_ntz"}
    others = {"thatch", "dd", "None", "TRUE"}  # the subprotocol, a byte, and texts
    assert words - fields - limits - types - others <= {*KINDS.by_tag, *SECTIONS, *get_args(Code)}


def test_the_page_has_every_code_and_no_other() -> None:
    listed = rows(TEXT.partition("## Refusals")[2].partition("\n## ")[0])
    assert [row[0].removesuffix(" †") for row in listed] == [f"`{code}`" for code in get_args(Code)]


def test_the_page_has_the_limits_of_every_version() -> None:
    listed = rows(TEXT.partition("## Limits")[2].partition("\n## ")[0])
    for limits in versions.LIMITS.values():
        asked = {row[0].partition(":")[0].strip("`"): int(row[1].replace(",", "")) for row in listed}
        assert asked == msgspec.structs.asdict(limits)
    assert f"versions {versions.VERSION_MIN} to {versions.VERSION_MAX}" in TEXT
    capabilities = rows("| capability" + TEXT.partition("| capability")[2].partition("\n\n")[0])
    assert [row[0] for row in capabilities] == [
        f"`{each}`" for each in (versions.DIGEST, versions.NAMED_KINDS, versions.ROUTING, versions.STEP, versions.LIFE)
    ]


def test_the_examples_are_what_the_code_writes() -> None:
    assert page(TEXT) == TEXT, "python scripts/protocol_examples.py writes them again"
    assert DIGESTED.hashes[0], "not the digest of nothing"


def test_the_examples_are_read_back() -> None:
    """The bytes of the page, as the messages that they are of."""
    frames = Frames(Space.parse("price double not null 0..1000"), FromClient | FromNode | FromNeighbour)
    block = TEXT.partition("<!-- examples -->")[2]
    written = [each.replace("\n", "").replace(" ", "") for each in re.findall(r"(?:^    [0-9a-f]+\n)+", block, re.M)]
    said = [list(messages) for example in EXAMPLES.values() for _, messages in example]
    assert [frames.decode(bytes.fromhex(each)) for each in written] == said
