"""Judges what was observed in a run.

Pure functions from evidence to violations. The order of events comes from etcd's versions, not from
clocks.
"""
