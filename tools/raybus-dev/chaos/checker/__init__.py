"""Judges a run by what was observed. Pure functions from evidence to violations.

The order of events comes from etcd's versions, not from clocks.
"""
