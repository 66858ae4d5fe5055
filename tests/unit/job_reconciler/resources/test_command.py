"""The script that submits a job (spec rayjob §8.1; acceptance 44, 45, 72)."""

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common import errors
from common.api.opaque import Json
from common.api.ray_job import RayJob
from job_reconciler.resources import command, submission
from support.builders.ray_cluster import a_container, a_head, a_template
from support.builders.ray_job import a_cluster_spec, a_ray_job

ADDRESS = "train-abcde-head-svc.ns.svc.cluster.local:8265"
STATUS: Json = {"dashboardURL": ADDRESS, "jobId": "train-fghjk"}
WAIT = (
    'until python -c "import urllib.request; '
    "r=urllib.request.urlopen('http://{health}/api/gcs_healthz', timeout=10); "
    "exit(0 if b'success' in r.read() else 1)\" >/dev/null 2>&1 ; "
    'do echo "Waiting for Ray Dashboard GCS to become healthy at http://{address} ..." ; '
    "sleep 2 ; done ;"
)
OPTIONS = (
    r'--runtime-env-json "{\"test\":\"test\"}" --metadata-json "{\"a\":\"1\",\"b\":\"\\u003c\"}" '
    "--submission-id train-fghjk --entrypoint-num-cpus 1.000000 --entrypoint-num-gpus 0.500000 "
    r'--entrypoint-resources "{\"Custom_1\": 1}"'
)


def _job(entrypoint: str = "python main.py", **spec: Any) -> RayJob:
    return a_ray_job(entrypoint=entrypoint, status=STATUS, **spec)


def _with_options(**spec: Any) -> RayJob:
    return _job(
        runtimeEnvYAML="test: test",
        metadata={"b": "<", "a": "1"},
        entrypointNumCpus=1,
        entrypointNumGpus=0.5,
        entrypointResources='{"Custom_1": 1}',
        **spec,
    )


def _on_port_9000() -> Json:
    ports = [{"name": "other", "containerPort": 1}, {"name": "dashboard", "containerPort": 9000}]
    return a_cluster_spec(
        headGroupSpec=a_head(template=a_template(a_container(image="ray", ports=ports)))
    )


@pytest.mark.acceptance("rayjob", 44)
def test_the_script_of_a_kubernetes_job_has_kuberays_words() -> None:
    assert command.build_for_job(_with_options()) == (
        f"{WAIT.format(health=ADDRESS, address=ADDRESS)} "
        f"if ! ray job status --address http://{ADDRESS} train-fghjk >/dev/null 2>&1 ; then "
        f"ray job submit --address http://{ADDRESS} --no-wait {OPTIONS} -- python main.py ; "
        f"fi ; ray job logs --address http://{ADDRESS} --follow train-fghjk"
    )


@pytest.mark.acceptance("rayjob", 45)
def test_a_sidecar_addresses_its_own_pod() -> None:
    job = _with_options(submissionMode="SidecarMode", rayClusterSpec=_on_port_9000())
    wait = WAIT.format(health="localhost:9000", address="127.0.0.1:9000")
    assert command.build_for_sidecar(job, restarts=False) == (
        f"{wait} ray job submit --address http://127.0.0.1:9000 {OPTIONS} -- python main.py ;"
    )
    assert command.build_for_sidecar(job, restarts=True) == (
        f"{wait} if ! ray job status --address http://127.0.0.1:9000 train-fghjk "
        ">/dev/null 2>&1 ; then "
        f"ray job submit --address http://127.0.0.1:9000 --no-wait {OPTIONS} -- python main.py ; "
        "fi ; ray job logs --address http://127.0.0.1:9000 --follow train-fghjk"
    )


@pytest.mark.acceptance("rayjob", 45)
def test_a_head_without_a_named_port_has_rays_default() -> None:
    script = command.build_for_sidecar(_job(submissionMode="SidecarMode"), restarts=False)
    assert "--address http://127.0.0.1:8265 " in script


def test_an_address_with_a_scheme_is_kept() -> None:
    job = a_ray_job(status={**STATUS, "dashboardURL": "http://elsewhere:1"})
    assert "--address http://elsewhere:1 " in command.build_for_job(job)


@pytest.mark.parametrize("address", ["", "a;b:8265", "a b", "$(id)", "a'b", 'a"b', "`id`"])
def test_a_hostile_address_builds_no_script(address: str) -> None:
    job = a_ray_job(status={**STATUS, "dashboardURL": address})
    if not address:
        assert "--address http:// " in command.build_for_job(job)
        return
    with pytest.raises(errors.InvalidSpec, match=r"status\.dashboardURL"):
        command.build_for_job(job)


def test_an_unreadable_runtime_env_names_its_field() -> None:
    with pytest.raises(errors.InvalidSpec, match=r"spec\.runtimeEnvYAML cannot be read as YAML"):
        command.build_for_job(_job(runtimeEnvYAML="a: [1"))


@pytest.mark.parametrize("text", ["# nothing", " \n"])
def test_a_runtime_env_of_comments_is_null(text: str) -> None:
    assert '--runtime-env-json "null" ' in command.build_for_job(_job(runtimeEnvYAML=text))


