"""Logs, metrics and health, the same in every service."""
