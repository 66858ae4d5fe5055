"""The API types that we read, and how Go writes them."""
