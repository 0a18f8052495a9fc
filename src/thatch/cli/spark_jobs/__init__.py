"""What the commands do on Spark: files in, files out. PySpark is imported with these modules.

In reading order:

    daemon      the process that workers are forked from: it has what matching needs
    session     a Spark session for a command: found, or started quietly
    inputs      files of events as DataFrames; what is malformed is an error, never NULL
    rule_files  files of rules as DataFrames of subscriptions
    outputs     folders that Spark writes
    failures    what is wrong with files, with the place of each mistake
    match       files of events against subscriptions
    rules       reduce, learn and audit over files of subscriptions
    engine      the engine: a method for each command
"""
