# SPDX-License-Identifier: Apache-2.0
"""What bench/store.py found, as a table, as JSON and as a plot."""

import html
import json
import math
import os
import pathlib
import platform
import statistics
import time


def verdict(row):
    """Medians, ratio and whether the goal is met."""
    ratios = [ours / theirs for ours, theirs in row.values]
    ratio = statistics.median(ratios)
    margin = ratio / row.target if row.at_least else row.target / ratio
    found = {
        "goal": row.goal, "name": row.name, "against": row.against, "unit": row.unit,
        "ours": statistics.median(v[0] for v in row.values),
        "theirs": statistics.median(v[1] for v in row.values) if row.theirs else None,
        "ratio": ratio, "ratios": ratios, "at_least": row.at_least, "target": row.target,
        "margin": margin, "met": margin >= 1, "rounds": row.extra,
    }  # fmt: skip
    cpu = [b["cpu_us"] / a["cpu_us"] for a, b in row.extra if a.get("cpu_us") and b.get("cpu_us")]
    # CPU time per request of both servers: steadier than the rate where the machine is shared.
    found["cpu_ratio"] = statistics.median(cpu) if cpu else None
    return found


def figure(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def table(found):
    """One line for each row; at most 120 columns."""
    lines = [f"{'':3} {'':45} {'against':20} {'ours':>9} {'theirs':>9} {'ratio':>7} {'CPU':>6} {'target':>8}"]
    for f in found:
        cpu = f"{f['cpu_ratio']:6.2f}" if f["cpu_ratio"] else f"{'-':>6}"
        target = f"{'>=' if f['at_least'] else '<='} {f['target']:g}"
        lines.append(
            f"{f['goal']:3} {f['name']:45} {f['against']:20} {figure(f['ours']):>9} {figure(f['theirs']):>9} "
            f"{f['ratio']:7.2f} {cpu} {target:>8} {'' if f['met'] else 'MISSED'}".rstrip()
        )
    lines.append("ratio: ours / theirs, median of the rounds. CPU: their CPU time per request / ours.")
    return "\n".join(lines)


def machine():
    model = next(
        (line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?"
    )
    return {
        "cpu": model, "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
        "load": os.getloadavg(), "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }  # fmt: skip


def write_json(path, found, facts):
    path.write_text(json.dumps({**facts, "rows": found}, indent=1) + "\n")


# ---- plot ---------------------------------------------------------------------------------------

LEFT, WIDTH, LINE, TOP = 470, 480, 22, 64
LOW, HIGH = 0.5, 8.0
GOOD, BAD, GREY = "#2a7f62", "#b3402a", "#9a9a9a"


def place(margin):
    """Logarithmic: twice as good lies as far to the right as half as good to the left."""
    clipped = min(max(margin, LOW), HIGH)
    return LEFT + WIDTH * math.log(clipped / LOW) / math.log(HIGH / LOW)


def write_svg(path, found, title):
    height = TOP + LINE * len(found) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="22" font-size="15">{html.escape(title)}</text>',
        '<text x="12" y="40" fill="#555">How far each figure is on the good side of its goal (1 = the goal itself); '
        "small dots are the rounds</text>",
    ]  # fmt: skip
    for tick in (0.5, 1, 2, 4, 8):
        x = place(tick)
        colour = "#333" if tick == 1 else "#ddd"
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - 24}" stroke="{colour}"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{tick:g}x</text>')
    for i, f in enumerate(found):
        y = TOP + LINE * i + 8
        colour = GOOD if f["met"] else BAD
        label = f"{f['goal']}  {f['name']}, against {f['against']}"
        parts.append(f'<text x="12" y="{y + 4}">{html.escape(label)}</text>')
        parts.append(
            f'<line x1="{place(1):.1f}" y1="{y}" x2="{place(f["margin"]):.1f}" y2="{y}" stroke="{colour}" stroke-width="6"/>'
        )
        for ratio in f["ratios"]:
            margin = ratio / f["target"] if f["at_least"] else f["target"] / ratio
            parts.append(f'<circle cx="{place(margin):.1f}" cy="{y}" r="2" fill="{GREY}"/>')
        parts.append(f'<text x="{LEFT + WIDTH + 8}" y="{y + 4}" fill="{colour}">{f["ratio"]:.3g}</text>')
    parts.append("</svg>")
    pathlib.Path(path).write_text("\n".join(parts) + "\n")
