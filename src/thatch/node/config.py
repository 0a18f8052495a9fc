"""The settings of a node: a TOML file, flags that override it, and what they must be."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from thatch.broker import Policy, Settings
from thatch.broker.cells import Cells
from thatch.broker.policy import ClientLimits
from thatch.errors import CallerError, ConfigError, check_regular, shown, toml_problem, what_is_no_file
from thatch.protocol.address import OVERLAY_URL, checked_url
from thatch.protocol.ids import check_name
from thatch.space.space import Space
from thatch.space.structs import struct_of

MB = 2**20
FILE_BYTES_MAX = 4 * MB  # of settings


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 0  # 0: any that is free


class Flow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of what waits for one connection."""

    client_bytes_max: int = 8 * MB  # of events that a client has not read
    slow_client: Literal["drop", "disconnect"] = "drop"  # the oldest events, with a notice; or the client
    control_bytes_max: int = 8 * MB  # of other messages that a client has not read
    neighbour_bytes_max: int = 64 * MB  # of plain events for a neighbour that is away or slow
    unacknowledged_bytes_max: int = 4 * MB  # that are sent and not acknowledged


class Retention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of what is kept on disk."""

    neighbour_bytes_max: int = 1024 * MB
    neighbour_seconds_max: float = 7 * 86_400.0
    queue_bytes_max: int = 256 * MB  # the most that a durable subscription may ask for
    queue_seconds_max: float = 30 * 86_400.0
    returned_seconds: float = 86_400.0  # of events for interest that neighbours return after a restore


class Timing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    heartbeat_seconds: float = 5.0  # between pings of a neighbour; half as long again, and the link is cut
    client_heartbeat_seconds: float = 60.0
    linger_seconds: float = 30.0  # how long the plain subscriptions of a client that is away stay
    away_seconds: float = 60.0  # without a neighbour, after which nobody waits for it
    dial_seconds_max: float = 1.5  # to reach a neighbour in
    retry_seconds_max: float = 0.5  # between tries


class Pruning(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of incremental pruning, which is on with a `theta` in the policy."""

    history_seconds: float = Settings().history_seconds  # of events that it judges by
    idle_seconds: float = Settings().idle_seconds  # without a change, after which preserved subscriptions are replaced
    # Forwarded a second in place of a subscription that leaves; 0: all at once.
    replacements_per_second_max: float = Settings().replacements_per_second_max


