"""What must arrive although nodes and stores fail: numbered streams of events, durable queues, and what two nodes say
to one another about events.

No input, no output, no thread, and no clock but what it is given: `node` drives it with sockets and SQLite, the
simulator with wires and stores of its own. In reading order:

    clock         time that never steps, and how long nodes have run
    journal       what delivery asks of a store
    history       the lives of a store, and what numbers mean
    received      what came from each neighbour, and what it has, by life
    losses        what limits have cost, said in the stream
    stream        events for one receiver, kept until it has them
    attachments   neighbours in the place of one that is lost
    doors         who may come
    driver        drives the broker: effects to whatever each link leads to
    absences      how long neighbours have been away
    admission     what an operator decides about a neighbour
    local_client  clients that live in the node
    queues        durable subscriptions
    outgoing      what waits to be written to a connection, and in which order
    publisher     what a client publishes over one connection
    postponed     events from a neighbour that wait for room on the disk
    neighbour     what two nodes say to one another about events
"""
