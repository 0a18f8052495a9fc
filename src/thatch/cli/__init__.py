"""The command line: one file per command.

In reading order:

    tabular           rows as text
    arguments         what several commands take: a space, clauses with their places
    session           a Spark session for a command: found, or started quietly
    inputs            files of events and subscriptions as DataFrames; what is malformed is an error, never NULL
    outputs           folders that Spark writes
    failures          what is wrong with files, with the place of each mistake
    match             `thatch match`
    rules             `thatch reduce`, `thatch learn`, `thatch audit`
    rules_text        what `reduce`, `learn` and `audit` print
    on_spark          the options of the commands on Spark
    simulate          `thatch simulate`
    plan              `thatch plan`
    on_overlay        the options of the commands on simulated overlays
    broker            `thatch broker`, `thatch subscribe`, `thatch publish`
    demo_earthquakes  `thatch demo --earthquakes`
    demo_flights      `thatch demo`: flights on Spark
    demo_network      `thatch demo --network`: three brokers
    main              the command line
"""
