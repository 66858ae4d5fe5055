"""The objects that this service owns, and its changes to users' routes; no I/O."""
