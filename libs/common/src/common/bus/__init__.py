"""The bus: connection to NATS, credentials, subjects, messages and the state feed."""
