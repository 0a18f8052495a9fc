"""The Python of Spark's workers: with a local master the driver's own, on a cluster one that is looked at first.

PySpark starts workers with PYSPARK_PYTHON, or with whatever `python3` is on the PATH. A script that runs in a virtual
environment has neither, so its workers would lack what it has installed. On one machine the driver's Python is the
right one, and every function that is given to Spark names the Python to run it.

On a cluster nobody knows what executors have. So the first job of a session asks each of them, from the JVM and through
a shell: that works where Python is missing, too old or bare, and it costs a job without Python workers.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from thatch import __version__
from thatch.errors import CallerError

PACKAGES = ("thatch", "numba", "numpy", "pyarrow", "msgspec", "sqlglot", "sortedcontainers")
HOSTS_NAMED = 3
EXECUTORS_ASKED = 1000
SETTING = "PYSPARK_PYTHON"
ADVICE = "docs/packaging.md says how workers get what they need"

# For any Python since 2.7. Nothing but thatch is imported, which tells its version even without an installation.
PROBE = """
import json, os, platform, sys
sys.stdin.read()
asked, includes = json.loads(sys.argv[1])
sys.path[:0] = [os.path.abspath(each) for each in includes]
found = {}
try:
    from importlib.metadata import version
    from importlib.util import find_spec
    for name in asked:
        try:
            found[name] = version(name) if find_spec(name) else None
        except Exception:
            found[name] = ""
    if found["thatch"] is not None:
        import thatch
        found["thatch"] = thatch.__version__
except Exception:
    pass
about = {"python": sys.executable, "version": platform.python_version(), "packages": found, "host": platform.node()}
print(json.dumps(about))
"""
SHELL = """"$1" -c "$2" "$3" 2>/dev/null || { s=$?; printf '{"host": "%s", "status": %d}\\n' "$(uname -n)" $s; }"""
NOT_FOUND = (126, 127)  # of a shell: no such program, or none that can be run


class Worker(msgspec.Struct, frozen=True):
    """What one executor has, or the driver."""

    host: str
    status: int = 0  # of Python; not 0 where it does not start
    python: str = ""
    version: str = ""
    packages: dict[str, str | None] = {}  # None: not there; "": there, of a version that nothing tells


def prepare_workers(context: SparkContext) -> None:
    """Before work is given to Python workers: see to it that they can do it.

    Raises:
        CallerError: a worker lacks what it needs. The sentence says which worker and what.
    """
    if is_local(context) and sys.executable and SETTING not in os.environ:
        context.pythonExec = sys.executable
    if is_local(context) and context.pythonExec == sys.executable:
        return
    if context.applicationId not in _CHECKED:
        check_workers(context, context.pythonExec)
        _CHECKED.add(context.applicationId)


_CHECKED: set[str] = set()  # the sessions whose workers can work


def is_local(context: SparkContext) -> bool:
    """Whether one process is driver and executor."""
    return re.fullmatch(r"local(\[.*\])?", str(context.master)) is not None


def check_workers(context: SparkContext, python: str) -> None:
    """Asks every executor for its Python and what is installed there: one Spark job, without Python workers."""
    workers = asked(context, python)
    driver = _driver()
    problem = lacks(workers, driver, python)
    if problem is not None:
        raise CallerError(problem)
    doubt = differences(workers, driver)
    if doubt is not None:
        warnings.warn(doubt, stacklevel=3)


def asked(context: SparkContext, python: str) -> list[Worker]:
    """What executors have. Tasks go round, so that each idle executor gets one; one that comes later is not asked."""
    jvm: Any = context._jsc
    includes = list(getattr(context, "_python_includes", ()))
    command = ["sh", "-c", SHELL, "sh", python, PROBE, json.dumps([PACKAGES, includes])]
    executors = jvm.sc().getExecutorMemoryStatus().size() - 1
    count = min(max(executors, 2), EXECUTORS_ASKED)
    try:
        rows = jvm.parallelize([""] * count, count).pipe(command, context.environment).collect()
    except Py4JError:  # no shell there, say: what the workers lack is then said by the job that needs it
        return []
    return [msgspec.json.decode(row, type=Worker) for row in rows]


def _driver() -> Worker:
    packages = {name: _version(name) for name in PACKAGES} | {"thatch": __version__}
    return Worker("", 0, sys.executable, ".".join(map(str, sys.version_info[:3])), packages)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return "" if find_spec(name) else None


def lacks(workers: Sequence[Worker], driver: Worker, python: str) -> str | None:
    """What keeps workers from working, as a sentence; None if nothing does."""
    return _sentence([(each.host, _lack(each, driver, python)) for each in workers], ADVICE)


def differences(workers: Sequence[Worker], driver: Worker) -> str | None:
    """Which libraries of workers are of another version than the driver's, as a sentence: such workers can work."""
    others = [(each.host, _versions(each, driver, PACKAGES[1:])) for each in workers]
    return _sentence(others, "the same versions everywhere are safer")


def _lack(worker: Worker, driver: Worker, python: str) -> str:
    if worker.status in NOT_FOUND:
        return f"has no Python at {python!r} (which {SETTING} names)"
    if worker.status:
        return f"cannot start {python!r}"
    if worker.version.split(".")[:2] != driver.version.split(".")[:2]:
        return f"has Python {worker.version} at {worker.python}, the driver has {driver.version}"
    missing = [name for name in PACKAGES if worker.packages.get(name) is None]
    if missing:
        return f"lacks {', '.join(missing)} for {worker.python}"
    return _versions(worker, driver, PACKAGES[:1])


def _versions(worker: Worker, driver: Worker, names: Sequence[str]) -> str:
    other = [
        f"{name} {own}, the driver has {driver.packages[name]}"
        for name in names
        if (own := worker.packages.get(name)) and driver.packages[name] and own != driver.packages[name]
    ]
    return f"has {'; '.join(other)}" if other else ""


def _sentence(problems: Sequence[tuple[str, str]], advice: str) -> str | None:
    """Of hosts and what is wrong with each, or ''."""
    hosts: dict[str, list[str]] = {}
    for host, problem in problems:
        if problem and host not in hosts.setdefault(problem, []):  # several executors on one host are alike
            hosts[problem].append(host)
    if not hosts:
        return None
    return f"{'; '.join(f'{_named(names)} {problem}' for problem, names in hosts.items())}: {advice}"


def _named(hosts: list[str]) -> str:
    more = len(hosts) - HOSTS_NAMED
    names = ", ".join(hosts[:HOSTS_NAMED]) + (f" and {more:,} more" if more > 0 else "")
    return f"the Spark worker on {names}" if len(hosts) == 1 else f"each Spark worker on {names}"
