"""`raybus policy`: what lint finds and where, what try compares, and what it needs."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from common import errors
from common.api.opaque import Json
from common.kube.resources import POD, RAY_SERVICE, UPGRADE_POLICY
from common.upgrade import policy as upgrade_policy
from common.upgrade.webhook import Answer
from raybus_cli import kubeconfig, main, manifests, session
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.manifests import ManifestDocument
from raybus_cli.planning import policies
from raybus_cli.policy import trial
from support.builders import snapshots
from support.builders.snapshots import BLUE, GREEN, NOW, a_pod, a_side
from support.builders.upgrade_policy import (
    CAREFUL,
    GATE,
    ILLEGAL,
    LEGAL,
    PROMETHEUS,
    WEBHOOK,
    a_policy,
)
from support.fakes.kube import FakeKube
from support.fakes.prometheus import vector
from support.fakes.webhook import FakeServers, reaches, silent
from support.golden import Golden
from support.manifests import ROOT


class Server(FakeKube):
    """An API server with the RayService demo and the policy careful."""

    def __init__(self, *, pending: str = "", answers: dict[str, bytes] | None = None) -> None:
        super().__init__(now=lambda: NOW)
        self.answers = answers or {}
        self.asked: list[str] = []
        judged = a_side(pending) if pending else None
        self.put(RAY_SERVICE, snapshots.a_service(active=a_side(BLUE), pending=judged))
        self.put(UPGRADE_POLICY, a_policy(spec={"gates": [GATE]}, namespace="default"))
        for cluster in (BLUE, GREEN):
            self.put(POD, a_pod(cluster, "head"))

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        self.asked.append(f"{method} {path}")
        answer = next((text for name, text in self.answers.items() if name in path), None)
        if answer is None:
            raise errors.Forbidden("pods/proxy is forbidden")
        return answer

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.chdir(tmp_path)

    def find(*_: Any, **__: Any) -> KubeAccess:
        return KubeAccess(kubeconfig=None, namespace="default")

    monkeypatch.setattr(kubeconfig, "find", find)

    def run(command: str, server: FakeKube | None = None) -> Result:
        async def connect(_: KubeAccess) -> Any:
            return server

        monkeypatch.setattr(session, "connect", connect)
        return CliRunner().invoke(main.build("policy"), ["policy", *command.split()])

    return run


def write(*bodies: Json, name: str = "p.yaml") -> None:
    Path(name).write_text(yaml.safe_dump_all(bodies, sort_keys=False))


def counted(total: int, failed: int) -> bytes:
    line = 'ray_serve_num_http_requests_total{{application="a",route="/",status_code="{}"}} {}\n'
    return (line.format(200, total - failed) + line.format(503, failed)).encode()


# --- lint --------------------------------------------------------------------------------------------------------------


def test_a_legal_policy_is_summed_up(typed: Any) -> None:
    write(
        a_policy(spec={"steps": [{"weight": 5, "hold": "90s"}, {"weight": 100}], "gates": [GATE]})
    )
    done = typed("lint p.yaml")
    assert (done.exit_code, done.stdout) == (
        0,
        "p.yaml: UpgradePolicy careful: steps of 5, 100 %; gates errorRate; at least 1 min 30 s\n"
        "p.yaml: UpgradePolicy careful: errorRate finds 13 % errors in 100 requests, 3.4 % errors in 1,000 requests, with a probability of 90 %\n",
    )


@pytest.mark.parametrize(
    ("spec", "field"), [pytest.param(*row, id=case) for case, row in ILLEGAL.items()]
)
def test_lint_names_the_line_of_the_field(spec: Json, field: str) -> None:
    (document,) = manifests.parse(yaml.safe_dump(a_policy(spec=spec), sort_keys=False), "p.yaml")
    (finding,) = trial.find_violations(document)
    assert finding.field.startswith(field)
    assert finding.line >= 5


@pytest.mark.parametrize("spec", [pytest.param(spec, id=case) for case, spec in LEGAL.items()])
def test_lint_finds_nothing_in_a_legal_policy(spec: Json) -> None:
    (document,) = manifests.parse(yaml.safe_dump(a_policy(spec=spec)), "p.yaml")
    assert trial.find_violations(document) == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"apiVersion": "raybus.io/v1"}, "apiVersion"),
        ({"metadata": {"name": "Care ful"}}, "metadata.name"),
        ({"metadata": {}}, "metadata.name"),
        ({"spec": None}, "spec"),
        ({"spec": []}, "spec"),
    ],
)
def test_lint_checks_the_object_itself(body: Json, field: str, typed: Any) -> None:
    write({**a_policy(), **body})
    done = typed("lint p.yaml")
    assert done.exit_code == 1
    assert f"error: {field}: " in done.stdout


def a_follower(name: str, kind: str = "NewCluster", **annotations: str) -> Json:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {
            "name": name,
            "annotations": {each.replace("_", "/"): text for each, text in annotations.items()},
        },
        "spec": {"upgradeStrategy": {"type": kind}},
    }


def test_lint_names_what_does_not_apply_to_the_services_that_move_all_traffic_at_once(
    typed: Any,
) -> None:
    named = {"raybus.io_upgrade-policy": "careful"}
    write(
        a_policy(
            spec={"steps": [{"weight": 5}, {"weight": 100}], "gates": [WEBHOOK, GATE], "bake": "5m"}
        ),
        a_follower("blue", **named),
        a_follower("green", **named),
        a_follower("canary", "NewClusterWithIncrementalUpgrade", **named),
        a_follower("other", **{"raybus.io_upgrade-policy": "another"}),
        a_follower("none"),
    )
    done = typed("lint p.yaml")
    why = "does not apply to RayService blue, green: all traffic moves at once"
    assert done.exit_code == 0, "it is no error"
    assert [each.partition(": ")[2] for each in done.stdout.splitlines()[:-2]] == [
        f"advice: spec.steps: {why}",
        f"advice: spec.gates[1]: {why}; no request reaches the new cluster before; add warmUp or preview.service",
    ]


def test_lint_takes_the_default_policy_for_services_that_name_none(typed: Any) -> None:
    write(
        a_policy(
            spec={"mirror": {"percent": 5, "duration": "1m"}},
            annotations={"raybus.io/default": "true"},
        ),
        a_follower("none"),
        a_follower("other", **{"raybus.io_upgrade-policy": "another"}),
    )
    assert (
        "advice: spec.mirror: does not apply to RayService none: all" in typed("lint p.yaml").stdout
    )


def test_lint_wants_a_policy(typed: Any) -> None:
    write({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
    done = typed("lint p.yaml")
    assert (done.exit_code, done.stderr) == (2, "error: there is no UpgradePolicy in p.yaml\n")


# --- try ---------------------------------------------------------------------------------------------------------------


def test_without_an_upgrade_the_cluster_is_compared_with_itself(typed: Any) -> None:
    server = Server(answers={BLUE: counted(500, 2)})
    done = typed("try careful --service demo", server)
    assert (done.exit_code, done.stdout) == (
        0,
        f"UpgradePolicy careful compares RayCluster {BLUE} with itself: there is no upgrade\n"
        "  Pass: errorRate: 2 of 500 requests failed (0.4%), at most 1% allowed\n",
    )
    assert server.asked == [
        f"GET /api/v1/namespaces/default/pods/{BLUE}-head-aaaaa:8080/proxy/metrics"
    ]


def test_during_an_upgrade_the_new_cluster_is_judged(typed: Any) -> None:
    server = Server(pending=GREEN, answers={BLUE: counted(500, 2), GREEN: counted(100, 50)})
    done = typed("try careful --service rayservice/demo", server)
    assert (done.exit_code, done.stdout.splitlines()) == (
        1,
        [
            f"UpgradePolicy careful compares RayCluster {GREEN} with {BLUE}",
            "  Fail: errorRate: 50 of 100 requests failed (50%), at most 1% allowed",
        ],
    )


def test_a_file_is_tried_before_it_is_applied(typed: Any) -> None:
    write(a_policy("new", {"gates": [{**GATE, "max": "0%"}]}))
    done = typed("try p.yaml --service demo", Server(answers={BLUE: counted(500, 2)}))
    assert done.exit_code == 1
    assert "UpgradePolicy new compares" in done.stdout


def test_a_policy_without_gates_fails_nothing(typed: Any) -> None:
    write(a_policy("bare", {"steps": [{"weight": 100}]}))
    done = typed("try p.yaml --service demo", Server(answers={BLUE: counted(5, 5)}))
    assert (done.exit_code, done.stdout.splitlines()[1]) == (0, "  no gates")


@pytest.mark.parametrize(
    ("command", "server", "error"),
    [
        (
            "try careful --service demo",
            Server(),
            f"no pod of RayCluster {BLUE} reports its requests ({BLUE}-head-aaaaa: pods/proxy is forbidden)",
        ),
        (
            "try careful --service demo",
            Server(answers={BLUE: b"<html>"}),
            f"no pod of RayCluster {BLUE} reports its requests ({BLUE}-head-aaaaa: port 8080 has no metrics of Ray that can be read)",
        ),
        (
            "try two.yaml --service demo",
            Server(),
            "two.yaml has 2 UpgradePolicies; name a file with one",
        ),
        (
            "try bad.yaml --service demo",
            Server(),
            'bad.yaml: spec.bake: "soon" is not a duration such as 90s or 1h30m, at most 168h0m0s; '
            "'raybus policy lint bad.yaml' lists the lines",
        ),
    ],
)
def test_what_is_missing_is_named(command: str, server: FakeKube, error: str, typed: Any) -> None:
    write(a_policy(), a_policy("b"), name="two.yaml")
    write(a_policy(spec={"bake": "soon"}), name="bad.yaml")
    done = typed(command, server)
    assert (done.exit_code, done.stderr) == (
        1 if error.startswith("no pod") else 2,
        f"error: {error}\n",
    )


def test_an_unknown_policy_is_named(typed: Any) -> None:
    done = typed(
        "try other --service demo",
        Server(answers={BLUE: b'{"items": []}', "upgradepolicies": b'{"items": []}'}),
    )
    assert done.exit_code == 1
    assert "other" in done.stderr


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (vector("0.95"), "Pass: prometheus: 0.95, at least 0.9 allowed"),
        (
            vector("0.5"),
            "Inconclusive: prometheus: 0.5, at least 0.9 allowed, 1 of the 3 times that fail the gate",
        ),
        (
            vector(),
            "Inconclusive: prometheus: prometheus.monitoring:9090 answered no value: no series matches the query yet",
        ),
        (
            None,
            "Inconclusive: prometheus: prometheus.monitoring:9090 does not answer within 10 s; that is from this machine, raybus asks from its pods",
        ),
    ],
)
def test_a_query_is_put_once_from_this_machine_to_the_server_of_the_policy_alone(
    answer: Answer | None, line: str, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = FakeServers(answer)
    if answer is None:
        servers.answer = silent
    monkeypatch.setattr(trial, "reached_within", reaches(servers))
    write(a_policy("new", {"gates": [PROMETHEUS]}))
    done = typed(
        "try p.yaml --service demo",
        Server(pending=GREEN, answers={BLUE: counted(5, 5), GREEN: counted(5, 5)}),
    )
    assert (done.exit_code, done.stdout.splitlines()[1].strip()) == (0, line)
    (sent,) = servers.asked
    assert f"accuracy%7Bcluster%3D%22{GREEN}%22%7D" in sent.url
    assert servers.refusal("http://prometheus.monitoring:9090", "default") is None
    for other in (
        "http://prometheus.monitoring:9091",
        "https://prometheus.monitoring:9090",
        "http://a.monitoring:9090",
    ):
        assert servers.refusal(other, "default") is not None


def test_the_output_on_the_page_of_the_command_line(
    typed: Any, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "reached_within", reaches(FakeServers(vector("0.93"))))
    write(a_policy(), a_policy("hasty", {"steps": [{"weight": 50}]}), name="careful.yaml")
    golden.check("cli/policy-lint.txt", typed("lint careful.yaml").stdout)
    server = Server(pending=GREEN, answers={BLUE: counted(9000, 20), GREEN: counted(1000, 4)})
    server.put(UPGRADE_POLICY, a_policy(namespace="default"))
    golden.check("cli/policy-try.txt", typed("try careful --service demo", server).stdout)


def the_example_of(page: str) -> tuple[str, ManifestDocument]:
    """Return the path of a how-to page, and the first UpgradePolicy on it."""
    text = (ROOT / f"docs/how-to/{page}.md").read_text()
    (document,) = manifests.parse(text.partition("```yaml\n")[2].partition("```")[0], "policy.yaml")
    return text, document


@pytest.mark.parametrize("page", ["canary", "blue-green", "preview", "mirror", "language-models"])
def test_the_example_of_a_how_to_page_is_legal_and_has_the_summary_that_it_shows(page: str) -> None:
    text, document = the_example_of(page)
    assert trial.find_violations(document) == []
    name = document.name
    assert (
        f"{name}.yaml: UpgradePolicy {name}: {policies.summarize_policy(trial.parse_policy(document))}\n"
        in text
    )


def test_the_canary_of_the_how_to_page_is_the_one_of_the_tests() -> None:
    _, document = the_example_of("canary")
    assert (
        upgrade_policy.read("careful", document.body["spec"]).steps
        == upgrade_policy.read("careful", CAREFUL).steps
    )
