"""Code that two or more services need, and nothing else."""
