"""Entry point of `python -m service_reconciler`; runs the service until it is stopped."""

from common.runtime import process
from service_reconciler import wiring

if __name__ == "__main__":
    process.exit_process(process.run("service-reconciler", wiring.main))
