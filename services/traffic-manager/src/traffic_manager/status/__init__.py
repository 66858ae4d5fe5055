"""The traffic record, the gate results and the observed health of the clusters."""
