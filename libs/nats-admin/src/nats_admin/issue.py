"""The commands `credentials` (keys, certificates and configuration of a NATS without Kubernetes) and `key` (of a person)."""

import argparse
import sys
from pathlib import Path

from common.bus import nkeys
from common.clock import SystemClock
from nats_admin import credential_folder, subscribers
from nats_admin.server_conf import Server


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="the folder")
    parser.add_argument("--name", action="append", metavar="HOST", help="a host name or address of the server; repeat")
    parser.add_argument("--mount", metavar="DIR", help="where the server will find the files")
    parser.add_argument("--store", metavar="DIR", help="where the server keeps its streams")
    add_server_arguments(parser)


def add_key_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command `key`."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="where the private key is kept; one that is there stays"
    )


def make_key(options: argparse.Namespace) -> int:
    """Make a private key of a person; print the public key, which is registered in a ConfigMap."""
    sys.stdout.write(f"{nkeys.public_key(credential_folder.seed_in(options.file))}\n")
    return 0


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a server, with or without Kubernetes."""
    parser.add_argument("--host", default="0.0.0.0", help="the address that the server listens on")  # noqa: S104  (pods are reached from outside)
    parser.add_argument(
        "--max-store", metavar="SIZE", help="how much JetStream may store on a server's disk, such as 8GB"
    )
    parser.add_argument(
        "--sync-interval", default="1s", metavar="TIME", help="how often writes are forced to the disk; or: always"
    )
    subscribers.add_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Complete the folder; print what was made."""
    folder: Path = options.out.absolute()
    server = Server(
        folder=options.mount or str(folder),
        store=options.store or str(folder / "jetstream"),
        host=options.host,
        max_store=options.max_store,
        sync_interval=options.sync_interval,
        subscribers=options.subscribers,
    )
    names = options.name or ["localhost", "127.0.0.1", "::1", "nats"]
    written = credential_folder.complete(folder, server, names=names, now=SystemClock().now())
    sys.stdout.write(f"NATS credentials in {folder}: {', '.join(written) or 'nothing was missing'}\n")
    return 0
