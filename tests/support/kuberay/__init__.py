"""What KubeRay makes of RayClusters, as its own operator made it on a real API server: `tests/golden/kuberay`.

`settings` has the operator's configuration of each folder, `objects` reads a namespace and makes two of them
comparable, `goldens` reads the files, `placing` stands in for the batch schedulers.
"""
