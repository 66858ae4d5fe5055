"""The init container that holds a worker back until the head's GCS answers.

Behaviour: spec raycluster §11.8; acceptance case 94.
"""

import copy
from typing import Final

from cluster_reconciler.resources import ray_start
from cluster_reconciler.resources.node import Node
from common import pod_json
from common.api.opaque import Body

NAME: Final = "wait-gcs-ready"
RESOURCES: Final = {"cpu": "200m", "memory": "256Mi"}
_FAQ: Final = "https://docs.ray.io/en/master/cluster/kubernetes/troubleshooting.html"


def append(pod: Body, node: Node) -> None:
    """Append the container before anything is added to the Ray container: it shares that one's env and mounts."""
    if node.config.injects_init_container:
        pod_json.ensure_list(pod["spec"], "initContainers").append(build(pod_json.ray_container(pod), node))


def build(ray_container: Body, node: Node) -> Body:
    """Build the container from the Ray container of the template."""
    shared = ("image", "imagePullPolicy", "securityContext", "env", "volumeMounts")
    return {
        "name": NAME,
        **{field: copy.deepcopy(ray_container[field]) for field in shared if ray_container.get(field) is not None},
        "command": ray_start.shell(node.config),
        "args": [_script(node.gcs_address)],
        "resources": {"limits": dict(RESOURCES), "requests": dict(RESOURCES)},
    }


def _script(address: str) -> str:
    """Write the loop: two quiet minutes, since errors are normal while a head starts; then what goes wrong is shown."""
    return f"""\
SECONDS=0
while true; do
  if (( SECONDS <= 120 )); then
    if ray health-check --address {address} > /dev/null 2>&1; then
      echo "GCS is ready."
      break
    fi
    echo "$SECONDS seconds elapsed: Waiting for GCS to be ready."
  else
    if ray health-check --address {address}; then
      echo "GCS is ready. Any error messages above can be safely ignored."
      break
    fi
    echo "$SECONDS seconds elapsed: Still waiting for GCS to be ready. \
For troubleshooting, refer to the FAQ at {_FAQ}."
  fi
  sleep 5
done
"""
