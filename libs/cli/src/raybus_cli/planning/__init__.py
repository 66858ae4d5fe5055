"""`plan`: what a changed manifest would do to the running service, by the services' own decisions."""
