"""The protocol: what brokers, clients and drivers say to one another.

In reading order:

    ids       the grammar of names and ids
    address   the address of a port of a broker, as people write it
    versions  versions of the protocol, capabilities, and limits that neighbours must respect
    records   what a broker has its driver keep, and under which keys
    messages  messages and effects
    digest    what one side holds, hashed into buckets, so that the other can send what differs
    codec     messages as bytes
    wire      frames between nodes and clients
    kinds     every kind of message: since when, who sends it, and what a peer gets that does not know it
"""
