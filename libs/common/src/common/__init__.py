"""What two or more services need, and nothing else."""
