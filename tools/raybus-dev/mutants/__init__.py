"""Mutation tests of the code that makes decisions: for each change, a test must fail."""
