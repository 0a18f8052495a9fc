"""The README's example on Spark as somebody's script, in a folder with its files.

tests/spark/test_spark_workers.py runs it. Its import does nothing: pytest imports every file in search of doctests,
and a session that is started then is that of all tests.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import thatch.spark as ts

if __name__ == "__main__":
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate()

    trades, alerts = spark.read.parquet("trades.parquet"), spark.read.parquet("alerts.parquet")
    matches = ts.match(trades, alerts)
    print(sorted(tuple(row) for row in matches.collect()))
    spark.stop()
