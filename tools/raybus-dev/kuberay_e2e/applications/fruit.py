"""A fruit market: answers `["MANGO", 2]` with the price of two mangoes."""

from ray import serve
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request

CPU = {"num_cpus": 0.1}


class FruitStand:
    """Sells one fruit at the price of its `user_config`."""

    def reconfigure(self, config: dict[str, int]) -> None:
        """Set the price from the `user_config` of the Serve config."""
        self._price = config["price"]

    def compute_total(self, amount: int) -> int:
        return self._price * amount


def build_stand(name: str) -> serve.Deployment:
    """Return the deployment of one stand, at a price of 1 until the Serve config names another."""
    return serve.deployment(FruitStand, name=name, user_config={"price": 1}, ray_actor_options=CPU)


@serve.deployment(ray_actor_options=CPU)
class FruitMarket:
    """Passes each order on to the stand that sells the fruit."""

    def __init__(self, **stands: DeploymentHandle) -> None:
        self._stands = stands

    async def __call__(self, request: Request) -> int:
        fruit, amount = await request.json()
        return await self._stands[fruit.lower()].compute_total.remote(amount)


deployment_graph = FruitMarket.bind(
    mango=build_stand("MangoStand").bind(),
    orange=build_stand("OrangeStand").bind(),
    pear=build_stand("PearStand").bind(),
)
