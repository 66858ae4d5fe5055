"""The runtime of a reconciler: informer, work queue, workers, backoff, Leases, shutdown."""
