"""Benchmarks on real servers. Their goals compare two runs on the same machine."""
