"""Fakes for tests."""
