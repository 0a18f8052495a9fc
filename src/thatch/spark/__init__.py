"""Thatch on Spark: DataFrame in, DataFrame out."""

from thatch.spark.audit import audit
from thatch.spark.learn import Learned, learn
from thatch.spark.loaded import decisions, load
from thatch.spark.match import Plan, explain, match, wrong_clauses, wrong_events
from thatch.spark.reduce import reduce

__all__ = [
    "Learned",
    "Plan",
    "audit",
    "decisions",
    "explain",
    "learn",
    "load",
    "match",
    "reduce",
    "wrong_clauses",
    "wrong_events",
]
