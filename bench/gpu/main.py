# SPDX-License-Identifier: Apache-2.0
"""tools/gpu-check from its command line to its exit code."""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import shlex
import signal
import sys
import tempfile
import time
import types

from . import build, machine, plan, process, table, toolkit
from .report import Report, create, say

EXIT_FAILED, EXIT_USAGE, EXIT_STOPPED, EXIT_SKIP = 1, 2, 3, 77
# Seconds kept back for the end: a process that ignores its limit, the table.
RESERVE = process.GRACE + 2
MOST_BUDGET = 86400
# Checks that are not timed share the GPU.
AT_ONCE = 6

HELP = """Checks and times the GPU path on this machine's GPU.

It needs a driver, nvcc, cuBLAS, a C compiler and Python; neither Meson nor a package registry. NCCL,
PyTorch and JAX are used where they are, also as wheels. `train` and `ctrun` are built where the headers
and libraries of cJSON, zlib, libuv and libsodium are. --pack copies those of a machine that has them into
build-gpu-deps/, which may then travel with the tree.

All that is seen is in OUT/gpu-check.json from the moment when it is known; what is planned and was not
reached stands there as such. Exit code 0: nothing failed, 1: a check or a part of the build failed,
2: wrong usage, 3: stopped by a signal, 77: nothing could be run, as without a GPU. Python 3.9 or later."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# Of a launcher: train would wait for the others of a job that is not this one.
LAUNCHER_VARIABLES = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_.*|ROLE_.*|MASTER_.*|TORCHELASTIC_.*|CTRUN_.*)$")


class Stopped(Exception):
    """A signal asked for the end."""


def _stop(number, _frame):
    """The first signal counts. Others must not end the end."""
    handled = [one for one in SIGNALS if signal.getsignal(one) is _stop]
    for one in SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    if handled:
        raise Stopped(signal.Signals(number).name)


def _handle_signals():
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # as with nohup
            signal.signal(number, _stop)


def _folder(text):
    if not text:
        raise argparse.ArgumentTypeError("a folder has a name")
    return pathlib.Path(text)


def options(argv):
    parser = argparse.ArgumentParser(prog="tools/gpu-check", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=_folder, metavar="DIR", help="folder of the results: at most 8 files (default: a new one)")
    parser.add_argument("--build", type=_folder, metavar="DIR", help="folder of the build (default: build-gpu in the tree)")
    parser.add_argument("--deps", type=_folder, metavar="DIR", help="where --pack has put packages (default: build-gpu-deps)")
    parser.add_argument("--budget", type=float, default=540, metavar="SECONDS", help="time for all of it (default: 540)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME,...", help="only these items or groups; see --list")
    parser.add_argument("--timings-only", action="store_true", help="no checks")
    parser.add_argument("--checks-only", action="store_true", help="no timings")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes: a rehearsal where a processor stands in for the GPU")
    parser.add_argument("--keep", action="store_true", help="copy the results of a whole run to bench/results/ when nothing failed")
    parser.add_argument("--table", type=pathlib.Path, metavar="FILE", help="print the table of a gpu-check.json, also of a run that was killed")
    parser.add_argument("--list", action="store_true", help="print what would be run, in order, with the seconds guessed")
    parser.add_argument("--pack", action="store_true", help="copy packages of this machine for one without them")
    args = parser.parse_args(argv)
    chosen = args.only
    args.only = [name for names in args.only for name in names.split(",") if name]
    args.build = (args.build or build.TOP / "build-gpu").absolute()
    args.deps = (args.deps or build.TOP / "build-gpu-deps").absolute()
    if chosen and not args.only:
        parser.error("--only names nothing; --list has the names")
    if not RESERVE < args.budget <= MOST_BUDGET:
        parser.error(f"--budget must be from {RESERVE + 1} to {MOST_BUDGET} seconds")
    if args.timings_only and args.checks_only:
        parser.error("--timings-only and --checks-only leave nothing")
    partial = args.tiny or args.only or args.timings_only or args.checks_only
    if args.keep and partial:
        parser.error("--keep is for the results of a whole run")
    if args.pack and (partial or args.list or args.out):
        parser.error("--pack goes alone, or with --deps")
    try:
        shlex.split(os.environ.get("CC", "cc"))
    except ValueError as why:
        parser.error(f"CC={os.environ['CC']}: {why}")
    return args


class Reader:
    """Turns the lines of a program into results of its item, as they come."""

    ROW = re.compile(r"\{.*\}\s*$")
    # Of compute-sanitizer: its own failure, and how many errors it has seen, that one among them.
    TOOL_FAILED = "Internal Sanitizer Error"
    ERRORS = re.compile(r"=+ (?:\w+ )?SUMMARY: (?:\d+ hazards? displayed \()?(\d+) error")

    def __init__(self, report, item, log):
        self.report, self.item, self.log = report, item, log
        self.notes, self.planned, self.skip = [], None, None
        self.tool_failures, self.errors = [], 0

    def line(self, text):
        self.log.write(f"[{self.item['name']}] {text}\n")
        if self.ROW.match(text):
            row = table.parse(text)
            if row is not None:
                self.report.add(self.item, "rows", row)
        elif text.startswith("ok "):
            self.item["passed"] = self.item.get("passed", 0) + 1
            self.notes = []
            self.report.save()
        elif text.startswith("not ok "):
            self.report.add(self.item, "failures", {"check": text[7:], "why": self.notes[-5:]})
            self.notes = []
        elif text.startswith("1..0 # SKIP"):
            self.skip = text.removeprefix("1..0 # SKIP").strip()
        elif re.match(r"1\.\.\d+$", text):
            self.planned = int(text[3:])
        elif text.startswith(("#", "Bail out!", "=====")):
            self.notes.append(text)
            if self.TOOL_FAILED in text:
                self.tool_failures.append(text.lstrip("= "))
            seen = self.ERRORS.match(text)
            self.errors = int(seen.group(1)) if seen else self.errors

    def verdict(self, ended):
        """(status, why)"""
        tap = self.item["kind"] == "tap"
        if ended.timed_out:
            return "unfinished", f"stopped after {ended.seconds:.0f} s"
        if ended.code == EXIT_SKIP:
            return "skipped", self.skip or (ended.lines or ["no reason given"])[-1]
        # A program of which the tool has lost control fails in any way. What the tool itself has found
        # before that counts.
        if self.tool_failures and self.errors <= len(self.tool_failures):
            return "unfinished", f"the tool itself failed, which says nothing of the code: {self.tool_failures[0]}"
        if self.item.get("failures"):
            return "failed", "; ".join(f["check"] for f in self.item["failures"][:3])
        if ended.code != 0:
            return "failed", f"exit code {ended.code}: " + " / ".join(ended.lines[-3:])[:500]
        # Without the plan line at its end it was cut short, whatever its code.
        if tap and (self.planned is None or self.planned != self.item.get("passed", 0)):
            return "failed", "it did not print its plan" if self.planned is None else f"{self.planned} were planned"
        if not tap and not self.item.get("rows"):
            return "failed", "it printed no row"
        return "passed", ""


class Log:
    """A file of what programs say. It is worth less than the results: it ends where the disk is full."""

    def __init__(self, path):
        self.file = create(path)

    def write(self, text):
        with contextlib.suppress(OSError):
            self.file.write(text)
            self.file.flush()


class Check:
    def __init__(self, args, report):
        self.args, self.report = args, report
        self.log = Log(args.out / "output.log")
        self.programs, self.stopping, self.checks = {}, False, None

    def left(self):
        return self.args.budget - RESERVE - (time.monotonic() - self.report.started)

    def missing(self, item):
        return [name for name in item["needs"] if self.programs.get(name) != "built"]

    def run(self, item, quiet=False):
        """Runs an item if it was built and there is time for it."""
        missing = self.missing(item)
        if missing:
            said = "; ".join(f"{name}: {self.programs.get(name, 'not built')}" for name in missing)
            self.report.update(item, status="left out", why=said[:300])
        elif item["estimate_s"] > self.left():
            self.report.update(item, why=f"needs about {item['estimate_s']} s, and {max(0, self.left()):.0f} s were left")
        else:
            self.report.update(item, status="running")
            self.run_now(item)
        if not quiet:
            self.tell(item)

    def run_now(self, item):
        argv = [str(word).replace("{build}", str(self.args.build)) for word in item["argv"]]
        reader = Reader(self.report, item, self.log)
        self.log.write(f"[{item['name']}] $ {' '.join(argv)}\n")
        limit = min(item["limit_s"], max(1.0, self.left()))
        env = {"CTRUN_PLUGIN_DIR": str(self.args.build), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            ended = process.run(argv, limit, reader.line, env=env)
        except Stopped as why:
            self.report.update(item, status="unfinished", why=f"stopped by {why}")
            raise
        status, why = ("unfinished", "stopped from outside") if self.stopping else reader.verdict(ended)
        values = {"status": status, "seconds": round(ended.seconds, 2), "exit_code": ended.code}
        if why:
            values["why"] = why
        if status != "passed":
            values["last_lines"] = ended.lines[-12:]
        self.report.update(item, **values)

    def tell(self, item):
        counts = f"{item.get('passed', 0)} ok" if item["kind"] == "tap" else f"{len(item.get('rows', []))} rows"
        say(f"{item['name']:<28} {item['status']:<12} {counts:>8} {item.get('seconds', 0):7.1f} s  {item.get('why', '')[:150]}")

    def run_each(self, item):
        """One process for each check: a broken CUDA context must not fail all that come after it."""
        if self.missing(item) or item["estimate_s"] > self.left():
            return self.run(item)
        if self.checks is None:
            self.checks = process.run([self.args.build / "test_cuda", "--list"], 20).lines
        if not self.checks:
            return self.run(item)
        base = {key: value for key, value in item.items() if key not in ("status", "each_s")}
        each = self.report.replace(item, [
            {**base, "name": f"{item['name']}: {name}", "estimate_s": item["each_s"], "argv": [*item["argv"], "--only", name]}
            for name in self.checks
        ])  # fmt: skip
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                list(pool.map(lambda one: self.run(one, quiet=True), each))
            except Stopped:
                self.stopping = True
                pool.shutdown(wait=False, cancel_futures=True)
                process.kill_all()
                raise
        bad = [one for one in each if one["status"] != "passed"]
        for one in bad:
            self.tell(one)
        say(f"{item['name']:<28} {len(each) - len(bad)} of {len(each)} passed")

    def everything(self, items):
        for item in items:
            if "each_s" in item:
                self.run_each(item)
            else:
                self.run(item)

    def no_gpu(self):
        """Why no GPU can be used, or None. Without the plug-in nobody can tell, and there are items that do
        not need it."""
        if self.programs.get("test_cuda") != "built" or self.programs.get("ctrun-cuda.so") != "built":
            return None
        lines = []
        ended = process.run([self.args.build / "test_cuda", "--probe"], 60, lines.append,
                            env={"CTRUN_PLUGIN_DIR": str(self.args.build)})  # fmt: skip
        if ended.code == EXIT_SKIP:
            return (lines or ["1..0 # SKIP no reason"])[-1].removeprefix("1..0 # SKIP ")
        self.report.set(device=" ".join(lines[:1]).removeprefix("# ").strip())
        return None


def _build(args, report, kit):
    described = machine.describe(kit)
    report.set(machine=described)
    say(f"machine: {described['gpus'] or 'no GPU that nvidia-smi shows'}, {described['processors']} processors")
    left = args.budget - RESERVE - (time.monotonic() - report.started)
    arch = machine.architecture(described, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    built = build.Build(kit, args.build, report, Log(args.out / "build.log"), arch, left)
    programs = built.everything()
    for name, state in programs.items():
        say(f"  {name:<20} {state}")
    for source, why in list(built.failed.items())[:5]:
        say(f"  {source}: {why}")
    say(f"built in {built.seconds:.1f} s")
    return {**programs, "compute-sanitizer": "built" if kit.sanitizer else "not installed"}


def _finish(args, report, state):
    items = report.data["items"]
    for item in report.with_status("running"):
        report.update(item, status="unfinished", why=state)
    failed = [item["name"] for item in report.with_status("failed")]
    broken = [name for name, said in report.data["build"].get("programs", {}).items() if said.startswith("failed")]
    report.set(state=state, **table.conclusions(report))
    text = table.text(report)
    with contextlib.suppress(OSError), create(args.out / "table.txt") as f:
        f.write(text)
    say(text, end="")
    for status in ("failed", "unfinished", "not reached", "left out"):
        names = [item["name"] for item in items if item["status"] == status]
        if names:
            say(f"{status}: {', '.join(names)}")
    say(f"written: {report.path}")
    if failed or broken:
        return EXIT_FAILED
    return 0 if report.with_status("passed") else EXIT_SKIP


def _keep(report):
    chip = re.sub(r"[^A-Za-z0-9]+", "-", (report.data.get("device") or "gpu").split("(")[-1].rstrip(")")).strip("-")
    target = build.TOP / "bench/results" / f"gpu-{chip}-{time.strftime('%Y-%m-%d-%H%M%S', time.gmtime())}.json"
    shutil.copyfile(report.path, target)
    say(f"kept: {target.relative_to(build.TOP)}")


def _begin(args, items):
    """Makes the folders and the report. OSError and ValueError where that cannot be."""
    args.build.mkdir(parents=True, exist_ok=True)
    args.out = args.out or pathlib.Path(tempfile.mkdtemp(prefix="gpu-check."))
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "gpu-check.json"
    if os.path.lexists(path):
        raise ValueError(f"{path} is there already: name another folder with --out, or remove it")
    if args.out.stat().st_uid != os.geteuid():
        raise ValueError(f"{args.out} belongs to somebody else, who could change the results")
    report = Report(path, began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), budget_s=args.budget)
    planned = report.plan(items)
    report.write()
    return report, planned


def check(args, items):
    try:
        report, planned = _begin(args, items)
    except (OSError, ValueError) as why:
        print(f"gpu-check: {why}", file=sys.stderr)
        return EXIT_USAGE
    for name in [name for name in os.environ if LAUNCHER_VARIABLES.match(name)]:
        del os.environ[name]
    try:
        _handle_signals()
        run = Check(args, report)
        run.programs = _build(args, report, toolkit.Toolkit(args.deps))
        reason = run.no_gpu()
        if reason is not None:
            for item in planned:
                report.update(item, status="left out", why=reason)
            code = _finish(args, report, "no usable GPU")
            print(f"gpu-check: built what can be built, but found no usable GPU: {reason}", file=sys.stderr)
            return code
        run.everything(planned)
    except Stopped as why:
        process.kill_all()
        _finish(args, report, f"stopped by {why}")
        return EXIT_STOPPED
    except Exception as why:
        process.kill_all()
        report.set(state=f"broken: {type(why).__name__}: {why}")
        raise
    code = _finish(args, report, "done")
    if code == EXIT_SKIP:
        print("gpu-check: nothing was run to its end, see above", file=sys.stderr)
    if code == 0 and args.keep:
        _keep(report)
    return code


def _print_table(path):
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        items = data["items"]
    except (OSError, ValueError, KeyError, TypeError) as why:
        print(f"gpu-check: {path}: {why or type(why).__name__}", file=sys.stderr)
        return EXIT_USAGE
    report = types.SimpleNamespace(
        data=data, named=lambda name: [row for item in items if item.get("name") == name for row in item.get("rows", [])]
    )
    data.update(table.conclusions(report))
    say(table.text(report), end="")
    return 0


def main(argv):
    sys.stdout.reconfigure(errors="backslashreplace")
    args = options(argv)
    if args.table:
        return _print_table(args.table)
    if args.pack:
        try:
            print(f"{args.deps.name}: {toolkit.pack(args.deps, machine.commit()) / 1e6:.1f} MB")
        except OSError as why:
            print(f"gpu-check: {why}", file=sys.stderr)
            return EXIT_FAILED
        return 0
    try:
        items = plan.chosen(
            plan.Plan(toolkit.Toolkit(args.deps).sanitizer, args.tiny).items(), args.only, args.timings_only, args.checks_only
        )
    except ValueError as why:
        print(f"gpu-check: {why}", file=sys.stderr)
        return EXIT_USAGE
    if not items:
        print("gpu-check: --only leaves nothing beside --timings-only or --checks-only", file=sys.stderr)
        return EXIT_USAGE
    if args.list:
        for item in items:
            print(f"{item['group']:<10} {item['name']:<28} {item['estimate_s']:4} s")
        print(f"{'':<39} {sum(item['estimate_s'] for item in items):4} s")
        return 0
    return check(args, items)
