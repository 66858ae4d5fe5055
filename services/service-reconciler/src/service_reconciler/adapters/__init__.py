"""Dumb translators between our ports and the outside."""
