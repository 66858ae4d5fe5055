"""Calculates: answers `["MUL", 3]` with three times the factor, and `["ADD", 3]` with a sum."""

from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request

CPU = {"num_cpus": 0.1}


@serve.deployment(user_config={"increment": 1}, ray_actor_options=CPU)
class Adder:
    """Adds the increment of its `user_config`."""

    def reconfigure(self, config: dict[str, int]) -> None:
        self._increment = config["increment"]

    def compute(self, number: int) -> int:
        return number + self._increment


@serve.deployment(user_config={"factor": 1}, ray_actor_options=CPU)
class Multiplier:
    """Multiplies by the factor of its `user_config`."""

    def reconfigure(self, config: dict[str, int]) -> None:
        self._factor = config["factor"]

    def compute(self, number: int) -> int:
        return number * self._factor


@serve.deployment(ray_actor_options=CPU)
class Router:
    """Passes each request on to the operation that it names."""

    def __init__(self, **operations: DeploymentHandle) -> None:
        self._operations = operations

    async def __call__(self, request: Request) -> str:
        operation, number = await request.json()
        result = await self._operations[operation.lower()].compute.remote(number)
        return f"{result} pizzas please!"


serve_dag = Router.bind(add=Adder.bind(), mul=Multiplier.bind())
