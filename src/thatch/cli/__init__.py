"""The command line: one file per command.

In reading order:

    tabular            rows as text
    terminal           colours and progress, which only a terminal gets
    streams            standard input, output and errors, also where they are closed or full
    arguments          what several commands take: a space, clauses with their places; exit statuses
    clause_help        `thatch help clauses`
    parser             the parser of arguments, with answers to mistakes
    request            what every command over tables and files is asked
    match_request      what `thatch match` is asked to do, whichever engine does it
    wrong_rows         subscriptions and events that cannot be used, in words
    rules_request      what the commands about subscriptions are asked to do
    report_files       the folders that learn and audit write
    engine             the interface of both engines
    local_jobs         what the commands do in this process
    spark_jobs         what the commands do on Spark
    engine_choice      which engine does the work
    table_arguments    what the commands over tables and files take
    match              `thatch match`
    reduce             `thatch reduce`
    learn              `thatch learn`
    audit              `thatch audit`
    validate           `thatch validate`
    evidence           a verdict for programs and for people
    covers             `thatch covers`
    explain            `thatch explain`
    overlay_arguments  what the commands on simulated overlays take
    simulated          a scenario, its measurements, plots and summary
    simulate           `thatch simulate`
    planned            dry runs of clauses in files and of scenarios
    plan               `thatch plan`
    broker             `thatch broker`
    admin              `thatch admin`
    client_arguments   what the commands take that are clients of a broker
    subscribe          `thatch subscribe`
    event_lines        events of arguments and of standard input
    publish            `thatch publish`
    demo_earthquakes   a week of earthquakes in one process
    demo_flights       a year of flights, subscriptions to them, and both on Spark
    demo_local         the same in this process
    demo_network       three brokers, one of them killed
    demo               `thatch demo`: the parts as a story
    warm               `thatch warm`
    completion         `thatch completion`
    commands           all commands, what they have in common, and how they end
    main               the command line
"""
