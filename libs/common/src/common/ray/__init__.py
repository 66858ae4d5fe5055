"""Ray's own interfaces: the Serve REST API, metrics, and what their answers mean."""
