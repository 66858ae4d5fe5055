"""Build the shell script of the submitter: wait for Ray, submit the job, follow its log.

The words of the script are KubeRay's, byte for byte (spec rayjob §8.1), unless bash would read a
value as more than one argument. Two kinds of values differ:

- An option whose value has `$`, a backquote or an unprintable character is quoted so that bash
  leaves it alone.
- An entrypoint that bash would not pass on as it is written (`a && b`, several lines, `$HOME`)
  becomes the argument of `bash -c`, so that it runs as a whole in the Ray job. In KubeRay, a part
  of it runs in the submitter.
"""

import shlex
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

import re2

from common import errors, pod_json
from common.api.ray_job import RayJob
from common.ray import ports
from job_reconciler.resources import submission

_PLAIN: Final = re2.compile(
    r"""(?s)(?:[^;&|<>()$`#*?\[\]{}~\\'"\r\n]|\\.|'[^']*'|"(?:[^"\\$`]|\\.)*")*"""
)
"""Entrypoints that bash only splits into arguments, without any expansion or control operator."""
_PLAIN_ADDRESS: Final = re2.compile(r"[A-Za-z0-9.:/_\[\]-]+")
_SURVIVES_QUOTING: Final = re2.compile(r"[^\"\\$`]* [^\"\\$`]*")
"""Texts with a blank that mean the same in single and in double quotes of a shell.

The blank is required, because older versions of Ray do not quote arguments without a blank.
"""
_HEALTH_CHECK: Final = (
    "import urllib.request; r=urllib.request.urlopen('{}', timeout=10); "
    "exit(0 if b'success' in r.read() else 1)"
)
_HEALTH_PATH: Final = "api/gcs_healthz"


def build_for_job(job: RayJob) -> str:
    """Return the script of the submitter Job, which submits the job unless Ray knows it already.

    Raises `InvalidSpec` if `status.dashboardURL` is not an address.
    """
    address = job.status.dashboard_url
    if not address.startswith("http://"):
        address = f"http://{address}"
    if _PLAIN_ADDRESS.fullmatch(address) is None:
        raise errors.InvalidSpec(f"status.dashboardURL is not an address: {address[:253]!r}")
    return _build(job, address, f"{address}/{_HEALTH_PATH}", is_repeatable=True)


def build_for_sidecar(job: RayJob, *, restarts: bool) -> str:
    """Return the script of the submitter container in the head pod.

    If the kubelet `restarts` the container, the script does not submit the job again.
    """
    container = pod_json.ray_container(
        pod_json.body(ports.head_group(job.raw_cluster_spec), "template")
    )
    declared = pod_json.named(container, "ports", "dashboard") or {}
    port = int(declared.get("containerPort", ports.DASHBOARD))
    return _build(
        job,
        f"http://127.0.0.1:{port}",
        f"http://localhost:{port}/{_HEALTH_PATH}",
        is_repeatable=restarts,
    )


def needs_shell(entrypoint: str) -> bool:
    """Return whether the Ray job runs the entrypoint through `bash -c`.

    An Event then tells the user, because the entrypoint looks different in Ray's dashboard.
    """
    return _PLAIN.fullmatch(entrypoint.strip()) is None


def _build(job: RayJob, address: str, health: str, *, is_repeatable: bool) -> str:
    job_id = _quote_literally(job.status.job_id)
    words = [
        f'until python -c "{_HEALTH_CHECK.format(health)}" >/dev/null 2>&1 ; do',
        f'echo "Waiting for Ray Dashboard GCS to become healthy at {address} ..." ; sleep 2 ; done',
        ";",
    ]
    if is_repeatable:
        words.append(f"if ! ray job status --address {address} {job_id} >/dev/null 2>&1 ; then")
    words.append(f"ray job submit --address {address}")
    if is_repeatable:
        words.append("--no-wait")
    words += [
        *_list_options(job, job_id),
        "--",
        _encode_entrypoint(job.spec.entrypoint.strip()),
        ";",
    ]
    if is_repeatable:
        words.append(f"fi ; ray job logs --address {address} --follow {job_id}")
    return " ".join(words)


def _list_options(job: RayJob, job_id: str) -> Iterator[str]:
    spec = job.spec
    if spec.runtime_env:
        runtime_env = submission.encode(submission.load_runtime_env(job))
        yield f"--runtime-env-json {_quote(runtime_env)}"
    if spec.metadata:
        yield f"--metadata-json {_quote(submission.encode(spec.metadata))}"
    if job.status.job_id:
        yield f"--submission-id {job_id}"
    if spec.entrypoint_num_cpus > 0:
        yield f"--entrypoint-num-cpus {spec.entrypoint_num_cpus:.6f}"
    if spec.entrypoint_num_gpus > 0:
        yield f"--entrypoint-num-gpus {spec.entrypoint_num_gpus:.6f}"
    if spec.entrypoint_resources:
        yield f"--entrypoint-resources {_quote(spec.entrypoint_resources)}"


def _quote(text: str) -> str:
    """Quote the value of an option: as Go does if bash reads that correctly, else literally."""
    if text.isprintable() and "$" not in text and "`" not in text:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return _quote_literally(text)


def _quote_literally(text: str) -> str:
    """Quote a text so that neither bash nor the kubelet changes it.

    The kubelet replaces `$(NAME)` and `$$` in the arguments of containers.
    """
    return shlex.quote(text).replace("$", "$$")


def _encode_entrypoint(entrypoint: str) -> str:
    """Return the arguments of `ray job submit` that make the Ray job run an entrypoint.

    `ray job submit` joins its arguments for the shell of the Ray job. Older versions of Ray put
    them in double quotes, in which that shell still expands variables; newer versions use single
    quotes. A script that these quotes could change is therefore passed in base64.
    """
    if not needs_shell(entrypoint):
        return entrypoint
    if _SURVIVES_QUOTING.fullmatch(entrypoint) is None:
        encoded = b64encode(entrypoint.encode()).decode()
        entrypoint = f"source <(base64 -d <<< {encoded})"
    return f"bash -c {shlex.quote(entrypoint)}"
