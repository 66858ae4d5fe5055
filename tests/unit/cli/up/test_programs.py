"""The command line and environment of each child."""

from pathlib import Path

import msgspec

from common.feature_gates import FeatureGate
from common.settings import Settings
from raybus_cli.up import programs
from raybus_cli.up.programs import MODULES, BusAccess, ServiceProcess, UpOptions
from support.manifests import ROOT

OPTIONS = UpOptions(
    kubeconfig=Path("/k"),
    server="https://x",
    gates={"AllAlpha": True},
    watch_namespaces="a,b",
    log_dir=Path("/logs"),
)
BUS = BusAccess(url="tls://127.0.0.1:4222", credentials=Path("/creds"))
INHERITED = {
    "PATH": "/bin",
    "RAYBUS_HTTP_PORT": "1",
    "RAYBUS_WORKERS": "9",
    "ENABLE_ZERO_DOWNTIME": "false",
}


def a_replica(service: str = "watcher", *, port: int = 1) -> ServiceProcess:
    return ServiceProcess(service=service, name=service, identity=f"me-{service}", port=port)


def test_a_service_gets_its_own_user_port_and_the_path_through_the_api_server() -> None:
    program = programs.build_service(
        a_replica(port=1234), BUS, environment=INHERITED, options=OPTIONS
    )
    files = {"RAYBUS_KUBECONFIG": "/k", "RAYBUS_NATS_SEED_FILE": "/creds/users/watcher.seed"}
    files["RAYBUS_NATS_CA_FILE"] = "/creds/ca.crt"
    assert {name: program.environment[name] for name in files} == files
    settings = Settings.from_environment(
        "watcher", {k: v for k, v in program.environment.items() if k not in files}
    )
    assert (settings.http_port, settings.workers, settings.use_kubernetes_proxy) == (1234, 9, True)
    assert settings.identity == "me-watcher"
    assert settings.feature_gates == frozenset(FeatureGate)
    assert settings.watch_namespaces == ("a", "b")
    assert program.log == Path("/logs/watcher.log")


def test_the_switches_of_kuberay_reach_the_services() -> None:
    program = programs.build_service(a_replica(), BUS, environment=INHERITED, options=OPTIONS)
    assert program.environment["ENABLE_ZERO_DOWNTIME"] == "false"


def test_each_service_runs_its_own_module() -> None:
    made = [
        programs.build_service(a_replica(name), BUS, environment={}, options=OPTIONS).argv[1:]
        for name in MODULES
    ]
    assert made == [["-m", module] for module in MODULES.values()]


def test_several_replicas_of_a_service_differ_in_name_identity_and_port() -> None:
    options = msgspec.structs.replace(OPTIONS, replicas={"traffic-manager": 2})
    found = programs.list_replicas(options, [1, 2, 3, 4, 5, 6], run="up-7")
    assert [(each.name, each.identity, each.port) for each in found] == [
        ("watcher", "up-7-watcher", 1),
        ("cluster-reconciler", "up-7-cluster-reconciler", 2),
        ("service-reconciler", "up-7-service-reconciler", 3),
        ("traffic-manager-1", "up-7-traffic-manager-1", 4),
        ("traffic-manager-2", "up-7-traffic-manager-2", 5),
        ("job-reconciler", "up-7-job-reconciler", 6),
    ]


def test_a_server_without_users_gets_no_seed() -> None:
    bus = BusAccess(url="nats://x:1")
    program = programs.build_service(a_replica(), bus, environment={}, options=OPTIONS)
    assert not {"RAYBUS_NATS_SEED_FILE", "RAYBUS_NATS_CA_FILE"} & program.environment.keys()


def test_children_have_the_memory_settings_of_the_images_unless_the_user_has_others() -> None:
    lines = (ROOT / "deploy" / "images" / "Dockerfile").read_text().splitlines()
    images = dict(
        each.split("=", 1)
        for line in lines
        if line.startswith("ENV ")
        for each in line.split()[1:]
        if "=" in each
    )
    assert images.items() >= (programs.NATS_GO | programs.MALLOC).items()
    mine = {"MALLOC_ARENA_MAX": "8"}
    program = programs.build_service(a_replica(), BUS, environment=mine, options=OPTIONS)
    assert {name: program.environment[name] for name in programs.MALLOC} == programs.MALLOC | mine
