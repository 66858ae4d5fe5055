"""Generates deploy/monitoring and docs/metrics.md. `make golden` writes the files."""
