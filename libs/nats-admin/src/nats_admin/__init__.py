"""Administration of NATS: streams, users, keys, certificates and server configuration.

No service imports this package.
"""
