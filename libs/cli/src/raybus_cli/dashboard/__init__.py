"""`raybus dashboard`: a page on this machine that shows RayServices, their upgrades and the outcomes, live."""