# The least that each number may be, and whether it may be that. Ports, policies, cells and limits check themselves.
RANGES = (
    ("flow.client_bytes_max", 1, True),
    ("flow.control_bytes_max", 1, True),
    ("flow.neighbour_bytes_max", 1, True),
    ("flow.unacknowledged_bytes_max", 1, True),
    ("retention.neighbour_bytes_max", 0, True),
    ("retention.neighbour_seconds_max", 0, True),
    ("retention.queue_bytes_max", 0, True),
    ("retention.queue_seconds_max", 0, True),
    ("retention.returned_seconds", 0, True),
    ("timing.heartbeat_seconds", 0, False),
    ("timing.client_heartbeat_seconds", 0, False),
    ("timing.linger_seconds", 0, True),
    ("timing.away_seconds", 0, False),
    ("timing.dial_seconds_max", 0, False),
    ("timing.retry_seconds_max", 0, False),
    ("pruning.history_seconds", 0, False),
    ("pruning.idle_seconds", 0, True),
    ("pruning.replacements_per_second_max", 0, True),
)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    space: str
    store: str = ""  # a file; "": NAME.thatch in the working directory
    time_zone: str = "UTC"
    client: Listen = Listen(port=7878)
    overlay: Listen = Listen(port=7879)
    exposed: bool = False  # listen on more than loopback, although there is no access control
    accept: tuple[str, ...] = ()  # the neighbours that may dial this broker
    neighbours: dict[str, str] = {}  # name -> URL of its overlay port; one side of a link dials
    routing: str = "advertisements"
    policy: Policy = Policy()
    links: dict[str, Policy] = {}  # a policy of their own for some neighbours
    pruning: Pruning = Pruning()
    cells: Cells | None = None  # a partition: neighbours that have the same one match events by their cells
    flow: Flow = Flow()
    limits: ClientLimits = ClientLimits()
    retention: Retention = Retention()
    timing: Timing = Timing()
    log: Literal["text", "json"] = "text"

    def __post_init__(self) -> None:
        check_name(self.name)
        self._check_ranges()
        for key, listen in (("client", self.client), ("overlay", self.overlay)):
            if not 0 <= listen.port < 65_536:
                raise ConfigError(f"{key}.port is a port, a number from 0 to 65535, not {listen.port}")
            if not self.exposed and not _is_loopback(listen.host):
                host = listen.host or "every address of this machine"
                named = "" if _has_address(listen.host) else " (no host has this name)"
                raise ConfigError(
                    f"{key}.host: {host} is not a loopback address such as 127.0.0.1{named}, and there is no access "
                    "control: anybody who reaches the port may read and publish everything. Set exposed = true if only "
                    "trusted peers can reach it"
                )
        for name in self.accept:
            check_name(name)
        if self.client.port and self.client == self.overlay:
            raise ConfigError(
                f"--listen and --overlay (client.port and overlay.port) are the same port, {self.client.port}; give two"
            )
        for name, url in self.neighbours.items():
            check_name(name)
            try:
                checked_url(url, OVERLAY_URL)
            except CallerError as error:
                raise ConfigError(f"neighbour {name!r}: {error}") from None
        if self.name in self.neighbours or self.name in self.accept:
            raise ConfigError(f"broker {self.name!r} is not a neighbour of itself")
        if self.store and self.store_path.is_dir():
            raise ConfigError(f"store {self.store}: a folder; give a file such as {self.store_path / self.name}.thatch")

    def _check_ranges(self) -> None:
        """Every number that is out of its range, by name."""
        wrong = []
        for key, least, is_allowed in RANGES:
            table, _, field = key.partition(".")
            value = getattr(getattr(self, table), field)
            if not (value >= least if is_allowed else value > least):
                wrong.append(f"{key} is {'at least' if is_allowed else 'above'} {least}, not {value:g}")
        if wrong:
            raise ConfigError("; ".join(wrong))

    @property
    def store_path(self) -> Path:
        return Path(self.store or f"{self.name}.thatch")

    def settings(self) -> Settings:
        pruning = msgspec.structs.asdict(self.pruning)
        return Settings(
            self.routing,  # type: ignore[arg-type]
            self.policy,
            self.links,
            **pruning,
            cells=self.cells,
            limits=self.limits,
            holds_events=True,
        )

    def read_space(self) -> Space:
        text = self.space.strip()
        return Space.from_json(text) if text.startswith("{") else Space.parse(text, self.time_zone)


# What a broker cannot do without, and what it may look like.
EXAMPLES = {"name": "B1", "space": "price double, symbol string"}


def read(path: Path | None, flags: dict[str, Any], fills_in: bool = False) -> Config:
    """From a file, and flags that win over it. `fills_in`: what is needed and not given is taken from `EXAMPLES`."""
    given = _given(path, flags)
    try:
        _check_retract(given)
        config = struct_of(EXAMPLES | given, Config)
        settings, space = config.settings(), config.read_space()
        if settings.cells is not None and "space" in given:
            _check_cells(settings.cells, space)
    except CallerError as error:
        raise ConfigError(_placed(str(error), path, flags)) from None
    missing = [key for key in EXAMPLES if key not in given]
    if missing and not fills_in:
        raise ConfigError(_need(missing, path))
    return config


