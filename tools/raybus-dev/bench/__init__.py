"""Benchmarks on real servers. Their figures are ratios of two runs on the same machine."""
