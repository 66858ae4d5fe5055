"""Changes of the code that makes decisions. For each change, a test must fail."""
