"""Sets NATS up: the streams, the server's configuration, keys and certificates.

    python -m nats_admin.provision streams [--watch] [--replicas N] [--outside-seed FILE]
    python -m nats_admin.provision keeper [--once] [--servers N] [--replicas N] ...
    python -m nats_admin.provision credentials --out DIR
    python -m nats_admin.provision key FILE

`streams` reads `RAYBUS_NATS_*` like a service. Without `--watch` it connects as the user
`provisioner`, creates missing streams, changes differing ones, and exits. With `--watch` it
connects as the user `keeper`, keeps running, and creates streams again after the loss of a volume;
it may not change or delete a stream. `keeper` runs beside a server in a pod: it does the same
as `--watch`, writes the server's configuration from the ConfigMaps of its namespace
(`nats_admin.keeper`), makes the server reload it, restarts a server after a full disk, and exports
the server's metrics. `credentials` and `key` are described in `nats_admin.issue`.

Each command imports only what it needs: `streams --watch`, which runs beside the services, needs
neither certificates nor an HTTP client, and so takes 10 MiB less memory.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common import errors
from common.settings import Settings
from nats_admin import subscribers

USER: Final = "provisioner"
KEEPER: Final = "keeper"
"""The NATS user of `streams --watch`, which may create streams but not change them."""
MAX_SERVERS: Final = 7
ALLOWED_REPLICAS: Final = (1, 3, 5)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m nats_admin.provision", description="Set NATS up for raybus."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("streams", help="make the streams, and change those that differ")
    make.add_argument(
        "--watch", action="store_true", help="stay, and make them again when the volume is lost"
    )
    _add_stream_arguments(make)
    subscribers.add_argument(make)
    beside = commands.add_parser(
        "keeper", help="maintain the server in the same pod, in a cluster, and its streams"
    )
    beside.add_argument(
        "--once",
        action="store_true",
        help="write the server's files and end, before the server starts",
    )
    beside.add_argument(
        "--servers", type=_parse_servers, default=1, metavar="N", help="how many form a cluster"
    )
    beside.add_argument(
        "--store",
        metavar="DIR",
        default="/data/jetstream",
        help="where the server keeps its streams",
    )
    for option, default, text in (
        ("--server-folder", "/etc/nats", "where the server reads its files"),
        ("--server-volume", "/data/tls", "where its key and certificate are kept over restarts"),
        (
            "--server-certificate",
            "/etc/nats-certificate",
            "tls.crt, tls.key and ca.crt that the installer brings",
        ),
        ("--server-pid", "/run/nats/nats.pid", "where it writes its process id"),
    ):
        beside.add_argument(option, type=Path, metavar="PATH", default=Path(default), help=text)
    _add_stream_arguments(beside)
    _add_server_arguments(beside)
    key = commands.add_parser("key", help="make a private key, and print its public key")
    key.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="where the private key is kept; one that is there stays",
    )
    issued = commands.add_parser(
        "credentials", help="make keys, certificates and configuration in a folder"
    )
    issued.add_argument("--out", type=Path, metavar="DIR", required=True, help="the folder")
    issued.add_argument(
        "--name",
        action="append",
        metavar="HOST",
        help="a host name or address of the server; repeat",
    )
    issued.add_argument("--mount", metavar="DIR", help="where the server will find the files")
    issued.add_argument("--store", metavar="DIR", help="where the server keeps its streams")
    _add_server_arguments(issued)
    return parser


def _add_server_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host",
        default="0.0.0.0",  # noqa: S104  (pods are reached from outside)
        help="the address that the server listens on",
    )
    parser.add_argument(
        "--max-store",
        metavar="SIZE",
        help="how much JetStream may store on a server's disk, such as 8GB",
    )
    parser.add_argument(
        "--sync-interval",
        default="1s",
        metavar="TIME",
        help="how often writes are forced to the disk; or: always",
    )
    subscribers.add_argument(parser)


def _add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server-monitor", metavar="URL", default="http://127.0.0.1:8222")
    parser.add_argument(
        "--metrics", action="store_true", help="export the server's metrics on RAYBUS_HTTP_PORT"
    )
    parser.add_argument(
        "--replicas",
        type=_parse_replicas,
        default=1,
        metavar="N",
        help="on how many servers each is kept",
    )
    parser.add_argument(
        "--outside-seed",
        type=Path,
        help="seed of the user in the account of external subscribers, to mirror the events",
    )


def _parse_servers(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_SERVERS or int(text) % 2 == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1, or 3, 5 or 7 for a cluster")
    return int(text)


def _parse_replicas(text: str) -> int:
    if not text.isdecimal() or int(text) not in ALLOWED_REPLICAS:
        raise argparse.ArgumentTypeError(f"{text!r}: expected 1, 3 or 5")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    options = _build_parser().parse_args(arguments)
    try:
        return _issue(options) if options.command in {"credentials", "key"} else _serve(options)
    except (errors.RaybusError, OSError) as problem:
        from common.runtime import process  # noqa: PLC0415

        sys.stderr.write(f"provision: {problem}\n")
        return process.MISCONFIGURED if isinstance(problem, errors.InvalidSpec) else process.FAILED


def _issue(options: argparse.Namespace) -> int:
    from nats_admin import issue  # noqa: PLC0415

    return issue.run(options) if options.command == "credentials" else issue.make_key(options)


def _serve(options: argparse.Namespace) -> int:
    import uvloop  # noqa: PLC0415

    from common.observability import logging  # noqa: PLC0415
    from common.runtime import process  # noqa: PLC0415
    from nats_admin import stream_keeper  # noqa: PLC0415

    if options.command == "keeper":
        from nats_admin import server_keeper  # noqa: PLC0415

        return process.run(KEEPER, lambda settings: server_keeper.run(settings, options))
    if options.watch:

        async def watch(settings: Settings) -> None:
            await stream_keeper.watch(
                stream_keeper.build_accounts_of_options(settings, options), settings, options
            )

        return process.run(KEEPER, watch)
    settings = Settings.from_environment(USER, os.environ)
    logging.configure(USER, level=settings.log_level)
    return uvloop.run(
        stream_keeper.make(stream_keeper.build_accounts_of_options(settings, options))
    )


if __name__ == "__main__":
    sys.exit(main())
