"""Ray's own interfaces: the Serve REST API and what its answers mean."""
