"""`thatch admin`: look at a broker that runs, copy its store, and put a copy in the place of a store."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from thatch.cli.arguments import NO, OK, add_json, as_text
from thatch.cli.tabular import counted, megabytes, table
from thatch.cli.terminal import clear_progress, is_terminal, show_progress
from thatch.errors import CallerError

SOCKET = "*.sock"
EVERYTHING = 2**62


def add(commands: Any) -> None:
    command = commands.add_parser(
        "admin",
        help="look at a broker that runs, back it up, restore it",
        description="Operate a broker on this machine. All but `restore` talk to a broker that runs, through the Unix "
        "socket beside its store, which only its own user may use.",
        epilog="example: thatch admin status --socket /var/lib/thatch/B1.thatch.sock",
    )
    actions = command.add_subparsers(metavar="action")
    status = _action(actions, "status", "how the broker is; exit status 1 if it refuses work", "thatch admin status")
    status.set_defaults(run=run_status)
    links = _action(
        actions, "links", "its neighbours, and what is kept for each; exit status 1 if one is not up",
        "thatch admin links --json",
    )  # fmt: skip
    links.set_defaults(run=run_links)
    accept = _action(
        actions, "accept", "let a neighbour come that the settings do not name, or that has another store now",
        "thatch admin accept B3",
    )  # fmt: skip
    accept.add_argument("neighbour", metavar="NEIGHBOUR", help="its name")
    accept.set_defaults(run=run_accept)
    forget = _action(
        actions, "forget", "forget a neighbour that does not come back, and discard what is kept for it",
        "thatch admin forget B3 --yes",
    )  # fmt: skip
    forget.add_argument("neighbour", metavar="NEIGHBOUR", help="its name")
    forget.add_argument("--yes", action="store_true", help="do not ask, however many events are discarded")
    forget.set_defaults(run=run_forget)
    attach = _action(
        actions, "attach", "attach a neighbour in the place of one that is lost for good",
        "thatch admin attach B3 --instead-of B2 --dial ws://10.0.0.3:7879",
    )  # fmt: skip
    attach.add_argument("neighbour", metavar="NEIGHBOUR", help="its name")
    attach.add_argument("--instead-of", metavar="LOST", required=True, help="the neighbour that is lost")
    attach.add_argument("--dial", metavar="URL", default="", help="its overlay port (default: it dials this broker)")
    attach.set_defaults(run=run_attach)
    move = _action(
        actions, "move-queue", "move a durable subscription to another broker",
        "thatch admin move-queue ann alerts --to ws://10.0.0.3:7878",
    )  # fmt: skip
    move.add_argument("client", metavar="CLIENT", help="the name of its client")
    move.add_argument("id", metavar="ID", help="of the durable subscription")
    move.add_argument("--to", metavar="URL", required=True, help="the client port of the other broker")
    move.set_defaults(run=run_move_queue)
    backup = _action(
        actions, "backup", "copy the store while the broker runs", "thatch admin backup /var/backups/B1.copy"
    )
    backup.add_argument("file", metavar="FILE", help="the copy, written by the broker")
    backup.add_argument("--overwrite", action="store_true", help="replace a file that exists")
    backup.set_defaults(run=run_backup)
    restore = actions.add_parser(
        "restore",
        help="put a copy in the place of the store of a broker that is stopped",
        description="Check a copy, and put it in the place of the store of a broker that is stopped. The broker then "
        "starts in the past: what it acknowledged since the copy was made is announced as an interval.",
        epilog="example: thatch admin restore /var/backups/B1.copy --store /var/lib/thatch/B1.thatch",
    )
    restore.add_argument("file", metavar="FILE", help="the copy")
    restore.add_argument("--store", metavar="PATH", required=True, help="the store that it replaces")
    add_json(restore)
    restore.set_defaults(run=run_restore)
    for each in actions.choices.values():
        each.set_defaults(command_parser=each)
    command.set_defaults(run=lambda options: _print_help(command))


def _action(actions: Any, name: str, help: str, example: str) -> argparse.ArgumentParser:
    """An action of a broker that runs."""
    action: argparse.ArgumentParser = actions.add_parser(
        name, help=help, description=f"{help[0].upper()}{help[1:]}.", epilog=f"example: {example}"
    )
    action.add_argument("--socket", metavar="PATH", help=f"of the broker (default: the only {SOCKET} in this folder)")
    add_json(action)
    return action


def _print_help(command: argparse.ArgumentParser) -> int:
    command.print_help()
    return OK


def run_status(options: argparse.Namespace) -> int:
    from thatch.node.asking import Status

    state = _asked(options, Status())
    is_well = state["ready"] and state["store"]["state"] == "ok"
    if options.json:
        print(as_text(state))
        return OK if is_well else NO
    print(_listed(_status_rows(state)))
    return OK if is_well else NO


def _status_rows(state: dict[str, Any]) -> list[tuple[str, str]]:
    store, durable, neighbours = state["store"], state["durable"], state["neighbours"]
    ready = "ready" if state["ready"] else "not ready"
    room = "ok" if store["state"] == "ok" else "THE DISK IS FULL: new work that needs it is refused"
    kept = f"about {counted(durable['kept_events'], 'event')} kept, {megabytes(durable['kept_bytes'])}"
    queues = f"{durable['subscriptions']:,}, {durable['connected']:,} connected; {kept}"
    return [
        ("broker", f"{state['name']}, {ready}, up {_duration(state['up_seconds'])}, version {state['version']}"),
        ("store", f"{store['file']}, {megabytes(store['bytes'])}, {room}"),
        ("clients", f"{state['clients']:,}; {counted(state['connections'], 'connection')}"),
        ("subscriptions", f"{state['subscriptions']:,}"),
        ("durable", queues + (f", {durable['lost']:,} lost to limits" if durable["lost"] else "")),
        ("neighbours", f"{neighbours['up']} of {neighbours['count']} up"),
        *([("missing", f"perhaps, in {counted(state['gaps'], 'interval')}: see /healthz")] if state["gaps"] else []),
        *(("refused", f"{each['count']:,} times: {each['last']}: {each['reason']}") for each in state["refused"]),
    ]


def run_links(options: argparse.Namespace) -> int:
    from thatch.node.asking import Links

    links = _asked(options, Links())
    are_up = all(each["state"] == "up" for each in links)
    if options.json:
        print(as_text(links))
    elif not links:
        print("no neighbours")
    else:
        head = ["neighbour", "state", "expected", "subscriptions", "advertisements", "kept", "lost"]
        print(table([head, *map(_link_row, links)]))
        print("subscriptions and advertisements: received from the neighbour / sent to it")
    return OK if are_up else NO


def _link_row(link: dict[str, Any]) -> list[str]:
    pairs = [f"{link[key]['received']:,} / {link[key]['sent']:,}" for key in ("subscriptions", "advertisements")]
    kept = f"{counted(link['kept_events'], 'event')}, {megabytes(link['kept_bytes'])}"
    return [link["name"], link["state"], link["expected"], *pairs, kept, f"{link['lost']:,}"]


def run_accept(options: argparse.Namespace) -> int:
    from thatch.node.asking import Accept

    answer = _asked(options, Accept(options.neighbour))
    return _say(options, answer, f"{answer['name']} may come; the store that it comes with is the one to go on with")


def _say(options: argparse.Namespace, answer: dict[str, Any], sentence: str) -> int:
    """What was done, for a program or for a person."""
    print(as_text(answer) if options.json else sentence)
    return OK


def run_attach(options: argparse.Namespace) -> int:
    from thatch.node.asking import Attach

    answer = _asked(options, Attach(options.neighbour, options.instead_of, options.dial))
    how = f"is dialled at {answer['dialled']}" if answer["dialled"] else "may dial this broker"
    kept = f"{counted(answer['offered'], 'event')} that were kept for {answer['instead_of']} are kept for it, too"
    return _say(options, answer, f"{answer['name']} {how}; {kept}")


def run_move_queue(options: argparse.Namespace) -> int:
    from thatch.node.asking import MoveQueue

    answer = _asked(options, MoveQueue(options.client, options.id, options.to))
    kept = f"{counted(answer['passed'], 'event')} that were kept here"
    return _say(options, answer, f"{answer['id']} of {answer['client']} is at {answer['url']} now, with {kept}")


def run_forget(options: argparse.Namespace) -> int:
    """Says first what is discarded. If more comes for the neighbour meanwhile, it is asked about again."""
    from thatch.node.asking import Forget

    answer = _asked(options, Forget(options.neighbour, EVERYTHING if options.yes else None))
    while not answer["is_forgotten"]:
        if not _is_sure(_consequence(answer), answer["name"]):
            print(f"{answer['name']} is not forgotten", file=sys.stderr)
            return NO
        answer = _asked(options, Forget(options.neighbour, answer["kept_events"]))
    more = "; the settings name it, so it joins as new when it comes" if answer["returns"] else ""
    kept = counted(answer["kept_events"], "kept event")
    return _say(options, answer, f"{answer['name']} is forgotten, and with it {kept}{more}")


def _consequence(answer: dict[str, Any]) -> str:
    events, interest = (
        counted(answer["kept_events"], "acknowledged event"),
        counted(answer["subscriptions"], "subscription"),
    )
    more = " It is connected now." if answer["is_up"] else ""
    more += f" That is too early: {answer['too_early']}." if answer["too_early"] else ""
    return f"{events} kept for {answer['name']} will be discarded for good, and {interest} that came from it.{more}"


def _is_sure(consequence: str, name: str) -> bool:
    if not is_terminal(sys.stdin):
        raise CallerError(f"{consequence} Nothing was done: say so with --yes, or run it in a terminal, which asks")
    print(f"{consequence} Forget {name}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def run_backup(options: argparse.Namespace) -> int:
    from thatch.node.asking import Backup

    summary = _asked(options, Backup(os.path.abspath(options.file), options.overwrite))
    made = f"broker {summary['broker']} of {_moment(summary['made_at'])}"
    return _say(options, summary, f"{summary['file']}: {made}, {_contents(summary)}")


def run_restore(options: argparse.Namespace) -> int:
    import msgspec

    from thatch.node.backup import restore

    summary = msgspec.to_builtins(restore(Path(options.file), Path(options.store)))
    if summary["moved_to"]:
        print(f"thatch: {options.store} was no whole store; it is kept as {summary['moved_to']}", file=sys.stderr)
    made = "of an unknown moment" if summary["made_at"] is None else f"of {_moment(summary['made_at'])}"
    return _say(
        options,
        summary,
        f"{options.store} is now the store of broker {summary['broker']} {made}, {_contents(summary)}. "
        "Start the broker: it says what it cannot know",
    )


def _asked(options: argparse.Namespace, request: Any) -> Any:
    from thatch.node.asking import ask

    path = Path(options.socket) if options.socket else _only_socket(sorted(Path().glob(SOCKET)))
    try:
        return ask(path, request, lambda done, total: show_progress(f"{done:,} of {total:,} pages"))
    finally:
        clear_progress()


def _only_socket(found: Sequence[Path]) -> Path:
    if len(found) != 1:
        what = f"several sockets are here, {', '.join(map(str, found))}" if found else f"no {SOCKET} is in this folder"
        raise CallerError(f"which broker? {what}: give --socket PATH, the file beside its store")
    return found[0]


def _listed(rows: Sequence[Sequence[str]]) -> str:
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


def _contents(summary: dict[str, Any]) -> str:
    rows = summary["rows"]
    events, queues = (
        counted(rows.get("events", 0), "kept event"),
        counted(rows.get("queues", 0), "durable subscription"),
    )
    return f"{megabytes(summary['bytes'])}, {queues}, {events}"


def _moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _duration(seconds: float) -> str:
    """
    >>> _duration(5), _duration(3_700), _duration(200_000)
    ('5 s', '1 h 1 min', '2 d 7 h')
    """
    minutes, hours, days = int(seconds) // 60, int(seconds) // 3600, int(seconds) // 86_400
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min {int(seconds) % 60} s" if minutes else f"{int(seconds)} s"
