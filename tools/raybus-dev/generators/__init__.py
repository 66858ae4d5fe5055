"""Generators of what this repository keeps in step with its code.

They write the Helm chart, the dashboards and alerts, and the reference pages (`make golden`).
"""
