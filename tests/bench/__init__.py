"""Benchmarks on real servers; figures are ratios of two runs side by side."""
