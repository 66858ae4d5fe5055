"""`raybus bundle`: collects what a bug report needs, without secrets."""
