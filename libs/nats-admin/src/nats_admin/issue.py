"""The commands `credentials` and `key`.

`credentials` creates keys, certificates and configuration for a NATS server without Kubernetes.
`key` creates the private key of a person.
"""

import argparse
import sys
from pathlib import Path

from common.bus import nkeys
from common.clock import SystemClock
from nats_admin import credential_folder
from nats_admin.server_conf import ServerConfig


def make_key(options: argparse.Namespace) -> int:
    """Create a private key if the file does not exist; print its public key, to be registered."""
    sys.stdout.write(f"{nkeys.derive_public_key(credential_folder.ensure_seed(options.file))}\n")
    return 0


def run(options: argparse.Namespace) -> int:
    """Create the keys, certificates and configuration of a NATS server in the folder `--out`.

    Existing keys and usable certificates are kept. Prints the names of the files written.
    """
    folder: Path = options.out.absolute()
    server = ServerConfig(
        folder=options.mount or str(folder),
        store=options.store or str(folder / "jetstream"),
        host=options.host,
        max_store=options.max_store,
        sync_interval=options.sync_interval,
        subscribers=options.subscribers,
    )
    names = options.name or ["localhost", "127.0.0.1", "::1", "nats"]
    written = credential_folder.complete_folder(
        folder, server, names=names, now=SystemClock().now()
    )
    sys.stdout.write(
        f"NATS credentials in {folder}: {', '.join(written) or 'nothing was missing'}\n"
    )
    return 0
