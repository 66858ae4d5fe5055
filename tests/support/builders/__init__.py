"""Builders for tests."""
