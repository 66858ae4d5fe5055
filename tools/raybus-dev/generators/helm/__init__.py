"""Generates the Helm chart's templates from the overlay `production`.

`chart` defines the effect of each chart value, and `markers` writes template expressions.
"""
