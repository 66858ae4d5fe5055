"""The plans for the states of a RayJob: pure functions of the observed state."""
