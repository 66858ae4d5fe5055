"""`python -m notifications`: posts events of upgrades and jobs to webhooks."""

from common.runtime import process
from notifications import wiring

if __name__ == "__main__":
    process.exit_process(process.run("notifications", wiring.serve))
