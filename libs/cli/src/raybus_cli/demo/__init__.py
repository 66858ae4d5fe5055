"""The demo: a real upgrade under load on a real cluster, watched live, with a receipt at the end."""
