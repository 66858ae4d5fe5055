"""A Kubernetes node built on this machine: namespaces, container runtime, kubelet, DNS, gateway.

All processes of a node live in one PID, one mount and one network namespace, whose first process is
`first_process`. When that process is killed, the kernel kills the others and removes mounts and
interfaces, so nothing has to be tracked.
"""
