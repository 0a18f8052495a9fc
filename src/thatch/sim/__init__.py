"""The simulator: many brokers, one seed.

In reading order:

    costs      how long a broker is busy with a message
    network    brokers and clients in simulated time: latency, bandwidth, cuts, crashes
    topology   overlays: those of the papers, and random trees
    script     what happens in a random run, drawn from a seed
    oracle     who must get an event, by brute force
    run        run a script and check every promise; the shortest prefix that fails
    workload   subscriptions with a covering degree
    workflow   processes of activities
    overlay    an overlay to experiment with, without faults
    record     what happened, as a table
    plots      what happened, as pictures
    scenarios  experiments by name
    dryrun     plans for a whole overlay
"""
