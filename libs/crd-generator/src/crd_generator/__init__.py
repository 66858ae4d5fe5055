"""Generates the CustomResourceDefinitions from raybus' API types."""
