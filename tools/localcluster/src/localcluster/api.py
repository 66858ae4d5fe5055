"""A small Kubernetes API client for setting up clusters: readiness, server-side apply, waiting.

It works without kubectl. It finds the path of a kind by API discovery, so any manifest can be
applied.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import msgspec
import yaml
from typing_extensions import override

from localcluster.errors import ClusterError
from localcluster.kubeconfig import Access

Document = dict[str, Any]
"""A Kubernetes object as decoded JSON."""

FIELD_MANAGER = "raybus-localcluster"

_POLL_SECONDS = 0.05


class _Transport(httpx.AsyncHTTPTransport):
    """An HTTP transport that reports an SSL error during a request as `httpx.ReadError`.

    httpx does not convert the error itself.
    """

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await super().handle_async_request(request)
        except ssl.SSLError as error:
            raise httpx.ReadError(str(error), request=request) from error


class ApiClient:
    """A client of one API server, with the credentials of one user."""

    def __init__(self, access: Access) -> None:
        context = ssl.create_default_context(cadata=access.ca.decode())
        self._http = httpx.AsyncClient(
            base_url=access.server,
            headers={"authorization": f"Bearer {access.token}"},
            transport=_Transport(verify=context, trust_env=False),
            timeout=httpx.Timeout(30, connect=2),
            trust_env=False,
        )
        self._resources: dict[str, dict[str, tuple[str, bool]]] = {}

    async def __aenter__(self) -> "ApiClient":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def get(self, path: str) -> Document | None:
        """Read an object or a list at an API path.

        None if the request fails or the server does not answer.
        """
        try:
            response = await self._http.get(path)
        except httpx.TransportError:
            return None
        return response.json() if response.is_success else None

    async def is_ready(self) -> bool:
        """Return whether the API server answers `/readyz` with success."""
        try:
            response = await self._http.get("/readyz")
        except httpx.TransportError:
            return False
        return response.is_success

    async def wait_for(
        self,
        what: str,
        path: str,
        holds: Callable[[Document], bool],
        *,
        timeout: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> Document:
        """Poll the object at `path` until `holds` is true for it, and return it.

        `meanwhile` is called after each failed check; an error that it raises ends the wait. Raises
        `ClusterError` after `timeout` seconds. The error message contains `what`, a description of
        the awaited state.
        """
        deadline = time.monotonic() + timeout
        while True:
            document = await self.get(path)
            if document is not None and holds(document):
                return document
            if meanwhile is not None:
                meanwhile()
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"{what} did not happen within {timeout:.0f} s; see the cluster's logs"
                )
            await asyncio.sleep(_POLL_SECONDS)

    async def apply(self, document: Document, *, timeout: float = 20) -> Document:
        """Apply an object by server-side apply, and return it as the server stored it.

        Any failure is retried, because the object's kind or namespace may not exist yet. Raises
        `ClusterError` if the object is still not applied after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                response = await self._send(document)
            except httpx.TransportError as error:
                complaint = str(error) or type(error).__name__
            else:
                if response.is_success:
                    return response.json()
                complaint = _describe_error(response)
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"cannot apply {document['kind']} {document['metadata']['name']}: {complaint}"
                )
            await asyncio.sleep(0.1)

    async def create(self, path: str, document: Document) -> Document:
        """Create an object by POST, such as a TokenRequest; raise `ClusterError` on failure."""
        response = await self._http.post(path, json=document)
        if not response.is_success:
            raise ClusterError(
                f"cannot create {document['kind']} at {path}: {_describe_error(response)}"
            )
        return response.json()

    async def apply_definitions(
        self, definitions: Sequence[Document], *, timeout: float = 60
    ) -> None:
        """Apply CustomResourceDefinitions concurrently, and wait until the API server serves them.

        Raises `ClusterError` after `timeout` seconds.
        """
        async with asyncio.TaskGroup() as group:
            for definition in definitions:
                group.create_task(self._define(definition, timeout=timeout))

    async def _define(self, definition: Document, *, timeout: float) -> None:
        await self.apply(definition, timeout=timeout)
        spec = definition["spec"]
        plural = spec["names"]["plural"]

        def is_served(listing: Document) -> bool:
            return any(entry["name"] == plural for entry in listing["resources"])

        async with asyncio.TaskGroup() as group:
            for version in spec["versions"]:
                if version["served"]:
                    # Discovery is small, whereas a definition can have half a megabyte.
                    path = f"/apis/{spec['group']}/{version['name']}"
                    group.create_task(
                        self.wait_for(
                            f"serving {plural} at {path}", path, is_served, timeout=timeout
                        )
                    )

    async def _send(self, document: Document) -> httpx.Response:
        path = await self._find_path(document)
        return await self._http.patch(
            path,
            params={"fieldManager": FIELD_MANAGER, "force": "true"},
            content=msgspec.json.encode(document),  # JSON is also YAML
            headers={"content-type": "application/apply-patch+yaml"},
        )

    async def _find_path(self, document: Document) -> str:
        version: str = document["apiVersion"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural, namespaced = await self._find_resource(base, document["kind"])
        metadata = document["metadata"]
        middle = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{base}{middle}/{plural}/{metadata['name']}"

    async def _find_resource(self, base: str, kind: str) -> tuple[str, bool]:
        if kind not in self._resources.get(base, {}):
            listing = await self.get(base)
            if listing is None:
                raise httpx.TransportError(f"the API does not serve {base.split('/', 2)[-1]}")
            self._resources[base] = {
                entry["kind"]: (entry["name"], entry["namespaced"])
                for entry in listing["resources"]
                if "/" not in entry["name"]
            }
        try:
            return self._resources[base][kind]
        except KeyError:
            raise httpx.TransportError(
                f"the API does not serve {kind} in {base.split('/', 2)[-1]}"
            ) from None


def read_manifests(folder: Path, *, kind: str | None = None) -> list[Document]:
    """Read the objects in the YAML files of a folder, in the order of file names.

    With `kind`, return only objects of this kind. Lines that start with `{{` (Helm conditions) are
    skipped.
    """
    documents: list[Document] = []
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        text = "".join(
            line for line in path.read_text().splitlines(keepends=True) if not line.startswith("{{")
        )
        try:
            parsed: list[Any] = list(yaml.load_all(text, Loader=_LOADER))
        except yaml.YAMLError as error:
            raise ClusterError(f"{path} is not YAML: {error}") from error
        documents += [document for document in parsed if isinstance(document, dict)]
    return [document for document in documents if kind is None or document.get("kind") == kind]


def has_condition(kind: str, status: str = "True") -> Callable[[Mapping[str, Any]], bool]:
    """Return a predicate for `wait_for`: has the object a condition `kind` with this status?"""

    def holds(document: Mapping[str, Any]) -> bool:
        conditions: list[Mapping[str, Any]] = document.get("status", {}).get("conditions") or []
        return any(entry["type"] == kind and entry["status"] == status for entry in conditions)

    return holds


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _describe_error(response: httpx.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"
