"""200 secrets in the places where users put them: a bundle has none of them."""

import itertools
import json
import random
import string
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import yaml

from common import labels
from common.api.opaque import Json
from raybus_cli.bundling import redact
from support.builders.snapshots import a_config, a_service

_LETTERS: Final = random.Random(6)
_KINDS: Final = ("", "-", "_", ".", "+", "=")


def _secrets() -> Iterator[str]:
    """Yield secrets without a known form: a word, a sign, digits."""
    for sign in itertools.cycle(_KINDS):
        word = "".join(_LETTERS.choices(string.ascii_lowercase, k=7))
        yield f"{word}{sign}{_LETTERS.randrange(10**5, 10**6)}"


TEXTS: Final[tuple[str, ...]] = (
    "start --token {} --port 1",
    "start --redis-password={} --head",
    "start --redis-password '{} {}' --head",
    "password={}",
    "db_password = {} user=x",
    "PGPASSWORD={} psql",
    "passwd: {}",
    '{{"level": "info", "password": "{}", "msg": "x"}}',
    '{{"api_key":"{}","apiKey":"{}"}}',
    '{{\\"token\\": \\"{}\\", \\"a\\": 1}}',
    "{{'token': '{}', 'user': 'x'}}",
    '{{"tokens": ["{}", "{}"], "a": "b"}}',
    '{{"tokens": {{"alice": "{}", "{}": {{"b": "{}"}}}}, "a": "b"}}',
    "token: {}",
    "HF_TOKEN={} OPENAI_API_KEY={} serve run app:app",
    '{{"db": {{"password":"{}","passphrase":"{}"}}}}',
    "secret={}, credential={}",
    'token: "{}" # of alice',
    "\tpassword:\t{}",
    "access_token={}&refresh_token={}",
    "auth={} user=x",
    "--api-key '{}'",
    "tokens: [{}, {}]",
    "credentials: {{user: {}, name: {}}}",
    "tokens:\n  - {}\n  - {}\nname: x",
    "secrets:\n- {}\n- {}\nname: x",
    "password: |\n  {}\n  {}\nname: x",
    'time=1 "tokens": [\n  "{}",\n  "{}"\n]\nname: x',
    "Authorization: Bearer {}",
    "authorization: Basic {}",
    "Proxy-Authorization: Digest username={}, response={}",
    "Cookie: session={}; csrf={}",
    "Set-Cookie: sid={}; Path=/",
    "sending Bearer {} to x",
    "bearer {} expired",
    "[(b'authorization', b'Bearer {}')]",
    "('x-api-key', '{}')",
    "X-Api-Key: {}",
    "curl -H 'X-Custom: {}' http://demo.svc/",
    "curl -u alice:{} http://demo.svc/",
    "docker run -e MODE={} image",
    "docker run --env MODE={} image",
    "clone https://{}@github.com/org/repo.git",
    "clone https://user:{}@github.com/org/repo.git",
    "pip install --extra-index-url https://user:{}@index.example/simple",
    "redis://:{}@redis:6379/0",
    "nats://me:{}/{}@host:4222",
    "root:{}@tcp(127.0.0.1:3306)/db",
    "POST https://hooks.slack.com/services/T0/B0/{} answered 500",
    "POST https://example.com/{} answered 500",
    "GET https://s3.example.com/a.zip?X-Amz-Signature={}&X-Amz-Date=1",
    "GET http://demo-head-svc.ns.svc.cluster.local:8265/x?access={}",
    "GET http://demo.ns.svc/#{}",
    'ray job submit --runtime-env-json \'{{"env_vars": {{"MODE": "{}"}}}}\' -- x',
    'ray job submit --runtime-env-json={{"env_vars":{{"MODE":"{}"}}}} -- x',
    'runtime_env={{"env_vars": {{"A": "{}", "B": "{}"}}, "pip": []}}',
    "secret_key={}",
    "aws_secret_access_key = {}",
    "client_secret: {}",
    "passphrase: '{}'",
    "pwd={} db=x",
    "connection_string={}",
    "private_key: {}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n{}\n-----END RSA PRIVATE KEY-----\nname: x",
    'key: "-----BEGIN PRIVATE KEY-----\\n{}\\n-----END PRIVATE KEY-----"',
    "hf_{} is not valid",
    "sk-{} is not valid",
    "eyJhbGciOiJI.eyJzdWIiOiIx.{} is not valid",
)


