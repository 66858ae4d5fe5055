"""Measures a victim's workload beside hostile tenants, on a real API server and a real NATS."""
