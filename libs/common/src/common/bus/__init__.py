"""The bus: messages, subjects, credentials and permissions of NATS, and the partition of each object."""
