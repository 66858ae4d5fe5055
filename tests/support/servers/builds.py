"""Different builds of raybus, as commands that start their services."""

import os
import sys
from pathlib import Path
from typing import Final

import msgspec

_OTHER: Final = Path(__file__).with_name("other_build.py")
PACKAGES: Final = (
    "libs/common/src",
    "libs/nats-admin/src",
    "services/watcher/src",
    "services/cluster-reconciler/src",
    "services/service-reconciler/src",
    "services/traffic-manager/src",
    "services/job-reconciler/src",
)


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """The command that starts a service of one build."""

    name: str
    start: tuple[str, ...] = (sys.executable, "-m")
    """Start of the command; the name of the service's module follows."""
    environment: dict[str, str] = {}


THIS: Final = Build(name="this build")


def of_pod_form(form: str) -> Build:
    """Return this build with another form of Pods."""
    return Build(name=f"build with Pod {form}", start=(sys.executable, "-P", str(_OTHER), form))


def earlier_checkout() -> Path | None:
    """Return the folder `RAYBUS_EARLIER_CHECKOUT`, a checkout of an older commit; None without one."""
    folder = os.environ.get("RAYBUS_EARLIER_CHECKOUT")
    return Path(folder) if folder else None


def earlier() -> Build | None:
    """Return the build of the folder `RAYBUS_EARLIER_CHECKOUT`; None without one."""
    folder = earlier_checkout()
    if folder is None:
        return None
    path = os.pathsep.join(str(folder / each) for each in PACKAGES)
    return Build(name="earlier build", environment={"PYTHONPATH": path})
