"""`raybus dashboard`: a live web page with RayServices, their upgrades and the outcomes."""
