#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the store against what else could be used, and against what is possible at all.

Every row compares two servers one after the other, in each of several rounds, and in turn first ours
and first theirs; what counts is the median of the pairs' ratios. Ends with 1 when a goal is missed.
"""

import argparse
import os
import pathlib
import re
import sys
import time

from shared import store_report
from stores import rows as store_rows
from stores import servers as store_servers

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")


def parse_args():
    parser = argparse.ArgumentParser(prog="tools/bench store", description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build-bench", help="build folder")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results", help="where results go")
    parser.add_argument("--torch-venv", type=pathlib.Path, default=CACHE / "ctrun" / "torch-venv",
                        help="virtual environment that has torch (%(default)s)")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="rounds (5, with --quick 3)")
    parser.add_argument("--seconds", type=float, help="how long a rate is measured (0.5, with --quick 0.2)")
    parser.add_argument("--only", metavar="REGEX", default="", help="only rows that match, e.g. 'S1|S4'")
    parser.add_argument("--quick", action="store_true", help="two minutes instead of eight")
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.seconds = args.seconds or (0.2 if args.quick else 0.5)
    return args


def start(bench):
    """Starts all servers; returns which of the optional ones are there."""
    bench.store("ctrdzvd")
    bench.floor_uv("echo get", "fixed", *store_rows.echo_args("get"))
    bench.floor_uv("echo set", "fixed", *store_rows.echo_args("set"))
    bench.floor_uv("echo torch", "torch")
    bench.floor_epoll("epoll")
    redis = bench.redis("redis")
    torch = bench.torch("torch", "PyTorch's client")
    if not redis:
        print("redis-server is not installed: rows against it are left out (tools/setup --bench)")
    if not torch:
        print(f"{bench.python} is not there: rows with PyTorch are left out (--torch-venv)")
    return redis, torch


def speaks_barrier(bench):
    try:
        bench.load("ctrdzvd", "barrier", connections=2, native=True)
        return True
    except RuntimeError:
        print("this store does not know BARRIER: barriers are made of ADD and WAIT")
        return False


def run(bench, args, many):
    redis, torch = start(bench)
    rows = list(store_rows.rate_rows(bench, args.seconds, many, redis))
    if bench.watched("watched", store_rows.WATCHED, store_rows.VIEWERS):
        bench.watched("unwatched", store_rows.WATCHED, 0)
        rows += store_rows.viewer_rows(bench, args.seconds)
    else:
        print("this build has no HTTP: the row about viewers of the live page is left out")
    rows += store_rows.torch_rows(bench, args.seconds) if torch else []
    rows += store_rows.growth_rows(bench, many, speaks_barrier(bench))
    rows += store_rows.wave_rows(bench, many)
    rows = [row for row in rows if re.search(args.only, f"{row.goal} {row.name} {row.against}")]
    budget = 110 if args.quick else 450
    begin = time.monotonic()
    for number in range(args.rounds):
        for row in rows:
            row.measure(ours_first=number % 2 == 0)
        spent = time.monotonic() - begin
        print(f"round {number + 1} of {args.rounds}: {spent:.0f} s", file=sys.stderr)
        if spent / (number + 1) * (number + 2) > budget and number + 1 < args.rounds:
            print(f"another round would pass {budget} s: only {number + 1} rounds were made")
            break
    return [store_report.verdict(row) for row in rows]


def main():
    args = parse_args()
    for program in ("ctrdzvd", "bench/programs/bench-load", "bench/programs/bench-floor-uv", "bench/programs/bench-floor-epoll"):
        store_servers.require(args.build / program)
    descriptors = store_servers.raise_descriptors()
    many = min(store_rows.MANY, descriptors - 100)
    if many < store_rows.MANY:
        print(f"a process may have only {descriptors} descriptors here: {many} connections, not {store_rows.MANY}")
    bench = store_servers.Bench(args.build, args.torch_venv, descriptors)
    facts = {"machine": store_report.machine(), "connections": many}
    try:
        found = run(bench, args, many)
    except RuntimeError as failure:
        sys.exit(f"tools/bench store: {failure}")
    finally:
        bench.close()
    if not found:
        sys.exit(f"no row matches '{args.only}'")
    print(store_report.table(found))
    args.out.mkdir(parents=True, exist_ok=True)
    store_report.write_json(args.out / "store.json", found, facts)
    store_report.write_svg(args.out / "store.svg", found, f"The store, {facts['machine']['date'][:10]}, "
                           f"{facts['machine']['cpu']}, {facts['machine']['cores']} cores")  # fmt: skip
    missed = [f["name"] for f in found if not f["met"]]
    print(f"{len(found) - len(missed)} of {len(found)} goals met; written to {args.out}/store.json and store.svg")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
