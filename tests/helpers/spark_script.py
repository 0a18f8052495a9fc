"""The README's example on Spark as somebody's script, in a folder with its files.

tests/spark/test_spark_workers.py runs it.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

import thatch.spark as ts

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC").getOrCreate()

trades, alerts = spark.read.parquet("trades.parquet"), spark.read.parquet("alerts.parquet")
matches = ts.match(trades, alerts)
print(sorted(tuple(row) for row in matches.collect()))
spark.stop()
