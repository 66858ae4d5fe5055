"""A process of raybus imports only modules that it uses, and changes no other module."""

import subprocess
import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement

SERVICES = [
    "watcher",
    "cluster_reconciler",
    "service_reconciler",
    "traffic_manager",
    "job_reconciler",
]
UNWANTED = {"httpx", "click", "cryptography", "kubernetes_asyncio", "opentelemetry", "aiohttp.web"}


def imported(code: str) -> set[str]:
    report = f"print(*{UNWANTED!r} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


def requirements_of(distribution: str) -> set[str]:
    """Return the distributions that pip installs for a distribution, with their requirements."""
    names, pending = set[str](), [Requirement(distribution)]
    while pending:
        wanted = pending.pop()
        extras = {"", *wanted.extras}
        names.add(wanted.name.lower())
        pending += [
            requirement
            for text in metadata.requires(wanted.name) or ()
            if (requirement := Requirement(text)).name.lower() not in names
            and (
                requirement.marker is None
                or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
            )
        ]
    return names


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_imports_no_second_client_and_no_cryptography(service: str) -> None:
    assert (
        imported(f"import runpy, sys\nrunpy.run_module('{service}', run_name='imported')") == set()
    )


def test_the_stream_keeper_imports_no_cryptography() -> None:
    begin = "import sys, nats_admin.provision"
    assert imported(f"{begin}, common.runtime.process, nats_admin.stream_keeper") == set()


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_requires_no_package_for_terminals(service: str) -> None:
    requirements = requirements_of(f"raybus-{service.replace('_', '-')}")
    assert {"structlog", "msgspec"} <= requirements
    assert requirements & {"rich", "click", "pygments", "typer"} == set()


@pytest.mark.parametrize("service", SERVICES)
def test_an_import_changes_no_other_module(service: str) -> None:
    code = f"""
import gc, os, runpy, ssl, sys
environment, context, tls_object = dict(os.environ), ssl.SSLContext, ssl.SSLContext.sslobject_class
runpy.run_module("{service}", run_name="imported")
assert dict(os.environ) == environment
assert ssl.SSLContext is context and context.sslobject_class is tls_object is ssl.SSLObject
assert gc.isenabled()
assert None not in sys.modules.values()"""
    subprocess.run([sys.executable, "-c", code], check=True)
