"""`python -m chaos`: the whole of raybus on a real API server and a real NATS, while its parts and what it stands on fail."""
