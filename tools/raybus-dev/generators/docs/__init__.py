"""Generators of the pages in docs/reference: names come from the code, meanings from this package.

`make golden` writes the pages.
"""
