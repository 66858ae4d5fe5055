"""`plan`: the effect of a changed manifest on the running service, by the services' own decisions."""
