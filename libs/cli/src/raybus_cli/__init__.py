"""The raybus command line: what people touch."""
