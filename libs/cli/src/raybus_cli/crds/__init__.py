"""`raybus crds`: the CustomResourceDefinitions of this version."""
