"""Generates the CustomResourceDefinitions from our API types."""