@pytest.mark.parametrize(
    "entrypoint",
    [
        "python main.py",
        "  python main.py --lr=1e-3 --name=a,b@c%d:e+f/g  ",
        """echo no quote 'single quote' "double quote" """,
        r"""echo a\ b 'a; b && $HOME' "a; b && (c)" \"""",
        "python main.py \\\n  --epochs 3",
        "",
    ],
)
def test_an_entrypoint_that_bash_only_splits_is_not_quoted(entrypoint: str) -> None:
    assert not command.needs_shell(entrypoint)
    assert f" -- {entrypoint.strip()} ; fi ; " in command.build_for_job(_job(entrypoint))


@pytest.mark.acceptance("rayjob", 72)
@pytest.mark.parametrize(
    ("entrypoint", "words"),
    [
        ("echo a && echo b", "bash -c 'echo a && echo b'"),
        ("cd x\npython main.py", "bash -c 'cd x\npython main.py'"),
        ("python main.py # fast", "bash -c 'python main.py # fast'"),
        ("it's", "bash -c 'source <(base64 -d <<< aXQncw==)'"),
        ("echo $HOME", "bash -c 'source <(base64 -d <<< ZWNobyAkSE9NRQ==)'"),
        ("ls;id", "bash -c 'source <(base64 -d <<< bHM7aWQ=)'"),
    ],
)
def test_other_entrypoints_are_one_argument_of_a_shell(entrypoint: str, words: str) -> None:
    assert command.needs_shell(entrypoint)
    assert f" -- {words} ; fi ; " in command.build_for_job(_job(entrypoint))


class Submitter:
    """Runs scripts in bash with a `ray` that records the arguments of `ray job submit`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = folder / "arguments"
        submit = f'shift 2; printf "%s\\0" "$@" > {self._kept}'
        self._write("ray", f"case $2 in status) exit 1;; submit) {submit};; esac")
        self._write("python", "exit 0")

    def _write(self, name: str, script: str) -> None:
        path = self._folder / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def run(self, job: RayJob) -> list[str]:
        """Return the arguments that `ray job submit` receives."""
        script = command.build_for_job(job).replace("$$", "$")  # as the kubelet does
        done = self._bash(script)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return self._kept.read_text().split("\0")[:-1]

    def run_entrypoint(self, words: list[str], join: Callable[[list[str]], str]) -> str:
        """Return what the driver prints when Ray runs it."""
        return self._bash(join(words), program="/bin/sh").stdout

    def run_directly(self, entrypoint: str) -> str:
        """Return the output of the entrypoint in its own shell."""
        return self._bash(entrypoint).stdout

    def _bash(self, script: str, program: str = "/bin/bash") -> "subprocess.CompletedProcess[str]":
        path = f"{self._folder}:/usr/bin:/bin"
        return subprocess.run(
            [program, "-c", script],
            env={"PATH": path, "NAME": "a  b"},
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )


@pytest.fixture
def submitter(tmp_path: Path) -> Submitter:
    return Submitter(tmp_path)


@pytest.mark.acceptance("rayjob", 72)
@pytest.mark.parametrize("join", [subprocess.list2cmdline, shlex.join], ids=["old Ray", "new Ray"])
@pytest.mark.parametrize(
    "entrypoint",
    [
        "echo a && echo b",
        "echo a; echo b",
        "echo a\necho b\n",
        "echo a\n\n# note\necho 'b  c'",
        'echo "$NAME" \'$NAME\' $NAME "\\$NAME" \'a"b\'',
        "for i in 1 2; do echo $i; done | sort -r",
        r"printf '%s\n' 'a\b' && echo \"",
        "echo `echo x` $(echo y)",
        "echo unfinished 'quote",
        "echo {a,b} ~ *.none",
        "ls;echo",
        'echo "ü $((1+1))" # comment',
        "echo a \\",
    ],
)
def test_the_ray_job_runs_the_whole_entrypoint(
    entrypoint: str, join: Callable[[list[str]], str], submitter: Submitter
) -> None:
    arguments = submitter.run(_job(entrypoint))
    words = arguments[arguments.index("--") + 1 :]
    assert submitter.run_entrypoint(words, join) == submitter.run_directly(entrypoint)


HOSTILE = [
    "$(touch broken)",
    "`touch broken`",
    "'; touch broken; '",
    '"; touch broken; "',
    "$HOME $$ $(NAME) $",
    "\n; touch broken\n",
    "\\",
    "\u200b\U000e0001 $",
    "ü & < >",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_values_reach_ray_as_they_are(text: str, submitter: Submitter, tmp_path: Path) -> None:
    arguments = submitter.run(
        a_ray_job(
            runtimeEnvYAML=f"env_vars: {{A: {submission.encode(text)}}}",
            metadata={"text": text},
            entrypointResources=text,
            status={**STATUS, "jobId": f"id{text}"},
        )
    )
    options = dict(zip(arguments[3:11:2], arguments[4:11:2], strict=True))
    assert options == {
        "--runtime-env-json": submission.encode({"env_vars": {"A": text}}),
        "--metadata-json": submission.encode({"text": text}),
        "--submission-id": f"id{text}",
        "--entrypoint-resources": text,
    }
    assert not (tmp_path / "broken").exists()


@pytest.mark.parametrize("text", ["a" * 2**20, "'" * 2**20, "$(" * 2**19, '"\\' * 2**19])
def test_a_huge_entrypoint_takes_no_longer_than_its_length(text: str) -> None:
    begin = time.process_time()
    command.build_for_job(_job(text))
    assert time.process_time() - begin < 2
