"""Images of another build of raybus, each under a tag of its own.

They are built from a copy of a checkout, by its own Dockerfile and the stages below; what both builds have in common comes from the cache.
"""

import shutil
import sys
from pathlib import Path
from typing import Final

import msgspec

from localcluster.images import builder
from localcluster.progress import Progress
from support.servers import builds

from .raybus import COMMANDS, SERVICES

HERE: Final = Path(__file__).parents[2]
PARTS: Final = (
    *("deploy/images", "libs/common", "libs/nats-admin", "services", "pyproject.toml"),
    *("requirements-build.lock", "requirements-services.lock", "uv.lock"),
)
"""Files from which the images of the services are built; an earlier build may lack some."""
PROGRAM: Final = Path("tests/support/servers/other_build.py")
"""Program that starts a service of this checkout with another message form."""
NUMBERED: Final = ("RayCluster", "RayService")
"""Kinds whose form has another number in the other build, besides Pods: each reconciler reads
one."""


class OtherBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A build that replaces this build."""

    name: str
    tag: str
    checkout: Path = HERE
    form: str = ""
    """Form of the build's Pods; empty for the form of its checkout."""
    services: tuple[str, ...] = SERVICES
    """Services that the build has; an early one has no job-reconciler."""

    def image(self, service: str) -> str:
        """Return the name of the build's image of a service: this build's image with another tag."""
        return f"{this_image(service).rpartition(':')[0]}:{self.tag}"

    def stage(self, service: str) -> str:
        """Return the lines of the Dockerfile that make the image from the image of the checkout."""
        lines = [
            f"FROM {service} AS {self.tag}-{service}",
            f'LABEL raybus.image="{self.image(service)}"',
        ]
        if self.form:
            module = COMMANDS[service].removeprefix("-m ")
            command = ["python", "-P", "/opt/raybus/other_build.py", self.form, module, *NUMBERED]
            lines += [
                f"COPY {PROGRAM} /opt/raybus/other_build.py",
                f"ENTRYPOINT {msgspec.json.encode(command).decode()}",
            ]
        return "\n".join(["", "# seconds: 1", *lines, ""])


def this_image(service: str) -> str:
    """Return the name of this build's image of a service."""
    return builder.list_images(HERE)[service]


def all_of_them() -> list[OtherBuild]:
    """Return this build with another major version.

    Also return the build of an earlier commit, if `RAYBUS_EARLIER_CHECKOUT` names one.
    """
    found = [OtherBuild(name="this build with messages of another major", tag="other", form="2.0")]
    if (folder := builds.earlier_checkout()) is not None:
        found.append(
            OtherBuild(name="the build of an earlier commit", tag="earlier", checkout=folder)
        )
    return found


def archives(build: OtherBuild, folder: Path) -> list[Path]:
    """Build what is missing, in an empty folder; return the archives of the build's services."""
    for part in (each for each in PARTS if (build.checkout / each).exists()):
        _copy(build.checkout / part, folder / part)
    if build.form:
        _copy(HERE / PROGRAM, folder / PROGRAM)
    dockerfile = folder / builder.DOCKERFILE
    dockerfile.write_text(dockerfile.read_text() + "".join(map(build.stage, build.services)))
    targets = [f"{build.tag}-{service}" for service in build.services]
    found = builder.ensure(targets, progress=Progress.to_stderr(), checkout=folder)
    sys.stderr.write(f"{build.name}: {', '.join(each.ref for each in found.values())}\n")
    return [each.path for each in found.values()]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
