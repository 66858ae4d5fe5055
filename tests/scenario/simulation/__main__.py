"""`python -m scenario.simulation`: simulate upgrades and RayJobs by their seeds, or one upgrade.

--seed N [--shrink]     print the whole trace of one upgrade, with the smallest draw that still breaks the same law
--seeds A..B [--jobs N] simulate many; ends with a table of the broken laws, and fails for any
--rayjobs N             simulate the RayJobs of one seed, and print their draw
"""

import argparse
import asyncio
import gc
import os
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor

import msgspec

from scenario.simulation import draws, job_draws, job_simulator, simulate
from scenario.simulation.draws import Draw
from scenario.simulation.simulate import Result

CRASHED = "crashed"
SHOWN = 5


def collect_rarely() -> None:
    """Run the garbage collector rarely, and on new objects only; it would take 10 % of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def one(seed: int) -> Result:
    """Simulate one seed. A service that fails by itself counts as a broken law, too."""
    return _of(simulate.of_seed(seed))


def _of(draw: Draw, *, is_traced: bool = False) -> Result:
    try:
        return asyncio.run(simulate.run(draw, is_traced=is_traced))
    except Exception as problem:  # noqa: BLE001  (any error is reported with its seed)
        return Result(draw=draw, found={CRASHED: f"{type(problem).__name__}: {problem}"})


def jobs_of(seed: int) -> job_simulator.Result:
    """Simulate the RayJobs of one seed."""
    draw = job_draws.draw(seed)
    try:
        return asyncio.run(job_simulator.run(draw))
    except Exception as problem:  # noqa: BLE001  (any error is reported with its seed)
        return job_simulator.Result(
            draw=draw, found={CRASHED: f"{type(problem).__name__}: {problem}"}
        )


def shrunk(draw: Draw, law: str) -> Draw:
    """Return a smaller draw that still breaks a law."""
    for smaller in draws.without(draw):
        if law in {law_of(each) for each in _of(smaller).found}:
            return shrunk(smaller, law)
    return draw


def law_of(key: str) -> str:
    """Return the law of a key such as `hot (demo-x)`."""
    return key.partition(" ")[0]


def show(draw: Draw, *, shrinks: bool) -> int:
    """Print one trace."""
    result = _of(draw)
    if result.found and shrinks:
        draw = shrunk(draw, law_of(next(iter(result.found))))
    result = _of(draw, is_traced=True)
    print(f"{draw}\n\n{result.trace}")
    for law, text in result.found.items():
        print(f"{law}: {text}")
    return 1 if result.found else 0


def run(seeds: range, jobs: int) -> int:
    """Simulate many seeds and print a table."""
    began, results = time.monotonic(), list[Result]()
    with ProcessPoolExecutor(jobs, initializer=collect_rarely) as pool:
        for result in pool.map(one, seeds, chunksize=4):
            results.append(result)
            for law, text in result.found.items():
                print(f"seed {result.draw.seed}: BROKEN {law}: {text[:200]}", flush=True)
            if len(results) % 100 == 0:
                print(
                    f"{len(results)} of {len(seeds)} upgrades, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    print(_table(results, time.monotonic() - began))
    is_broken = _run_jobs(seeds, jobs)
    return 1 if is_broken or any(each.found for each in results) else 0


def _run_jobs(seeds: range, jobs: int) -> bool:
    """Simulate the RayJobs of all seeds; return whether a law was broken."""
    began, broken, drivers, writes = time.monotonic(), 0, 0, 0
    with ProcessPoolExecutor(jobs, initializer=collect_rarely) as pool:
        for result in pool.map(jobs_of, seeds, chunksize=8):
            drivers, writes = drivers + result.drivers, writes + result.writes
            for law, text in result.found.items():
                broken += 1
                print(f"--rayjobs {result.draw.seed}: BROKEN {law}: {text[:200]}", flush=True)
    print(
        f"\n{len(seeds)} simulations of RayJobs, {drivers} drivers, {writes} requests, "
        f"{time.monotonic() - began:.0f} s; broken: {broken}"
    )
    return bool(broken)


def _table(results: list[Result], seconds: float) -> str:
    seeds: dict[str, list[int]] = defaultdict(list)
    for result in results:
        for law in {law_of(each) for each in result.found}:
            seeds[law].append(result.draw.seed)
    simulated = sum(each.seconds for each in results)
    lines = [
        "",
        f"{len(results)} upgrades, {simulated / 3600:.1f} simulated hours, {sum(each.writes for each in results)} requests, "
        f"{seconds:.0f} s",
        f"{'law':<12}{'seeds':>6}  which",
    ]
    lines += [
        f"{law:<12}{len(which):>6}  {', '.join(map(str, which[:SHOWN]))}"
        for law, which in sorted(seeds.items())
    ]
    lines.append(f"broken: {', '.join(sorted(seeds))}" if seeds else "no law broken")
    return "\n".join(lines)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--draw", help="a draw as JSON, in place of a seed")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--seeds", default="1..200")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rayjobs", type=int)
    args = parser.parse_args()
    if args.rayjobs is not None:
        result = jobs_of(args.rayjobs)
        print(f"{result.draw}\n{result.found}")
        return 1 if result.found else 0
    if args.draw is not None:
        return show(msgspec.json.decode(args.draw, type=Draw), shrinks=args.shrink)
    if args.seed is not None:
        return show(simulate.of_seed(args.seed), shrinks=args.shrink)
    first, _, last = args.seeds.partition("..")
    return run(range(int(first), int(last or first) + 1), args.jobs)


if __name__ == "__main__":
    if (
        os.environ.get("PYTHONHASHSEED") != "0"
    ):  # the order of sets must not differ between two runs
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", "scenario.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
