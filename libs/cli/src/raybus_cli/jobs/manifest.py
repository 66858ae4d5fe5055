"""The RayJob that `raybus submit` creates: built from options, or read from a manifest."""

import shlex
from collections.abc import Sequence
from typing import Final

import msgspec

from common import errors
from common.api import ray_job
from common.api.opaque import Body, Json
from common.feature_gates import BETA
from common.kube.resources import RAY_JOB
from common.validation import ray_job as rules
from raybus_cli.manifests import ManifestDocument

DEFAULT_IMAGE: Final = "rayproject/ray:2.60.0"
WORKER_GROUP: Final = "workers"
GPU: Final = "nvidia.com/gpu"


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options that describe the cluster of a job."""

    image: str = DEFAULT_IMAGE
    workers: int = 1
    cpus: str = "2"
    """CPUs of each pod, as a Kubernetes quantity."""
    memory: str = "4Gi"
    """Memory of each pod, as a Kubernetes quantity."""
    gpus: int = 0
    """GPUs of each worker; of the head if there are no workers."""


def format_entrypoint(words: Sequence[str]) -> str:
    """Return the arguments after `--` as one shell command.

    A single argument is a whole command, such as `'python a.py && python b.py'`. Several arguments
    are quoted, so that the job gets them as they were typed.
    """
    return words[0] if len(words) == 1 else shlex.join(words)


def build(name: str, entrypoint: str, cluster: ClusterOptions, runtime_env: str = "") -> Body:
    """Build the RayJob for the options of `raybus submit`.

    Its cluster is deleted when the job ends.
    """
    spec: Json = {
        "entrypoint": entrypoint,
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": _build_cluster(cluster),
    }
    if runtime_env:
        spec["runtimeEnvYAML"] = runtime_env
    return {
        "apiVersion": RAY_JOB.api_version,
        "kind": RAY_JOB.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _build_cluster(options: ClusterOptions) -> Json:
    head_gpus = 0 if options.workers else options.gpus
    head = {"rayStartParams": {}, "template": _build_template("ray-head", options, head_gpus)}
    if not options.workers:
        return {"headGroupSpec": head}
    group = {
        "groupName": WORKER_GROUP,
        "replicas": options.workers,
        "minReplicas": options.workers,
        "maxReplicas": options.workers,
        "rayStartParams": {},
        "template": _build_template("ray-worker", options, options.gpus),
    }
    return {"headGroupSpec": head, "workerGroupSpecs": [group]}


def _build_template(container: str, options: ClusterOptions, gpus: int) -> Json:
    amounts = {"cpu": options.cpus, "memory": options.memory}
    if gpus:
        amounts[GPU] = str(gpus)
    resources = {"requests": amounts, "limits": amounts}
    return {
        "spec": {
            "containers": [{"name": container, "image": options.image, "resources": resources}]
        }
    }


def adopt(documents: Sequence[ManifestDocument], name: str | None, entrypoint: str) -> Body:
    """Return the RayJob of a manifest, with its name or entrypoint replaced if a new one is given.

    Raises `InvalidSpec` unless the manifest has exactly one object, a RayJob.
    """
    if len(documents) != 1 or documents[0].kind != RAY_JOB.kind:
        kinds = ", ".join(document.kind or "no kind" for document in documents) or "nothing"
        raise errors.InvalidSpec(
            f"the manifest has to contain one RayJob; it contains {kinds}; use 'kubectl apply' "
            "for other objects"
        )
    body = documents[0].body
    meta = body.get("metadata")
    metadata: Json = {**meta} if isinstance(meta, dict) else {}
    if name is not None:
        metadata |= {"name": name}
    body = {**body, "metadata": metadata}
    spec = body.get("spec")
    if entrypoint and isinstance(spec, dict):
        body["spec"] = {**spec, "entrypoint": entrypoint}
    return body


def check(body: Body) -> None:
    """Raise `InvalidSpec` for a RayJob that raybus would not run."""
    try:
        job = ray_job.decode(body)
    except msgspec.ValidationError as problem:
        raise errors.InvalidSpec(f"this is no RayJob: {problem}") from problem
    violation = rules.metadata(job.metadata) or rules.spec(job, BETA)
    if violation is not None:
        raise errors.InvalidSpec(violation)
