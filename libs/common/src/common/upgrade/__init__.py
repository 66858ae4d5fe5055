"""Upgrades of RayServices: policy, gates, weighted route, traffic record, receipt and events."""
