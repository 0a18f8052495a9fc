"""Many brokers in one process under one seed: the real broker, driven by a discrete-event network."""
