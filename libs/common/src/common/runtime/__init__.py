"""The runtime of a reconciler: queue, backoff, workers, clock, shutdown."""
