"""The Python of Spark's workers: the driver's own with a local master, and a sentence for each worker that lacks
something. tests/spark/test_spark_cluster.py asks executors that are processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from helpers import paths
from thatch.errors import CallerError

pytest.importorskip("pyspark")
from thatch.spark.workers import ADVICE, Worker, asked, check_workers, differences, lacks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = paths.ROOT / "tests" / "helpers" / "spark_script.py"
PACKAGES: dict[str, str | None] = {
    "thatch": "1.2", "numba": "0.61", "numpy": "2", "pyarrow": "20", "msgspec": "1", "sqlglot": "30",
    "sortedcontainers": "2",
}  # fmt: skip
DRIVER = Worker("driver", 0, "/venv/bin/python", "3.11.7", PACKAGES)


@pytest.fixture(scope="session")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The script in an environment of PATH and HOME only, where python3 is another Python. It runs while the other
    tests on Spark do."""
    folder = tmp_path_factory.mktemp("path")
    other = folder / "python3"
    other.write_text("#!/bin/sh\necho this is another Python >&2\nexit 1\n")
    other.chmod(0o755)
    pq.write_table(pa.table({"symbol": ["A", "B"], "price": [12.5, 30.0]}), folder / "trades.parquet")
    rules = pa.table({"id": ["cheap", "b"], "where": ["price < 20", "symbol = 'B'"]})
    pq.write_table(rules, folder / "alerts.parquet")
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "HOME": os.environ["HOME"]},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


def worker(host: str = "h1", **changed: Any) -> Worker:
    packages = PACKAGES | changed.pop("packages", {})
    return Worker(**{"host": host, "python": "/usr/bin/python3", "version": "3.11.2", "packages": packages} | changed)


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        ([worker()], None),
        ([worker(packages={"thatch": ""})], None),
        ([worker(status=127)], "the Spark worker on h1 has no Python at 'py' (which PYSPARK_PYTHON names)"),
        ([worker(status=1)], "the Spark worker on h1 cannot start 'py'"),
        (
            [worker(version="3.10.13", packages={"thatch": None})],
            "the Spark worker on h1 has Python 3.10.13 at /usr/bin/python3, the driver has 3.11.7",
        ),
        (
            [worker(packages={"thatch": None, "pyarrow": None})],
            "the Spark worker on h1 lacks thatch, pyarrow for /usr/bin/python3",
        ),
        ([worker(packages={"thatch": "1.1"})], "the Spark worker on h1 has thatch 1.1, the driver has 1.2"),
        (
            [worker("h1", status=127), worker("h1", status=127), worker("h2"), worker("h3", packages={"numba": None})],
            "the Spark worker on h1 has no Python at 'py' (which PYSPARK_PYTHON names); "
            "the Spark worker on h3 lacks numba for /usr/bin/python3",
        ),
        (
            [worker(f"h{each}", packages={"numba": None}) for each in range(9)],
            "each Spark worker on h0, h1, h2 and 6 more lacks numba for /usr/bin/python3",
        ),
    ],
)
def test_a_sentence_says_which_worker_lacks_what(workers: list[Worker], sentence: str | None) -> None:
    found = lacks(workers, DRIVER, "py")
    assert found == (sentence if sentence is None else f"{sentence}: {ADVICE}")


def test_other_versions_of_libraries_are_named() -> None:
    workers = [worker(), worker("h2", packages={"numba": "0.62", "pyarrow": "19"})]
    assert lacks(workers, DRIVER, "py") is None
    assert differences(workers, DRIVER) == (
        "the Spark worker on h2 has numba 0.62, the driver has 0.61; pyarrow 19, the driver has 20: "
        "the same versions everywhere are safer"
    )


def test_executors_are_asked(script: subprocess.Popen[str], spark: SparkSession, tmp_path: Path) -> None:
    context = spark.sparkContext
    check_workers(context, sys.executable)
    found = asked(context, sys.executable)[0]
    assert found.python == sys.executable and None not in found.packages.values()
    with pytest.raises(CallerError, match="has no Python at '/no/such/python'"):
        check_workers(context, "/no/such/python")
    bare = tmp_path / "python"  # without what is installed
    bare.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(CallerError, match="lacks thatch, numba, numpy"):
        check_workers(context, str(bare))


@pytest.mark.background
def test_a_script_needs_no_setting(script: subprocess.Popen[str]) -> None:
    readme = re.findall(r"```python\n(.*?)```", (paths.ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    example = next(each for each in readme if "import thatch.spark" in each)
    for line in filter(None, (line.partition("  #")[0] for line in example.splitlines())):
        assert line in SCRIPT.read_text(), line
    out, err = script.communicate(timeout=120)
    assert out == "[('A', 12.5, 'cheap'), ('B', 30.0, 'b')]\n", err[-3000:]
