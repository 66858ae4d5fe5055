"""`raybus policy`: checks UpgradePolicies, and evaluates their gates on a running RayService."""
