"""One broker in the real world: its server, its store, and the client that talks to it."""
