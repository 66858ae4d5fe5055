"""Generators of the files that must follow the code: `make golden` runs them.

They write the Helm chart, the dashboards and alerts, and the reference pages.
"""
