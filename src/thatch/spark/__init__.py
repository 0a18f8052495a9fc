"""Thatch on Spark: DataFrame in, DataFrame out.

In reading order:

    text      Spark expressions as SQL text that means the same in every session
    payload   an error as text that crosses Spark, and the same error again
    tables    DataFrames of events and of subscriptions: what they must look like, and what is wrong with them
    workers   the Python of the workers: the driver's own, or one that is checked first
    failures  `translated_errors`: errors raised on executors, as our own types
    clauses   clauses parsed by Spark's workers: to regions for the driver, or to what is wrong with them
    inferred  the space of subscriptions over a DataFrame of events
    encoded   subscriptions as rows of boxes in coordinates, with one set of label codes
    matching  `match`, `explain`: three strategies with one result
    reducing  `reduce`, `audit`: which subscriptions are redundant, and which ones prove it
    learning  `learn`: what events and subscriptions look like
"""

from thatch.errors import imports_of_extra

with imports_of_extra("spark"):
    from thatch.reports.learn import Learned
    from thatch.spark.clauses import WrongClauses
    from thatch.spark.failures import translated_errors
    from thatch.spark.learning.learn import learn
    from thatch.spark.matching.choice import MatchPlan
    from thatch.spark.matching.match import explain, match, wrong_clauses, wrong_events
    from thatch.spark.reducing.audit import audit
    from thatch.spark.reducing.loaded import decisions, load
    from thatch.spark.reducing.reduce import reduce

__all__ = [
    "Learned",
    "MatchPlan",
    "WrongClauses",
    "audit",
    "decisions",
    "explain",
    "learn",
    "load",
    "match",
    "reduce",
    "translated_errors",
    "wrong_clauses",
    "wrong_events",
]
