"""What tests share: no test imports a test.

paths            where things are in the repository
strategies       how long tests run; random values, names and declarations of attributes
conditions       random conditions over a small space, with their meaning in plain Python
clause_rows      rows of every attribute type
clause_literals  values written as literals, in every form that Spark reads
clauses          random WHERE clauses
cover_oracles    sets of regions, and by brute force what covers them
active_sets      an active set compared with naive rules
match_oracles    sets of regions and events, and by brute force what matches
broker_bench     a broker among peers that say what a test wants
node_process     brokers as processes
spark_oracles    events and subscriptions for Spark, and what its own join finds
spark_cluster    a Spark cluster in a process of its own
spark_daemon     the process that Spark's Python workers are forked from
"""
