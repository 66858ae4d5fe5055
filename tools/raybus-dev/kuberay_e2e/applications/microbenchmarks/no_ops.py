"""An application that does nothing, as fast as Serve does it."""

from ray import serve
from ray.serve import Application


@serve.deployment
class NoOp:
    """Answers each request with nothing."""

    async def __call__(self, request: object) -> str:
        return ""


def app_builder(args: dict[str, int]) -> Application:
    """Return the application. Forwards from deployment to deployment are not supported."""
    if args["num_forwards"]:
        raise ValueError("num_forwards must be 0")
    return NoOp.bind()
