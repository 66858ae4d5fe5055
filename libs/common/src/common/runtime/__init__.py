"""What runs a reconcile: queue, back-off, workers, clock, shutdown."""
