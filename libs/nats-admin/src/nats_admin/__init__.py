"""Administration of NATS: streams, users, keys, certificates, configuration of a server.

No service imports this package.
"""
