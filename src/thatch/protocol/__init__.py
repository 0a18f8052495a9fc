"""The protocol: what brokers, clients and drivers say to one another.

In reading order:

    messages  messages, records and effects
    codec     messages and records as bytes
    wire      frames between nodes and clients
"""
