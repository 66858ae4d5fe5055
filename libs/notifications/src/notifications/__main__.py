"""`python -m notifications`: posts upgrade events to webhooks."""

import common.headless  # noqa: F401  # pyright: ignore[reportUnusedImport]  (first of all)
from common.runtime import process
from notifications import wiring

if __name__ == "__main__":
    process.leave(process.run("notifications", wiring.serve))
