#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What membership costs as the world grows: worlds of N nodes x 8 workers are formed, broken by the
loss of a node and formed again in the simulator of tests/sim.

    bench/membership.py [--build DIR] [--rounds N] [--out DIR]

Writes membership.json and membership.svg (messages and CPU time of the core per node; flat is
linear). Ends with 1 when messages per node grow by more than 10 % over the range.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = (100, 300, 1000, 3000, 10000)
WIDTH, HEIGHT, LEFT, TOP = 640, 200, 70, 40


def measure(program, rounds):
    rows = []
    for nodes in SIZES:
        runs = [
            json.loads(subprocess.run([program, "--world", str(nodes)], check=True, capture_output=True).stdout)
            for _ in range(rounds)
        ]
        rows.append(runs[0] | {"seconds": statistics.median(run["seconds"] for run in runs)})
        print(rows[-1], flush=True)
    return rows


def panel(rows, value, title, top):
    """One curve over the sizes at equal distances, from 0 to a little above its largest value."""
    most = 1.2 * max(value(row) for row in rows)
    points = [
        (LEFT + (WIDTH - 2 * LEFT) * i / (len(rows) - 1), top + HEIGHT - HEIGHT * value(row) / most)
        for i, row in enumerate(rows)
    ]
    yield f'<text x="{LEFT}" y="{top - 12}">{title}</text>'
    yield f'<path d="M{LEFT},{top} V{top + HEIGHT} H{WIDTH - LEFT}" fill="none" stroke="#888"/>'
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>'
    for row, (x, y) in zip(rows, points):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#06c"/>'
        yield f'<text x="{x:.1f}" y="{y - 10:.1f}" text-anchor="middle">{value(row):.3g}</text>'
        yield f'<text x="{x:.1f}" y="{top + HEIGHT + 18}" text-anchor="middle">{row["nodes"]}</text>'


def plot(rows):
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{2 * (HEIGHT + 90)}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        *panel(rows, lambda r: r["messages"] / r["nodes"], "messages per node, beats included", TOP),
        *panel(rows, lambda r: r["seconds"] / r["nodes"] * 1e6, "CPU time of the core per node, in µs", TOP + HEIGHT + 80),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    subprocess.run(["ninja", "-C", args.build, "tests/sim/sim_membership"], check=True, stdout=subprocess.DEVNULL)
    rows = measure(args.build / "tests" / "sim" / "sim_membership", args.rounds)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "membership.json").write_text(json.dumps(rows, indent=2) + "\n")
    (args.out / "membership.svg").write_text(plot(rows))
    per_node = [row["messages"] / row["nodes"] for row in rows]
    sys.exit(1 if max(per_node) > 1.1 * per_node[0] else 0)


if __name__ == "__main__":
    main()
