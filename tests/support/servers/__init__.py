"""Real servers that tests start as processes."""
