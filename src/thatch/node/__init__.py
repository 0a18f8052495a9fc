"""The node: one broker in the real world, with its server and its store.

In reading order:

    config        the settings of a node
    logs          what a node logs, as lines or as JSON
    outgoing      waiting for what may be written, and for what is on disk
    lock          one program a store, whatever path leads to it
    ballast       room on the disk for what must go on when there is no other
    damage        is this file a store, and whole?
    schema        the tables of the store, and the statements that read and write them
    migrations    a store of an older version becomes one of the present version
    asking        what an operator asks a broker, and how it answers
    backup        a copy of a store while its broker runs, and the way back
    store         what is kept on disk, written by one thread
    host          what the parts of a node ask of the node
    connection    what comes over a connection, from a client or from a neighbour
    dialling      dialling a neighbour: the socket, and why there is none
    cloudevents   events as CloudEvents over HTTP
    metrics       what Prometheus reads
    http          the HTTP interface: publish, read, inspect
    moving        a durable subscription moves to another broker
    admin         the operator's door
    server        a node: its ports and its clock
    run           a node as a process
"""