def _placed(problem: str, path: Path | None, flags: dict[str, Any]) -> str:
    """A problem with the file it is in, and with flags as they are typed."""
    for key, flag in FLAGS.items():
        if key in flags or f"{key}.host" in flags:
            problem = re.sub(rf"(?:^|(?<=; )){key}(?:\.host|\.port)?(?=[ :])", flag, problem)
            problem = problem.replace("Set exposed = true if", "Add --exposed if")
    return problem if path is None else f"{path}: {problem}"


# What settings are called on the command line.
FLAGS = {"client": "--listen", "overlay": "--overlay", "store": "--store", "routing": "--routing", "log": "--log"}


def _check_retract(given: dict[str, Any]) -> None:
    links = given.get("links")
    tables = {f"links.{name}": table for name, table in links.items()} if isinstance(links, dict) else {}
    for key, table in {"policy": given.get("policy"), **tables}.items():
        retract = table.get("retract", False) if isinstance(table, dict) else False
        if not isinstance(retract, bool) and retract != "union":
            raise ConfigError(f'{key}.retract is true, false or "union", not {shown(retract)}')


def _check_cells(cells: Cells, space: Space) -> None:
    """Refuse attributes that cannot be."""
    try:
        cells.grid(space)
    except CallerError as error:
        missing = "cells.attributes is missing, and the first four are taken: " if cells.attributes is None else ""
        raise ConfigError(f"{missing}{error}") from None


def _need(missing: Sequence[str], path: Path | None) -> str:
    """What to do when something is missing that a broker cannot do without."""
    flags = " ".join(f"--{key} '{EXAMPLES[key]}'" for key in missing)
    lines = "\n".join(f'    {key} = "{EXAMPLES[key]}"' for key in missing)
    started = "thatch broker" if path is None else f"thatch broker {path}"
    file = "a TOML file, `thatch broker FILE`" if path is None else str(path)
    return (
        f"thatch broker needs a {' and a '.join(missing)}. Give {'it' if len(missing) == 1 else 'both'} as flags, with "
        f"your own values:\n    {started} {flags}\nor in {file}:\n{lines}\n"
        "`thatch broker --print-config` prints all settings"
    )


def missing_keys(path: Path | None, flags: dict[str, Any]) -> list[str]:
    """What `read` would have to fill in."""
    given = _given(path, flags)
    return [key for key in EXAMPLES if key not in given]


def _given(path: Path | None, flags: dict[str, Any]) -> dict[str, Any]:
    """The settings of file and flags, not checked yet but for names of earlier versions."""
    given: dict[str, Any] = {}
    if path is not None:
        data = _bytes_of(path)
        try:
            given = tomllib.loads(data.decode())
        except ValueError as error:  # also bytes that are not UTF-8, and an int of more digits than Python reads
            raise ConfigError(f"{path}: not TOML: {toml_problem(error)}") from None
    for dotted, value in flags.items():
        _set(given, dotted.split("."), value)
    _check_renamed(given, path)
    _check_ports(given, path)
    for policy in (given.get("policy"), *_tables(given.get("links"))):
        if isinstance(policy, dict) and policy.get("cover") == "none":  # TOML has no null
            policy["cover"] = None
    return given


