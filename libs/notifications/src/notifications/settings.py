"""Settings: destinations, filters and templates from a file, secrets from a folder.

The YAML file `RAYBUS_NOTIFICATIONS_FILE` is a `SettingsFile`. The folder
`RAYBUS_NOTIFICATIONS_SECRETS` holds the URL of each destination in `NAME.url`, and in `NAME.key`
the key that signs its requests, if they are signed. No error message contains a secret.
"""

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Final, Literal

import httpx
import msgspec
import re2
from msgspec import Meta

from common import errors, signature
from common.bus.cloud_events import EventSource
from common.upgrade import events as upgrade_events
from notifications import templates

_NAME: Final = re2.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
"""Form of a destination's name, which is also the name of its named subscriber in NATS."""
MAX_TIMEOUT: Final = 15.0
"""Maximum seconds to wait for an answer.

Together with the extension interval, this stays below the time after which NATS redelivers.
"""


class Destination(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """A receiver of notifications with its filters. An empty filter excludes no event."""

    name: str
    format: Literal["slack", "generic"] = "slack"
    kinds: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    ray_services: tuple[str, ...] = ()
    ray_jobs: tuple[str, ...] = ()
    ray_cron_jobs: tuple[str, ...] = ()
    """Names of RayCronJobs whose RayJobs pass the filter."""

    def is_interested_in(self, kind: str, source: EventSource, cron_job: str = "") -> bool:
        """Return whether an event passes the filters.

        `cron_job` is the name of the RayCronJob that created the event's RayJob, or empty.
        """
        return (
            (not self.kinds or kind in self.kinds)
            and (not self.namespaces or source.namespace in self.namespaces)
            and self._names_object(source, cron_job)
        )

    def _names_object(self, source: EventSource, cron_job: str) -> bool:
        """Return whether a filter by name contains the object; True without any filter by name."""
        if not (self.ray_services or self.ray_jobs or self.ray_cron_jobs):
            return True
        if source.resource == upgrade_events.FAMILY.resource:
            return source.name in self.ray_services
        return source.name in self.ray_jobs or cron_job in self.ray_cron_jobs


class SettingsFile(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"
):
    """The content of the settings file of the notifications."""

    destinations: Annotated[tuple[Destination, ...], Meta(min_length=1)]
    templates: dict[str, str] = {}
    attempts: Annotated[int, Meta(ge=1, le=100)] = 12
    timeout_seconds: Annotated[float, Meta(ge=1, le=MAX_TIMEOUT)] = 10.0
    allow_http: bool = False


class DestinationSecrets(msgspec.Struct, frozen=True):
    """The URL of a destination, which often contains a secret, and its signing key, if any."""

    url: str
    key: bytes | None

    def __repr__(self) -> str:
        return "DestinationSecrets(…)"


class NotificationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The validated settings of the notifications."""

    choices: SettingsFile
    secrets: dict[str, DestinationSecrets]
    """The secrets of each destination, by its name."""
    texts: dict[str, Template]


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of the settings; environment variables replace the defaults."""

    notifications_file: Path = Path("/etc/raybus/notifications/notifications.yaml")
    notifications_secrets: Path = Path("/etc/raybus/notifications-secrets")
    nats_credentials: Path | None = None
    """Folder with `ca.crt` and `users/subscriber-NAME.seed`.

    None if keys are registered in Kubernetes, or if the common NATS settings have the seed's path.
    """

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Paths":
        """Read the paths from environment variables.

        Whether the files exist is checked when they are read.
        """
        paths = cls()
        return cls(
            notifications_file=Path(
                environ.get("RAYBUS_NOTIFICATIONS_FILE", "") or paths.notifications_file
            ),
            notifications_secrets=Path(
                environ.get("RAYBUS_NOTIFICATIONS_SECRETS", "") or paths.notifications_secrets
            ),
            nats_credentials=Path(environ.get("RAYBUS_NATS_CREDENTIALS", ""))
            if environ.get("RAYBUS_NATS_CREDENTIALS")
            else None,
        )


def read(paths: Paths) -> NotificationSettings:
    """Read and validate all settings.

    Raises `InvalidSpec`, naming the field or the file, for the first invalid value.
    """
    file = paths.notifications_file
    try:
        choices = decode(file.read_bytes())
        texts = templates.check_templates(choices.templates)
    except OSError as problem:
        raise errors.InvalidSpec(
            f"RAYBUS_NOTIFICATIONS_FILE={file}: cannot be read: {problem.strerror}"
        ) from problem
    except errors.InvalidSpec as problem:
        raise errors.InvalidSpec(f"{file.name}: {problem}") from None
    secrets = {
        destination.name: _read_secrets(destination.name, paths, choices)
        for destination in choices.destinations
    }
    return NotificationSettings(choices=choices, secrets=secrets, texts=texts)


def decode(text: bytes) -> SettingsFile:
    """Decode the settings file, and check all but the templates.

    Raises `InvalidSpec`, naming the field.
    """
    try:
        choices = msgspec.yaml.decode(text, type=SettingsFile)
    except msgspec.DecodeError as problem:
        raise errors.InvalidSpec(str(problem)) from problem
    _check_names(choices.destinations)
    return choices


def _check_names(destinations: tuple[Destination, ...]) -> None:
    kinds = [kind for kind in templates.DEFAULTS if kind != templates.OTHER]
    names: set[str] = set()
    for number, destination in enumerate(destinations):
        place = f"destinations[{number}]"
        if not _NAME.fullmatch(destination.name):
            raise errors.InvalidSpec(
                f"{place}.name: {destination.name!r} is no name: use up to 32 of a-z, 0-9 and '-'"
            )
        if destination.name in names:
            raise errors.InvalidSpec(f"{place}.name: {destination.name!r} occurs twice")
        names.add(destination.name)
        if wrong := [kind for kind in destination.kinds if kind not in kinds]:
            raise errors.InvalidSpec(
                f"{place}.kinds: there is no kind {wrong[0]!r}; kinds are {', '.join(kinds)}"
            )


def _read_secrets(name: str, paths: Paths, choices: SettingsFile) -> DestinationSecrets:
    url = _read_secret(paths, f"{name}.url")
    if url is None:
        raise errors.InvalidSpec(
            f"destination {name!r} has no address: there is no file {name}.url in "
            f"{paths.notifications_secrets};"
            " add the entry to the Secret"
        )
    _check_url(name, url, choices)
    key = _read_secret(paths, f"{name}.key")
    try:
        return DestinationSecrets(url, None if key is None else signature.read_key(key))
    except ValueError as problem:
        raise errors.InvalidSpec(f"{name}.key: {problem}") from None


def _check_url(name: str, url: str, choices: SettingsFile) -> None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise errors.InvalidSpec(
            f"{name}.url: expected https://HOST/PATH (its content is not shown)"
        )
    if parsed.scheme == "http" and not choices.allow_http:
        raise errors.InvalidSpec(
            f"{name}.url: expected https://; set allowHttp: true for a receiver without TLS"
        )


def _read_secret(paths: Paths, name: str) -> str | None:
    try:
        return (paths.notifications_secrets / name).read_text().strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        raise errors.InvalidSpec(
            f"{name}: cannot be read as text in {paths.notifications_secrets}"
        ) from None
