"""The instructions of a Dockerfile that the engine-less builder supports, and its refusals."""

import re
from pathlib import Path

import pytest

from localcluster.errors import ClusterError
from localcluster.images import dockerfile
from localcluster.images.dockerfile import Copy, MakeFolder, Run
from support.tables import cases

_OWN = Path(__file__).parents[4] / "deploy/images/Dockerfile"


def test_a_stage_starts_with_its_bases_environment_but_not_its_name() -> None:
    base, child = dockerfile.parse(
        "ARG VERSION=2\n"
        "FROM scratch AS base\n"
        "ARG VERSION\n"
        'LABEL raybus.image="example/base:${VERSION}" kept=yes\n'
        "ENV A=1 B=$VERSION\n"
        "FROM base AS child\n"
        "ENV C=${B}x\n"
    )

    assert base.image == "example/base:2"
    assert child.image is None
    assert child.config.labels == {"kept": "yes"}
    assert {key: child.config.env[key] for key in "ABC"} == {"A": "1", "B": "2", "C": "2x"}


def test_steps_are_resolved_against_the_working_folder() -> None:
    _, stage = dockerfile.parse(
        "FROM scratch AS a\n"
        "# seconds: 42\n"
        "FROM scratch AS b\n"
        "WORKDIR /srv\n"
        "USER 7:8\n"
        "RUN one \\\n"
        "  # a comment within\n"
        " && two\n"
        "COPY --from=a /x /y here/\n"
    )

    assert stage.seconds == 42
    path = stage.config.env["PATH"]
    assert stage.steps == (
        MakeFolder(line=4, path="/srv"),
        Run(
            line=6,
            argv=("/bin/sh", "-c", "one && two"),
            env={"PATH": path},
            user="7:8",
            workdir="/srv",
        ),
        Copy(line=9, origin="a", sources=("/x", "/y"), target="/srv/here/"),
    )


STAGE = "FROM scratch AS a\n"


@cases(
    ("text", "expected"),
    {
        "empty": ("", "line 1: there is no FROM"),
        "no stage": ("RUN x", "line 1: RUN stands before the first FROM"),
        "unknown base": ("FROM alpine AS a", "line 1: unknown base 'alpine'"),
        "nameless stage": ("FROM scratch", "line 1: FROM scratch is not supported"),
        "same name twice": (STAGE + "FROM scratch AS a", "line 2: the stage name 'a' is taken"),
        "unknown instruction": (STAGE + "\nVOLUME /x", "line 3: VOLUME is not supported"),
        "flag": (STAGE + "COPY --chown=1 a b", "line 2: COPY --chown is not supported"),
        "wildcard": (STAGE + "COPY *.py b", "line 2: COPY does not know wildcards"),
        "unknown stage": (STAGE + "COPY --from=b x y", "line 2: COPY --from=b: no such stage"),
        "shell form": (
            STAGE + "CMD run me",
            'line 2: CMD is not a JSON list; write CMD ["run", "me"]',
        ),
        "unset variable": (STAGE + "ENV A=$B", "line 2: $B is not set"),
        "argument without a value": (STAGE + "ARG B", "line 2: ARG B has no value"),
        "open continuation": (STAGE + "RUN x \\", "line 2: the last instruction ends"),
        "open quotation": (STAGE + "ENV A='b", 'line 2: "A=\'b": No closing quotation'),
    },
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, expected: str) -> None:
    with pytest.raises(ClusterError) as refusal:
        dockerfile.parse(text)

    assert f"Dockerfile {expected}" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_our_own_dockerfile_pins_every_base_to_a_digest() -> None:
    stages = dockerfile.parse(_OWN.read_text())

    bases = {stage.base for stage in stages if dockerfile.is_base_image(stage.base)} - {"scratch"}
    assert len(bases) == 1
    assert re.fullmatch(r"debian:bookworm-slim@sha256:[0-9a-f]{64}", bases.pop())


def test_compiled_files_never_name_the_time_of_their_source() -> None:
    commands = [line for line in _OWN.read_text().splitlines() if "compileall" in line]

    assert commands
    assert [
        line
        for line in commands
        if " -f " not in line or "--invalidation-mode unchecked-hash" not in line
    ] == []


def test_our_own_dockerfile_names_every_image() -> None:
    stages = dockerfile.parse(_OWN.read_text())

    assert {stage.name: stage.image for stage in stages if stage.image} == {
        "pause": "raybus.local/pause:1",
        "ray": "docker.io/rayproject/ray:2.60.0",
        "kuberay-suites": "registry.invalid/raybus/kuberay-suites:dev",
        "envoy": "registry.invalid/raybus/envoy:dev",
        "envoy-gateway": "registry.invalid/raybus/envoy-gateway:dev",
        "redis": "registry.invalid/raybus/redis:dev",
        "nats": "registry.invalid/raybus/nats:dev",
        "watcher": "registry.invalid/raybus/watcher:dev",
        "cluster-reconciler": "registry.invalid/raybus/cluster-reconciler:dev",
        "service-reconciler": "registry.invalid/raybus/service-reconciler:dev",
        "traffic-manager": "registry.invalid/raybus/traffic-manager:dev",
        "job-reconciler": "registry.invalid/raybus/job-reconciler:dev",
        "notifications": "registry.invalid/raybus/notifications:dev",
        "dashboard": "registry.invalid/raybus/dashboard:dev",
    }
    assert all(stage.config.user.split(":")[0] not in {"", "0"} for stage in stages if stage.image)
