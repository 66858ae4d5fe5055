"""The part of Serve's messages about applications that a status has room for."""

import msgspec
import pytest

from common.api.meta import ObjectMeta, clipped
from common.api.ray_service import AppStatus, RayService, ServeDeploymentStatus
from common.ray.serve_status import Application, Deployment
from service_reconciler.status import status_size


def apps(count: int, message: str) -> dict[str, Application]:
    deployments = {"Model": Deployment(status="UNHEALTHY", message=message)}
    failed = Application(status="DEPLOY_FAILED", message=message, deployments=deployments)
    return {f"app-{number:05}": failed for number in range(count)} | {
        "aaa": Application(status="RUNNING")
    }


def size(found: status_size.Applications | None) -> int:
    return len(msgspec.json.encode(found))


@pytest.mark.parametrize(
    ("count", "length"), [(1, 100), (3, 20_000), (150, 20_000), (500, 300), (5000, 20)]
)
def test_what_is_returned_fits_and_names_those_that_fail(count: int, length: int) -> None:
    found = status_size.shorten_to_fit(apps(count, "x" * length), 64 * 1024)
    assert found is not None
    assert size(found) <= 64 * 1024
    assert found["app-00000"].status == "DEPLOY_FAILED"


def test_what_fits_is_left_as_it_is() -> None:
    deployments = {"Model": ServeDeploymentStatus(status="UNHEALTHY", message="no weights")}
    failed = AppStatus(status="DEPLOY_FAILED", message="no weights", deployments=deployments)
    whole = {"app-00000": failed, "app-00001": failed, "aaa": AppStatus(status="RUNNING")}
    assert status_size.shorten_to_fit(apps(2, "no weights"), 64 * 1024) == whole


def test_applications_that_run_are_left_out_first() -> None:
    found = status_size.shorten_to_fit(apps(5000, "no weights"), 64 * 1024)
    assert found is not None
    assert "aaa" not in found


@pytest.mark.parametrize("limit", [0, 1, 79, 80, 81, 128, 2048])
def test_a_clipped_text_is_never_longer_than_its_limit(limit: int) -> None:
    text = clipped("a" * 5000 + "z", limit)
    assert len(text) <= limit
    assert limit <= 80 or text.endswith("z")


def test_a_text_that_fits_is_not_clipped() -> None:
    assert clipped("a" * 80, 80) == "a" * 80


@pytest.mark.parametrize("used", [0, 500_000, 1_000_000, 1_500_000])
def test_a_large_spec_leaves_less_for_the_status(used: int) -> None:
    service = RayService(metadata=ObjectMeta(), spec_json=msgspec.Raw(b'"' + b"x" * used + b'"'))
    left = status_size.MAX_OBJECT_SIZE - status_size.RESERVED_SIZE - used
    assert (
        status_size.MIN_STATUS_SIZE // 2
        <= status_size.get_max_size(service)
        <= max(status_size.MIN_STATUS_SIZE, left) // 2
    )
