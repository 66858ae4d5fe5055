"""The Kubernetes and Ray API types that raybus reads, and how Go serialises them."""
