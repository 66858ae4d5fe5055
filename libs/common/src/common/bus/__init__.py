"""The bus: what is said on NATS, on which subjects, and who owns which partition."""
