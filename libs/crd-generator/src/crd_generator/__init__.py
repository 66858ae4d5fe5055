"""Generates the CustomResourceDefinitions from raybus's API types."""
