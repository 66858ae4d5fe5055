"""Modules that run inside Ray pods; this service only distributes their source."""
