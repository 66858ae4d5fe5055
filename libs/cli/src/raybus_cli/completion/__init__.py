"""Shell completion: names of objects, and scripts for shells and kubectl."""
