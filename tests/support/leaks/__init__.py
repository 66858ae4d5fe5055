"""Searches what NATS carries for secrets.

What counts, in every message of RAY_STATE, RAY_EVENTS and the mirror for external consumers, in payload, headers and subject:

- a value of any Secret of the cluster, in clear or in base64;
- an NKEY seed, a private key, a JSON web token, wherever it comes from;
- the literal value of an environment variable of a pod, and the very field `env`, but for one place: the state of a
  RayCluster or a RayService. These are published whole, since a creator of pods needs the template, and a reader of
  them could read the resource itself. The account of external consumers has no access to them. So a user's secret belongs into a
  Secret with `secretKeyRef`, as in any manifest, and not into `value`.
"""
