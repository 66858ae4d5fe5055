"""An application that answers at once that it is well."""

from ray import serve


@serve.deployment
class SimpleDeployment:
    """Answers each request with its status."""

    async def __call__(self, request: object) -> dict[str, str]:
        return {"status": "ok"}


app = SimpleDeployment.bind()
