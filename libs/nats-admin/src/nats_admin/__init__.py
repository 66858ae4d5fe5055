"""Administration of NATS: streams, users and permissions, keys and certificates, the configuration of a server. No service imports it."""
