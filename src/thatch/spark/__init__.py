"""Thatch on Spark: DataFrame in, DataFrame out."""

from thatch.spark.match import Plan, explain, match, wrong_clauses, wrong_events

__all__ = ["Plan", "explain", "match", "wrong_clauses", "wrong_events"]
