"""`raybus doctor`: checks an installation of raybus from outside, with the caller's rights."""