@cache  # a pipe can be read once, and settings are looked at twice
def _read_pipe(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # does not wait for somebody to write
    with os.fdopen(descriptor, "rb") as file:
        os.set_blocking(descriptor, True)
        return file.read(FILE_BYTES_MAX + 1)


def _bytes_of(path: Path) -> bytes:
    """What is in a file of settings, or of a pipe."""
    if what_is_no_file(path) == "a named pipe":
        data = _read_pipe(path)
    else:
        check_regular(path)
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX // MB} MB: it is no file of settings")
    return data


# Keys that settings had in earlier versions, and what they are called now. `*` is any name.
RENAMED = {
    "keep": "retention",
    "retention.neighbour_bytes": "retention.neighbour_bytes_max",
    "retention.neighbour_seconds": "retention.neighbour_seconds_max",
    "retention.queue_bytes": "retention.queue_bytes_max",
    "retention.queue_seconds": "retention.queue_seconds_max",
    "flow.client_bytes": "flow.client_bytes_max",
    "flow.control_bytes": "flow.control_bytes_max",
    "flow.neighbour_bytes": "flow.neighbour_bytes_max",
    "flow.window_bytes": "flow.unacknowledged_bytes_max",
    "timing.heartbeat": "timing.heartbeat_seconds",
    "timing.client_heartbeat": "timing.client_heartbeat_seconds",
    "timing.linger": "timing.linger_seconds",
    "timing.dial": "timing.dial_seconds_max",
    "timing.retry_max": "timing.retry_seconds_max",
    "pruning.window": "pruning.history_seconds",
    "pruning.idle": "pruning.idle_seconds",
    "pruning.replaced": "pruning.replacements_per_second_max",
    "policy.pays_from": "policy.covered_share_min",
    "links.*.pays_from": "links.*.covered_share_min",
}


def _check_renamed(given: dict[str, Any], path: Path | None) -> None:
    """Refuse keys of earlier versions, all of them at once."""
    found = [f"{old} is now {new}" for keys in _keys(given) for old, new in [_renamed(keys)] if new]
    if found:
        place = "" if path is None else f"{path}: "
        raise ConfigError(f"{place}settings have new names: {'; '.join(found)}")


def _check_ports(given: dict[str, Any], path: Path | None) -> None:
    """Refuse an address where a table belongs."""
    tables = {"listen": "client", "port": "client", "client": "client", "overlay": "overlay"}
    for key, table in tables.items():
        value = given.get(key)
        host, colon, port = str(value).rpartition(":")
        if isinstance(value, int | str) and port.isdecimal():
            lines = [f"[{table}]", *([f"host = {_value(host)}"] if colon else []), f"port = {port}"]
            place = "" if path is None else f"{path}: "
            raise ConfigError(f"{place}{key} = {_value(value)}: write {' '.join(lines)}, a line each")


def _keys(given: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in given.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _keys(value, (*above, key))


def _renamed(path: tuple[str, ...]) -> tuple[str, str]:
    """The dotted key, and what it is called now if that is something else."""
    key = ".".join(path)
    new = RENAMED.get(key, "")
    if len(path) == 3:
        new = RENAMED.get(f"{path[0]}.*.{path[2]}", "").replace("*", path[1])
    if path[0] == "keep" and len(path) == 2:
        new = RENAMED.get(f"retention.{path[1]}", "")
    return key, new


def _set(given: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        if not isinstance(given.setdefault(name, {}), dict):
            given[name] = {}
        given = given[name]
    if isinstance(value, dict):
        given.setdefault(path[-1], {}).update(value)
    else:
        given[path[-1]] = value


def _tables(given: Any) -> list[Any]:
    return list(given.values()) if isinstance(given, dict) else []


def to_toml(config: Config, missing: Sequence[str] = ()) -> str:
    """As a file that reads the same. What is `missing` is a comment: it has to be given."""
    given = msgspec.to_builtins(config)
    for policy in (given["policy"], *given["links"].values()):
        policy["cover"] = policy["cover"] or "none"
    lines = [
        (f"# {key} = {_value(each)}  # needed" if key in missing else f"{key} = {_value(each)}")
        for key, each in given.items()
        if each is not None and not isinstance(each, dict)
    ]
    for key, value in given.items():
        if isinstance(value, dict):
            lines += [
                "",
                f"[{key}]",
                *(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None and v != {}),
            ]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None and v != {}) + " }"
        )
    return msgspec.json.encode(value).decode()


def _has_address(host: str) -> bool:
    """Whether a host has an address: it is one, or its name leads to one."""
    try:
        return bool(socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE))
    except (OSError, UnicodeError):  # the latter of what no name can be
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
