"""`raybus-dev chaos`: all of raybus on a real API server and NATS, while its parts fail."""
