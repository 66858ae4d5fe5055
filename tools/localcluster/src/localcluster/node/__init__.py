"""A Kubernetes node on this machine: namespaces, container runtime, kubelet, DNS, gateway.

All processes of a node live in one PID, one mount and one network namespace. The first process of
the PID namespace is `first_process`. When it is killed, the kernel kills the others and removes
mounts and interfaces, so nothing has to be tracked.
"""
