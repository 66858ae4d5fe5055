"""What deploy/monitoring and docs/metrics.md are written from; `make golden` writes them."""
