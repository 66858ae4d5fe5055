"""What KubeRay's own operator made of RayClusters on a real API server: `tests/golden/kuberay`.

`settings` has the operator's configuration of each folder, `objects` reads two namespaces and makes
them comparable, `goldens` reads the files, `placing` stands in for the batch schedulers.
"""
