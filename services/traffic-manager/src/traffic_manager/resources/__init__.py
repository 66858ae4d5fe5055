"""The objects that this service owns, one module each; all pure."""
