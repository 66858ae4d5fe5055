"""Nothing in a bundle contains a secret, and the cause of a bug stays readable."""

import io
import tarfile

import pytest

from common.api.opaque import Json
from raybus_cli.bundling import cli, redact
from support.builders.snapshots import NOW, a_config, a_service

SECRET = "hunter2"


def _service() -> Json:
    config = a_config()
    container: Json = config["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]
    container["env"] = [
        {"name": "HF_TOKEN", "value": SECRET},
        {"name": "PLAIN", "value": SECRET},
        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
    ]
    container["command"] = ["serve", f"--api-key={SECRET}", "--port=8000", "--token", SECRET]
    config["gcsFaultToleranceOptions"] = {
        "redisAddress": f"redis://user:{SECRET}@redis:6379",
        "redisPassword": {"value": SECRET},
    }
    config["headGroupSpec"]["rayStartParams"] = {"redis-password": SECRET, "num-cpus": "0"}
    serve = f"applications:\n- name: app\n  runtime_env:\n    env_vars: {{MODE: {SECRET}}}\n  args: {{api_key: {SECRET}}}\n"
    applied = {"kubectl.kubernetes.io/last-applied-configuration": SECRET, "team": "a"}
    applied["raybus.io/pause"] = "true"
    return a_service(config=config, serve=serve, annotations=applied)


def test_no_value_of_a_secret_stays() -> None:
    found = redact.redact_object(_service())
    assert SECRET not in str(found)


def test_names_and_structure_stay() -> None:
    found = redact.redact_object(_service())
    container = found["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"][
        "containers"
    ][0]
    assert [each["name"] for each in container["env"]] == ["HF_TOKEN", "PLAIN", "FROM"]
    assert container["env"][2]["valueFrom"]["secretKeyRef"] == {"name": "hf", "key": "token"}
    assert container["command"] == [
        "serve",
        "--api-key=(removed)",
        "--port=8000",
        "--token",
        "(removed)",
    ]
    assert container["image"] == "rayproject/ray:2.52.0"
    assert found["metadata"]["annotations"] == {
        "kubectl.kubernetes.io/last-applied-configuration": "(removed)",
        "raybus.io/pause": "true",
        "team": "(removed)",
    }
    assert "MODE: (removed)" in found["spec"]["serveConfigV2"]
    assert "name: app" in found["spec"]["serveConfigV2"]


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_files_of_secrets_are_names_only(kind: str) -> None:
    found = redact.redact_object(
        {
            "kind": kind,
            "metadata": {"name": "x"},
            "data": {"a": SECRET},
            "stringData": {"b": SECRET},
        }
    )
    assert (found["data"], found["stringData"]) == ({"a": "(removed)"}, {"b": "(removed)"})


def test_a_serve_config_that_cannot_be_read_goes_as_a_whole() -> None:
    found = redact.redact_object(
        {"kind": "RayService", "metadata": {}, "spec": {"serveConfigV2": f"a: [{SECRET}"}}
    )
    assert found["spec"]["serveConfigV2"] == "(removed)"


@pytest.mark.parametrize(
    ("line", "clean"),
    [
        ("start --token abc --port 1", "start --token (removed) --port 1"),
        ("url=nats://me:pw@host:4222", "url=nats://(removed)@host:4222"),
        ("HF_TOKEN=abc python x.py", "HF_TOKEN=(removed) python x.py"),
        ("pod demo-token-x is ready", "pod demo-token-x is ready"),
        ("max_tokens=512 tokenizer: llama", "max_tokens=512 tokenizer: llama"),
        ("all checks passed: 7", "all checks passed: 7"),
        ('{"key": "ns/demo", "level": "info"}', '{"key": "ns/demo", "level": "info"}'),
        (
            "GET http://demo-head-svc.ns.svc:8265/api/serve/applications/ 200",
            "GET http://demo-head-svc.ns.svc:8265/api/serve/applications/ 200",
        ),
        ("image rayproject/ray:2.52.0@sha256:0123", "image rayproject/ray:2.52.0@sha256:0123"),
    ],
)
def test_lines_of_logs_lose_passwords(line: str, clean: str) -> None:
    assert redact.redact_text(line) == clean


def test_an_archive_holds_the_files_in_one_folder_and_repeats() -> None:
    files = {"a/b.yaml": "x: 1\n", "version.txt": "raybus\n"}
    data = cli.build_archive(files, "raybus-bundle-demo", now=NOW)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        assert tar.getnames() == ["raybus-bundle-demo/a/b.yaml", "raybus-bundle-demo/version.txt"]
