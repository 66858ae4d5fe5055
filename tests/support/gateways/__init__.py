"""Released Gateway controllers as processes of this machine, each with its own data plane."""
