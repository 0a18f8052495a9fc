"""CloudEvents 1.0 over HTTP: structured, in batches, and binary.

The members of `data` that the space has are the event's values; so are context attributes (type, source, subject, …)
if the space has attributes of their names and `data` has not. The payload is the whole CloudEvent in JSON, so that a
subscriber gets what was sent. Its source and id name the event: the same again is a duplicate, as the standard says.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from thatch.errors import CallerError, shown
from thatch.space.json_values import read_json, readable, typed_event
from thatch.space.space import Space

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
REQUIRED = ("specversion", "id", "source", "type")

Read = list[tuple[str, dict[str, Any], bytes]]


def is_cloud_event(headers: Mapping[str, str]) -> bool:
    return _kind(headers) in (STRUCTURED, BATCH) or "ce-specversion" in headers


def read_cloud_events(headers: Mapping[str, str], body: bytes, space: Space) -> Read:
    """(id, values, payload) of each event of a request."""
    kind = _kind(headers)
    if kind == BATCH:
        given = read_json(body, "the batch", list[dict[str, Any]])
    elif kind == STRUCTURED:
        given = [read_json(body, "the CloudEvent")]
    else:
        given = [_binary(headers, body)]
    return [_event(each, space) for each in given]


def _kind(headers: Mapping[str, str]) -> str:
    return headers.get("Content-Type", "").partition(";")[0].strip().lower()


def _binary(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    context: dict[str, Any] = {
        name[3:].lower(): unquote(value) for name, value in headers.items() if name.lower().startswith("ce-")
    }
    kind = _kind(headers)
    if kind:
        context["datacontenttype"] = kind
    if kind.endswith("json") or not kind:
        context["data"] = read_json(body, "the data of the CloudEvent", Any) if body else None
    else:
        context["data_base64"] = base64.b64encode(body).decode()
    return context


def _event(given: dict[str, Any], space: Space) -> tuple[str, dict[str, Any], bytes]:
    for name in REQUIRED:
        if not isinstance(given.get(name), str) or not given[name]:
            raise CallerError(
                f"a CloudEvent has a text {name!r} that is not empty; this one has {shown(given.get(name))}"
            )
    if given["specversion"] != "1.0":
        raise CallerError(f"CloudEvents of version 1.0 are read, not {shown(given['specversion'])}")
    context = {name: value for name, value in given.items() if name not in ("data", "data_base64")}
    data = given.get("data")
    values = typed_event(context, space)
    if isinstance(data, dict):
        named = {name.lower() for name in data}
        values = {name: value for name, value in values.items() if name.lower() not in named} | typed_event(data, space)
    source = given["source"].replace(" ", "%20")  # a URI has no blank: where it ends, the id begins
    return f"{source} {given['id']}", values, msgspec.json.encode(given, enc_hook=readable)
