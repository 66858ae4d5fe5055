"""Hostile tenants beside a victim, on a real API server and a real NATS."""
