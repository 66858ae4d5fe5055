"""The share of traffic that autoscaled replicas can carry, measured by those that carry it now."""

from typing import Any

import msgspec
import pytest

from common.api.opaque import Json
from common.ray import autoscaled_capacity
from common.ray.autoscaled_capacity import Replicas
from common.ray.serve_status import ServeDetails
from support.tables import cases

WHOLE_50: Replicas = {"app/Model": 50}


def running(
    count: int,
    *,
    least: int | None = 1,
    most: int = 100,
    capacity: float = 100,
    name: str = "Model",
) -> ServeDetails:
    """Return an answer of Serve; with `least` None the number of replicas is fixed."""
    config: Json = (
        {}
        if least is None
        else {"autoscaling_config": {"min_replicas": least, "max_replicas": most}}
    )
    replicas: list[Any] = [{"state": "RUNNING"}] * count
    deployment = {"target_num_replicas": count, "replicas": replicas, "deployment_config": config}
    app = {"status": "RUNNING", "deployments": {name: deployment}}
    return msgspec.convert(
        {"applications": {"app": app}, "target_capacity": capacity}, ServeDetails
    )


@cases(
    ("source", "weight", "growing", "whole", "expected"),
    {
        "one replica of fifty, and one that may follow": (
            running(50),
            100,
            running(1),
            WHOLE_50,
            4,
        ),
        "twenty, and a quarter of them": (running(50), 100, running(20), WHOLE_50, 50),
        "as many": (running(50), 100, running(50), WHOLE_50, 100),
        "the source scales down late": (running(50), 50, running(25), WHOLE_50, 62),
        "the load has shrunk": (running(10), 50, running(10), WHOLE_50, 62),
        "nobody saw what carried all": (running(25), 50, running(5), None, 13),
        "two replicas for what one and a half would carry": (running(2), 7, running(19), None, 100),
        "what both have is enough": (running(5), 25, running(15), None, 93),
        "one is enough": (running(1), 100, running(1), None, 100),
        "no load asked for the fifty": (running(50, least=50), 100, running(1), WHOLE_50, 100),
        "the fifty are fixed": (running(50, least=None), 100, running(1), WHOLE_50, 100),
        "those of the new one are": (running(50), 100, running(5, least=None), WHOLE_50, 100),
        "it has all that it may have": (running(50), 100, running(10, most=10), WHOLE_50, 100),
        "all that it may have at its capacity": (
            running(50),
            100,
            running(2, most=10, capacity=20),
            WHOLE_50,
            100,
        ),
        "the source has no such deployment": (
            running(50),
            100,
            running(1, name="Other"),
            WHOLE_50,
            100,
        ),
        "the source gets nothing": (running(50), 0, running(1), WHOLE_50, 100),
    },
)
def test_a_cluster_gets_no_more_than_its_replicas_carry(
    source: ServeDetails, weight: int, growing: ServeDetails, whole: Replicas | None, expected: int
) -> None:
    limit, why = autoscaled_capacity.limit_weight(source, weight, growing, whole)
    assert limit == expected
    assert bool(why) == (limit < 100)


@pytest.mark.parametrize(
    ("taking", "whole", "expected"),
    [
        pytest.param(running(1), WHOLE_50, 4, id="one replica of fifty, and one that may follow"),
        pytest.param(running(50), WHOLE_50, 100, id="as many"),
        pytest.param(running(1, least=None), WHOLE_50, 100, id="its replicas are fixed"),
        pytest.param(running(1), None, 100, id="nobody saw what carried all"),
    ],
)
def test_growth_beside_a_silent_cluster_follows_replicas(
    taking: ServeDetails, whole: Replicas | None, expected: int
) -> None:
    limit, why = autoscaled_capacity.limit_by_needs(taking, whole)
    assert limit == expected
    assert bool(why) == (limit < 100)


def test_the_deployment_that_lacks_replicas_is_named_once_its_cluster_has_what_they_carry() -> None:
    assert (
        autoscaled_capacity.find_lacking_deployment(running(50), 100, running(1), 4) == "app/Model"
    )
    assert autoscaled_capacity.find_lacking_deployment(running(50), 100, running(1), 3) is None
    assert (
        autoscaled_capacity.find_lacking_deployment(running(50, least=None), 100, running(1), 4)
        is None
    )


@pytest.mark.parametrize("most", [10**400, -(10**400)])
def test_a_number_of_replicas_that_nobody_has_is_none(most: int) -> None:
    assert autoscaled_capacity.limit_weight(running(50), 100, running(1, most=most), WHOLE_50) == (
        100,
        "",
    )


def two(small: int, large: int) -> ServeDetails:
    """Return an application with two autoscaled deployments."""
    held = [running(small, name="Small"), running(large, name="Large")]
    deployments = {
        name: each for one in held for name, each in one.applications["app"].deployments.items()
    }
    app = msgspec.structs.replace(held[0].applications["app"], deployments=deployments)
    return msgspec.structs.replace(held[0], applications={"app": app})


def test_of_several_deployments_the_least_ready_capacity_counts() -> None:
    limit, why = autoscaled_capacity.limit_weight(two(10, 50), 100, two(10, 1), None)
    assert (limit, "app/Large" in why) == (4, True)
    assert (
        autoscaled_capacity.find_lacking_deployment(two(10, 50), 100, two(9, 1), 4) == "app/Large"
    )
