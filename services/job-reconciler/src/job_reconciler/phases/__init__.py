"""The plans for the states of a RayJob, each a pure function of the observation."""
