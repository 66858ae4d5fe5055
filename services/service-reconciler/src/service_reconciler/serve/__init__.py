"""How the Serve config reaches a cluster, and when what it deployed counts as serving."""
