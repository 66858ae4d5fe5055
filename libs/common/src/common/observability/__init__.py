"""Logs, metrics, traces and health endpoints, the same in every service."""
