"""One Kubernetes node built on this machine: namespaces, container runtime, kubelet, DNS, gateway.

Rule: everything of a node lives in one PID, one mount and one network namespace; their first process is `first_process`.
Killing that process makes the kernel end every other one and drop every mount and interface; nothing has to be tracked.
"""
