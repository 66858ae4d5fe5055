"""Generates the pages in docs/reference. Names come from the code, descriptions from this package.

`make golden` writes the pages.
"""
