# SPDX-License-Identifier: Apache-2.0
"""Conclusions from the rows of a report: each figure beside the ceilings measured in the same run, and
beside those of others, and whether the goals are met."""

import json
import math
import statistics

# (name, figure that must be better, figure that it is compared with, goal); figures as in figures().
# A ratio is of times: the second one's over the first one's must be at least the goal, or at most it.
AT_LEAST, AT_MOST = "at least", "at most"


def _finite(text):
    value = float(text)
    return value if math.isfinite(value) else None


def parse(line):
    """The row of a line, or None for what only looks like one. JSON has neither NaN nor Infinity."""
    try:
        row = json.loads(line, parse_constant=lambda _: None, parse_float=_finite)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None


def ceilings(report):
    return {row["what"]: row["value"] for row in report.named("ceilings") if "what" in row and "value" in row}


def is_timing(row):
    """Does the row of a program time a step? One bad row must not cost the table."""
    us, sizes = row.get("us_per_step"), row.get("sizes") or row.get("features")
    return ("program" in row and "precision" in row and isinstance(row.get("batch"), int) and bool(sizes)
            and isinstance(us, (int, float)) and math.isfinite(us) and us > 0)  # fmt: skip


def figures(report):
    """Microseconds of a step by (program, variant, shape, batch, precision): the median of all rows."""
    found = {}
    for item in report.data["items"]:
        for row in item.get("rows", []):
            if is_timing(row):
                found.setdefault(key_of(row), []).append(row["us_per_step"])
    return {key: statistics.median(values) for key, values in found.items()}


def key_of(row):
    variant = [word for word in ("nccl", "consistent") if row.get(word)]
    if row.get("head", "fastest") != "fastest":
        variant.append(row["head"])
    shape = row.get("sizes") or ",".join(str(row[field]) for field in ("features", "hidden", "classes") if field in row)
    return row["program"], " ".join(variant), shape, row["batch"], row["precision"]


def flops(shape, batch):
    """Of one step: three products for each layer, but two for the first."""
    sizes = [int(size) for size in shape.split(",")]
    layers = [a * b for a, b in zip(sizes, sizes[1:])]
    return 2.0 * batch * (3 * sum(layers) - layers[0])


def ratios(report):
    """Each timed step beside the ceilings, the bare products of the same sizes, and train's own step."""
    times, top = figures(report), ceilings(report)
    made = []
    for (program, variant, shape, batch, precision), us in times.items():
        row = {"program": program, "variant": variant, "shape": shape, "batch": batch, "precision": precision,
               "us_per_step": round(us, 2), "samples_per_s": round(batch * 1e6 / us)}  # fmt: skip
        peak = top.get(f"gemm_{precision}_tflops")
        if peak:
            row["share_of_gemm_ceiling"] = round(flops(shape, batch) / us / 1e6 / peak, 3)
        if top.get("graph_launch_us"):
            row["empty_launches"] = round(us / top["graph_launch_us"], 2)
        bare = times.get(("gemm", "", shape, batch, "bf16" if precision == "fp8" else precision))
        if bare and program != "gemm":
            row["times_bare_gemms"] = round(us / bare, 3)
        own = times.get(("train", "", shape, batch, precision))
        if own and (program, variant) != ("train", ""):
            row["times_train"] = round(us / own, 3)
        made.append(row)
    return sorted(made, key=lambda row: (row["shape"], row["batch"], row["precision"], row["us_per_step"]))


def goals(report):
    """What the project wants to reach, as far as both sides were measured."""
    times, made = figures(report), []

    def compare(name, better, other, kind, goal):
        if better in times and other in times:
            value = times[other] / times[better]
            met = value >= goal if kind == AT_LEAST else value <= goal
            made.append({"name": name, "ratio": round(value, 3), "goal": f"{kind} {goal}", "met": met})

    small, wide = "784,512,10", "8192,8192,8192,16"
    for batch in (32, 128, 1024):
        for precision in ("f32", "bf16"):
            own, words = ("train", "", small, batch, precision), f"784-512-10, batch {batch}, {precision}"
            for peer, goal in (("torch eager", 10), ("torch graph", 2), ("jax scan", 1.2)):
                compare(f"{words}: against {peer}", own, (peer, "", small, batch, precision), AT_LEAST, goal)
    own = ("train", "", wide, 8192, "bf16")
    compare("8192 wide, bf16: of its bare products", ("gemm", "", wide, 8192, "bf16"), own, AT_MOST, 1.08)
    compare("8192 wide, bf16: against torch compiled", own, ("torch compiled", "", wide, 8192, "bf16"), AT_LEAST, 1.08)
    compare("8192 wide, fp8 against bf16", ("train", "", wide, 8192, "fp8"), own, AT_LEAST, 1.4)
    compare("8192 wide, --consistent", own, ("train", "consistent", wide, 8192, "bf16"), AT_MOST, 1.2)
    compare("8192 wide, through NCCL", own, ("train", "nccl", wide, 8192, "bf16"), AT_MOST, 1.03)
    return made


def plans(report):
    """Lines of the choices that were made, for each item that told them."""
    for item in report.data["items"]:
        rows = [row for row in item.get("rows", []) if "plan" in row]
        if rows:
            yield f"plan of {item['name']}:"
        for row in rows:
            yield "  " + " ".join(f"{key}={value}" for key, value in row.items() if key != "plan" or value == "head")


def conclusions(report):
    return {"ratios": ratios(report), "goals": goals(report)}


def text(report):
    """The same for people."""
    lines = [f"device: {report.data.get('device') or 'none'}"]
    for what, value in ceilings(report).items():
        lines.append(f"  {what:<28} {value:12.3f}")
    columns = ("program", "variant", "shape", "batch", "prec", "us/step", "samples/s", "of peak", "x bare", "x train", "launches")
    wide = "{:<22} {:<12} {:<18} {:>6} {:<5} {:>11} {:>12} {:>8} {:>7} {:>8} {:>9}"
    rows = report.data.get("ratios", [])
    if rows:
        lines.append(wide.format(*columns))
    for row in rows:
        shown = [row.get(key, "") for key in ("program", "variant", "shape", "batch", "precision", "us_per_step", "samples_per_s",
                                              "share_of_gemm_ceiling", "times_bare_gemms", "times_train", "empty_launches")]  # fmt: skip
        lines.append(wide.format(*map(str, shown)).rstrip())
    lines += plans(report)
    for goal in report.data.get("goals", []):
        lines.append(f"{'met   ' if goal['met'] else 'MISSED'} {goal['name']}: {goal['ratio']} ({goal['goal']})")
    return "\n".join(lines) + "\n"
