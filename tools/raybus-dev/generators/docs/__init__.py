"""Generators of the pages in docs/reference, which `make golden` runs.

They take names from the code; the texts about the names are in this package.
"""
