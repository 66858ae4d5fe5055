"""The scanner finds a planted secret in every spelling and place, and reports no resource of a user
as a leak.
"""

import base64
import zlib

import msgspec
import pytest

from common.bus import messages
from common.bus.nats import StoredMessage
from support.leaks import scan, sought
from support.leaks.check import found
from support.leaks.scan import Leak, Message
from support.leaks.sought import Container, Meta, Pod, PodSpec, Secret, Sought, Variable
from support.tables import cases

CANARY = b'canary-5f1d+9c"3/e'
FROM_SECRET = Sought(value=CANARY, origin="Secret ns/s, key k")
FROM_POD = Sought(value=CANARY, origin="Pod ns/p, environment variable V", is_environment=True)
TEXT = CANARY.decode()


def _published(
    payload: bytes, *, kind: str = "Pod", headers: dict[str, str] | None = None, subject: str = "s"
) -> Message:
    return Message(
        "RAY_STATE", StoredMessage(subject, 7, {messages.KIND: kind, **(headers or {})}, payload)
    )


@cases(
    "message",
    {
        "in clear": _published(b"x" + CANARY + b"y"),
        "in JSON, with escapes": _published(msgspec.json.encode({"a": TEXT})),
        "in JSON in JSON": _published(
            msgspec.json.encode({"a": msgspec.json.encode({"b": TEXT}).decode()})
        ),
        "in a URL": _published(b"a=canary-5f1d%2B9c%223%2Fe&b"),
        "in base64": _published(base64.b64encode(CANARY)),
        "in base64 behind five bytes": _published(base64.b64encode(b"user:" + CANARY)),
        "in base64 behind two bytes": _published(base64.b64encode(b"u:" + CANARY + b"!")),
        "in base64 behind one byte": _published(base64.b64encode(b"u" + CANARY)),
        "compressed": _published(
            zlib.compress(b" " * 99 + CANARY), headers={messages.ENCODING: "zlib"}
        ),
        "in a header": _published(b"", headers={"Raybus-Gone": TEXT}),
        "in the subject": _published(b"", subject=f"ray.state.{TEXT}"),
        "in the state of a RayCluster, where a Secret's value is none either": _published(
            CANARY, kind="RayCluster"
        ),
    },
)
def test_a_value_is_found(message: Message) -> None:
    assert scan.leaks([message], [FROM_SECRET]) == [
        Leak(f"RAY_STATE {message.stored.subject} (7)", FROM_SECRET.origin)
    ]


@pytest.mark.parametrize("kind", ["RayCluster", "RayService"])
def test_the_environment_that_a_user_wrote_into_a_resource_may_stand_in_its_state(
    kind: str,
) -> None:
    body = {"spec": {"containers": [{"env": [{"name": "V", "value": TEXT}]}]}}
    assert scan.leaks([_published(msgspec.json.encode(body), kind=kind)], [FROM_POD]) == []


@pytest.mark.parametrize("kind", ["Pod", "Job", "Service", ""])
def test_it_may_stand_nowhere_else(kind: str) -> None:
    leaks = scan.leaks([_published(msgspec.json.encode({"note": TEXT}), kind=kind)], [FROM_POD])
    assert [leak.what for leak in leaks] == [FROM_POD.origin]


def test_an_environment_of_any_value_is_a_leak() -> None:
    body = {
        "spec": {
            "containers": [
                {"name": "ray", "envFrom": [{"prefix": "X"}]},
                {"env": [{"name": "V", "value": "x"}]},
            ]
        }
    }
    assert [leak.what for leak in scan.leaks([_published(msgspec.json.encode(body))], [])] == [
        "the field envFrom"
    ]
    labelled = {"metadata": {"labels": {"env": "production"}}}
    assert scan.leaks([_published(msgspec.json.encode(labelled))], []) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("SU" + "A2" * 28, "an NKEY seed"),
        ("-----BEGIN EC PRIVATE KEY-----", "a private key"),
        ("Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl", "a JSON web token"),
    ],
)
def test_a_value_with_the_form_of_a_secret_is_a_leak_everywhere(text: str, name: str) -> None:
    message = _published(msgspec.json.encode({"note": text}), kind="RayCluster")
    assert [leak.what for leak in scan.leaks([message], [])] == [name]


def test_a_leak_never_contains_the_value() -> None:
    (leak,) = scan.leaks([_published(CANARY)], [FROM_SECRET])
    assert TEXT not in str(leak)


def test_what_is_sought_in_secrets_and_pods() -> None:
    meta = Meta("x", "ns")
    secret = Secret(
        meta,
        {"long": base64.b64encode(CANARY).decode(), "short": base64.b64encode(b"1234567").decode()},
    )
    ours = [
        Variable("RAY_ADDRESS", "a-long-address"),
        Variable("FQ_RAY_IP", "head.ns.svc"),
        Variable("FROM_SECRET"),
    ]
    users = Container([Variable("PASSWORD", TEXT), Variable("DEBUG", "true"), *ours])
    pod = Pod(
        meta, PodSpec(containers=[users], init_containers=[Container([Variable("OTHER", TEXT)])])
    )
    assert sought.of_secrets([secret]) == [Sought(value=CANARY, origin="Secret ns/x, key long")]
    assert [each.origin for each in sought.of_pods([pod])] == [
        "Pod ns/x, environment variable OTHER",
        "Pod ns/x, environment variable PASSWORD",
    ]


def test_a_check_of_nothing_fails() -> None:
    with pytest.raises(AssertionError, match="no secret whatever"):
        found([], [_published(b"")])
    with pytest.raises(AssertionError, match="no message whatever"):
        found([FROM_SECRET], [])
