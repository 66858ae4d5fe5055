"""Judges a run by what was seen: pure. Evidence in, violations out; etcd's versions give the order, not clocks."""
