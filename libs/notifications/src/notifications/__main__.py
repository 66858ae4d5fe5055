"""`python -m notifications`: posts upgrade events to webhooks."""

from common.runtime import process
from notifications import wiring

if __name__ == "__main__":
    process.leave(process.run("notifications", wiring.serve))
