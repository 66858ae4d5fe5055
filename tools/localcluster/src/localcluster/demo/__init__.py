"""`raybus demo`: a real upgrade under load on a real cluster, shown live.

A report at the end counts the failed requests.
"""
