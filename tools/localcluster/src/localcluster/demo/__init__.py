"""`raybus demo`: a real upgrade under load on a real cluster, with a live view.

A report at the end counts the failed requests.
"""
