"""The caller's way to the cluster: their kubeconfig, their rights, and what a refusal means for them."""
