"""`thatch broker`: a node that runs until it is stopped."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

from thatch.cli.arguments import OK, space_text
from thatch.errors import ConfigError, suggestion


def add(commands: Any) -> None:
    command = commands.add_parser(
        "broker",
        help="run a broker",
        description="Run one broker of a network: clients and curl on one port, neighbours on another.",
        epilog="example: thatch broker --name B1 --space 'price double not null 0..1000, symbol string'",
    )
    command.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="a TOML file; flags override it")
    command.add_argument("--name", help="the name of the broker, unique in the network")
    command.add_argument("--space", metavar="SPACE", help="the space, written out, or a file that holds it")
    command.add_argument("--store", metavar="FILE", help="where its state is kept (default NAME.thatch)")
    command.add_argument("--listen", metavar="HOST:PORT", help="for clients (default 127.0.0.1:7878)")
    command.add_argument("--overlay", metavar="HOST:PORT", help="for neighbours (default 127.0.0.1:7879)")
    command.add_argument("--neighbour", action="append", default=[], metavar="NAME=URL", help="a neighbour to dial")
    command.add_argument("--accept", action="append", default=[], metavar="NAME", help="a neighbour that may dial")
    command.add_argument("--routing", help="advertisements (default), subscriptions or events")
    command.add_argument("--log", help="text (default) or json")
    command.add_argument(
        "--exposed", action="store_true", default=None, help="listen beyond loopback: there is no access control"
    )
    command.add_argument("--print-config", action="store_true", help="print the settings that would be used")
    command.add_argument("--json", action="store_true", help="print the settings as JSON")
    for other in ("--port", "--host"):  # what other programs call it: answered, not offered
        command.add_argument(other, help=argparse.SUPPRESS)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from thatch.node.config import missing_keys, read, to_toml
    from thatch.node.run import run as run_node

    if options.json and not options.print_config:
        raise ConfigError("--json goes with --print-config, which prints the settings")
    if options.port is not None or options.host is not None:
        address = f"{options.host or '127.0.0.1'}:{options.port or 7878}"
        raise ConfigError(f"the address of clients is one option, --listen HOST:PORT: --listen {address}")
    flags: dict[str, Any] = {}
    if options.space is not None:
        options.space = space_text(options.space)
    for key in ("name", "space", "store", "routing", "log", "exposed"):
        if getattr(options, key) is not None:
            flags[key] = getattr(options, key)
    for key, text in (("client", options.listen), ("overlay", options.overlay)):
        if text is not None:
            flags[f"{key}.host"], flags[f"{key}.port"] = _address(text)
    if options.accept:
        flags["accept"] = options.accept
    for text in options.neighbour:
        name, equals, url = text.partition("=")
        if not equals:
            raise ConfigError(f"--neighbour NAME=URL, such as B2=ws://127.0.0.1:7879, not {text!r}")
        flags.setdefault("neighbours", {})[name] = url
    if options.config is not None and not options.config.exists():
        name = str(options.config)
        hint = "" if name.endswith(".toml") else f"; a name is given as --name {name}"
        raise ConfigError(f"{name}: no such file{hint}")
    config = read(options.config, flags, fills_in=options.print_config)
    for name in config.links:
        if name not in config.neighbours and name not in config.accept:  # an operator may accept it later
            meant = suggestion(name, [*config.neighbours, *config.accept])
            print(f"thatch: [links.{name}]: the settings name no neighbour {name!r}{meant}", file=sys.stderr)
    if options.print_config:
        missing = missing_keys(options.config, flags)
        if options.json:
            settings = msgspec.to_builtins(config)
            print(msgspec.json.encode({key: each for key, each in settings.items() if key not in missing}).decode())
        else:
            print(to_toml(config, missing).rstrip())
        return OK
    run_node(config)
    return OK


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isdigit() and port.isascii()):
        example = f"127.0.0.1:{text}" if text.isdigit() else "127.0.0.1:7878"
        raise ConfigError(f"an address is HOST:PORT, such as {example}, not {text!r}")
    return host, int(port)
