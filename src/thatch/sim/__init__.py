"""The simulator: many brokers, or many whole nodes, one seed.

In reading order:

    agenda        what happens at which time
    costs         how long a broker is busy with a message
    network       brokers and clients in simulated time: latency, bandwidth, cuts, crashes
    topology      overlays: those of the papers, and random trees
    script        what happens in a random run, drawn from a seed
    oracle        who must get an event, by brute force
    agreement     brokers that differ in what they must agree on, or need not
    run           run a script and check every promise; the shortest prefix that fails
    node_store    a store whose commits come late, or never
    node_pipe     a connection between two ends
    node_clients  client programs, which connect again
    node_process  a whole node, without sockets
    node_strangers  peers that are not who they say
    node_network  whole nodes and programs: machines, disks, cuts
    node_script   what happens in a random run of whole nodes
    node_movers   programs that move from one whole node to another
    node_notices  what limits have cost, as programs were told
    node_oracle   who must get an event although nodes fail
    node_move     a broker that is lost for good, and operators who attach its neighbours
    node_disks    what the disks hold, for durable subscriptions and of one another
    node_growth   operators of whole nodes who grow the space
    node_run      run a script of whole nodes and check every promise
    workload      subscriptions with a covering degree
    workflow      processes of activities
    overlay       an overlay to experiment with, without faults
    record        what happened, as a table
    plots         what happened, as pictures
    scenarios     experiments by name
    dryrun        plans for a whole overlay
"""
