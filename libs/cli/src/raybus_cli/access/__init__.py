"""Access to the cluster: the caller's kubeconfig and rights, and the errors of a refusal."""