def _container(spec: Json) -> Json:
    return spec["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]


def _annotate(name: str) -> Callable[[Json, str], None]:
    def put(service: Json, secret: str) -> None:
        service["metadata"].setdefault("annotations", {})[name] = secret

    return put


def _in_container(name: str, build: Callable[[str], Any]) -> Callable[[Json, str], None]:
    def put(service: Json, secret: str) -> None:
        _container(service["spec"])[name] = build(secret)

    return put


def _in_spec(name: str, build: Callable[[str], Any]) -> Callable[[Json, str], None]:
    def put(service: Json, secret: str) -> None:
        service["spec"][name] = build(secret)

    return put


def _in_serve(build: Callable[[str], Any]) -> Callable[[Json, str], None]:
    return _in_spec(
        "serveConfigV2",
        lambda secret: yaml.safe_dump({"applications": [{"name": "app", **build(secret)}]}),
    )


def _record(secret: str) -> str:
    gate = {"webhook": {"url": f"https://hooks.example/{secret}", "headers": {"X-A": secret}}}
    return json.dumps({"policy": {"gates": [gate]}, "name": "slow"})


PLACES: Final[tuple[Callable[[Json, str], None], ...]] = (
    _annotate("kubectl.kubernetes.io/last-applied-configuration"),
    _annotate("kapp.k14s.io/original"),
    _annotate("team/owner"),
    lambda service, secret: _annotate(labels.UPGRADE_POLICY_RECORD)(service, _record(secret)),
    lambda service, secret: _annotate(labels.UPGRADE_RECEIPT)(service, f'{{"token": "{secret}'),
    lambda service, secret: (
        service["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["template"]
        .setdefault("metadata", {})
        .update(annotations={"x": secret})
    ),
    _in_container("env", lambda secret: [{"name": "MODE", "value": secret}]),
    _in_container("env", lambda secret: [{"name": "RAY_ADDRESS", "value": secret}]),
    _in_container("command", lambda secret: ["serve", "--api-key", secret]),
    _in_container("command", lambda secret: ["bash", "-c", f"export A_TOKEN={secret}\nserve run"]),
    _in_container("args", lambda secret: ["run", "-e", f"MODE={secret}"]),
    _in_container("args", lambda secret: ["--runtime-env-json", json.dumps({"a": secret})]),
    _in_container(
        "args", lambda secret: [f"--runtime-env-json={json.dumps({'env_vars': {'A': secret}})}"]
    ),
    _in_container(
        "livenessProbe",
        lambda secret: {"httpGet": {"path": "/", "httpHeaders": [{"name": "X", "value": secret}]}},
    ),
    _in_container("readinessProbe", lambda secret: {"httpGet": {"path": f"/?token={secret}"}}),
    _in_spec(
        "rules",
        lambda secret: [
            {
                "filters": [
                    {"requestHeaderModifier": {"set": [{"name": "X-Any", "value": secret}]}},
                    {"responseHeaderModifier": {"add": [{"name": "Y-Any", "value": secret}]}},
                ],
                "matches": [
                    {
                        "headers": [{"name": "X-Canary", "value": secret}],
                        "queryParams": [{"name": "q", "value": secret}],
                    }
                ],
            }
        ],
    ),
    _in_spec("tokens", lambda secret: [secret, {"name": secret}, [secret]]),
    _in_spec("tokens", lambda secret: {"alice": {"bob": secret}, secret: "carol"}),
    _in_spec("redisPassword", lambda secret: {"value": secret}),
    _in_spec("redisPassword", lambda secret: {"value": secret, "valueFrom": {"secretKeyRef": {}}}),
    _in_spec("webhook", lambda secret: {"url": f"http://a.ns.svc/{secret}"}),
    _in_serve(lambda secret: {"runtime_env": {"env_vars": {"MODE": secret}}}),
    _in_serve(lambda secret: {"runtime_env": {"working_dir": f"https://{secret}@host/a.zip"}}),
    _in_serve(
        lambda secret: {"runtime_env": {"container": {"run_options": ["-e", f"A={secret}"]}}}
    ),
    _in_serve(lambda secret: {"args": {"api_key": secret, "keys": {"openai_key": secret}}}),
    _in_serve(lambda secret: {"user_config": {"headers": {"X-Any": secret}}}),
    lambda service, secret: service.update(status={"message": f"no https://{secret}@host/a.zip"}),
    lambda service, secret: service.update(data={"serve_config": f"a: [{secret}"}),
)


def _planted() -> list[tuple[str, Callable[[], str], list[str]]]:
    """Return the texts that a bundle would write, and the secrets in them."""
    words, plans = _secrets(), list[tuple[str, Callable[[], str], list[str]]]()
    for form in TEXTS:
        secrets = [next(words) for _ in range(form.count("{}"))]
        lines = f"before\n{form.format(*secrets)}\nafter\n"
        plans.append((form, lambda lines=lines: redact.redact_text(lines), secrets))
        secrets = [next(words) for _ in range(form.count("{}"))]
        message = {"kind": "Event", "message": f"It failed: {form.format(*secrets)}"}
        plans.append(
            (f"message {form}", lambda body=message: str(redact.redact_object(body)), secrets)
        )
    for number, place in enumerate(PLACES):
        secret = next(words)
        service = a_service(config=a_config())
        place(service, secret)
        plans.append(
            (
                f"place {number}",
                lambda body=service: yaml.safe_dump(redact.redact_object(body)),
                [secret],
            )
        )
    return plans


PLANTED: Final = _planted()


def test_there_are_200_planted_secrets() -> None:
    assert sum(len(secrets) for _, _, secrets in PLANTED) >= 200


@pytest.mark.parametrize(
    ("write", "secrets"), [each[1:] for each in PLANTED], ids=[each[0] for each in PLANTED]
)
def test_no_planted_secret_is_found(write: Callable[[], str], secrets: list[str]) -> None:
    written = write()
    assert [each for each in secrets if each in written] == []


@pytest.mark.parametrize("form", TEXTS)
def test_the_lines_around_a_secret_stay(form: str) -> None:
    kept = redact.redact_text(f"before\n{form.format(*['hunter2'] * form.count('{}'))}\nafter\n")
    assert kept.startswith("before\n")
    assert kept.endswith("after\n")
