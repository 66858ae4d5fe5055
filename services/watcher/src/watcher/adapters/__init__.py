"""Adapters for NATS and for the Lease at the API server."""
