"""Generates the Helm chart's templates from the kustomize overlay `production`.

`chart` defines what each chart value changes, and `markers` writes template expressions.
"""
