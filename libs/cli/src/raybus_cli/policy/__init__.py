"""`raybus policy`: checks UpgradePolicies, and tries their gates with the requests that a RayService answers."""
