"""Entry point of `python -m job_reconciler`; runs the service until it is stopped."""

from common.runtime import process
from job_reconciler import wiring

if __name__ == "__main__":
    process.exit_process(process.run("job-reconciler", wiring.main))
