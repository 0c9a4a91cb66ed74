#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which share of a week is useful on 10,000 machines of which one fails every few minutes? The membership core
and its restart policy are real, machines and time are simulated (tests/sim/week.c).

    bench/week.py [--build DIR] [--out DIR] [KEY=VALUE ...]

Takes about 15 s of CPU time for each row. KEY=VALUE are settings of sim_week for all rows. Prints a table and writes
week.json.
"""

import argparse
import json
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A cold start of a large job takes minutes, a warm one (--warm) seconds. A checkpoint on disk holds the steps up; a
# snapshot in memory hardly does.
COLD, WARM = {"start_s": 120, "stop_s": 5}, {"start_s": 15, "stop_s": 3}
DISK, FREQUENT, MEMORY = (
    {"checkpoint_s": 1800, "write_s": 30}, {"checkpoint_s": 300, "write_s": 10}, {"checkpoint_s": 10, "write_s": 0.2},
)  # fmt: skip
ROWS = (
    ("a failure every 5 minutes, cold starts, a checkpoint every 30 minutes", {**COLD, **DISK}),
    ("the same, a checkpoint every 5 minutes", {**COLD, **FREQUENT}),
    ("the same, warm starts", {**WARM, **FREQUENT}),
    ("the same, a snapshot in memory every 10 s", {**WARM, **MEMORY}),
    ("the same, no spares", {**WARM, **MEMORY, "spares": 0}),
    ("the same, with spares, bad machines never left out (3 days)", {**WARM, **MEMORY, "ban_after": 0, "hours": 72}),
    ("a failure every 30 minutes, cold starts, a checkpoint every 30 minutes", {**COLD, **DISK, "failure_s": 1800}),
    ("the same, warm starts, a snapshot in memory every 10 s", {**WARM, **MEMORY, "failure_s": 1800}),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    args = parser.parse_args()
    subprocess.run(["ninja", "-C", args.build, "tests/sim/sim_week"], check=True, stdout=subprocess.DEVNULL)
    print("| simulated week of 10,000 machines | useful | lost steps | starts | waits | checkpoints | generations |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for name, settings in ROWS:
        begun = time.monotonic()
        words = [f"{key}={value}" for key, value in settings.items()]
        done = subprocess.run(
            [args.build / "tests" / "sim" / "sim_week", *words, *args.settings], check=True, capture_output=True, text=True
        )
        row = {"name": name, "settings": settings} | json.loads(done.stdout) | {"seconds": time.monotonic() - begun}
        rows.append(row)
        shares = " | ".join(f"{100 * row[part]:.1f} %" for part in ("share", "lost", "starting", "waiting", "writing"))
        print(f"| {name} | {shares} | {row['worlds']:,} |", flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "week.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
