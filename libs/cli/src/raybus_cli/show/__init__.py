"""`get`, `list` and `status`: how RayServices and RayClusters are doing."""
