# SPDX-License-Identifier: Apache-2.0
"""A golden table: the same command lines under PyPI's torchrun, under ctrun, and under the torchrun that is
ctrun. Workers must find the same environment, variable by variable, files and screen must show the same, but
for the differences that stand here by name. No option of torchrun may be missing in the table."""

import collections
import itertools
import json
import os
import pathlib
import re
import shutil
import socket
import stat
import unittest

import testlib
from testlib import python_package
from testlib.pytorch import CURRENT, LIMIT

DUMP = """
import json, os, sys
facts = {"env": dict(os.environ), "argv": sys.argv[2:]}
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as f:
    json.dump(facts, f)
for line in ("apple one", "pear, two", "plum three"):
    print(line, os.environ["RANK"])
    print("error of", line, os.environ["RANK"], file=sys.stderr)
sys.stdout.write("ends without a newline")
"""

# Fails as a function under PyTorch's @record does, without the time that importing it takes.
FAIL = """
import json, os, sys
story = {"message": {"message": "ValueError: no data",
                     "extraInfo": {"py_callstack": "Traceback: here", "timestamp": "1700000000"}}}
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as f:
    json.dump(story, f)
sys.exit(3)
"""

# Many command lines after one import of PyTorch; each is started as `torchrun` itself starts it.
MANY = """
import json, os, sys
from torch.distributed.run import main
codes = []
for args in json.loads(sys.argv[1]):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        code = 1
        try:
            main(args)
            code = 0
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else int(e.code is not None)
        except BaseException:
            pass
        os._exit(code)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print(json.dumps(codes))
"""

# name -> why it differs, and what ctrun's value must look like.
DIFFERENCES = {
    "MASTER_ADDR": ("the literal the user wrote, else 127.0.0.1: no name service", r"[\w.:-]+"),
    "MASTER_PORT": ("chosen by the kernel unless named", r"\d+"),
    "TORCHELASTIC_RUN_ID": ("random in both unless --rdzv-id says it", r".+"),
    "TORCHELASTIC_ERROR_FILE": ("another folder", r"/.*/attempt_0/\d+/error\.json"),
    "OMP_NUM_THREADS": ("shares the CPUs out; torchrun gives 1, or nothing to one worker", r"\d+"),
    "CTRUN_GENERATION": ("ctrun's own", r"0"),
    "CTRUN_DEVICE_INDEX": ("ctrun's own, where a worker sees its GPU alone", r"0"),
    "JAX_LOCAL_DEVICE_IDS": ("the same, for JAX", r"0"),
    "CTRUN_JOB_COOKIE": ("ctrun's own", r".+"),
    "CTRUN_PREEMPT_FILE": ("ctrun's own", r"/.+/preempt\.json"),
    "CTRUN_SNAPSHOT": ("ctrun's own, with restarts", r"/proc/\d+/fd/\d+"),
    "CTRUN_HANDOVER": ("ctrun's own, with restarts", r"/proc/\d+/fd/\d+:\d+"),
    "CTRUN_PROGRESS": ("ctrun's own", r"/proc/\d+/fd/\d+:\d+"),
    "TORCH_WORKER_SERVER_SOCKET": ("what ctrun asks at a hang", r"/.+"),
}
# The shell's or the test's own, not the launchers'.
OUTSIDE = {"_", "SHLVL", "OLDPWD", "PWD", "CTRUN_TEST_COOKIE"}

# A job under both. `same` are names of DIFFERENCES that must be equal here. {port}, {logs} and
# {other} stand for a free port, the folder of --log-dir, and a name for 127.0.0.1.
Row = collections.namedtuple("Row", "name args workers env same", defaults=(2, {}, ()))
ROWS = [
    Row("defaults", [], 1),
    Row(
        "alone",
        ["--standalone", "--nproc-per-node=2", "--max-restarts", "2", "--role", "trainer",
         "--monitor-interval", "0.5", "--signals-to-handle", "SIGTERM,SIGUSR1",
         "--start-method", "fork", "--event-log-handler", "null", "--shutdown-timeout", "7"],
    ),
    Row(
        "static",
        ["--nnodes", "1:1", "--node-rank=0", "--nproc-per-node", "2", "--rdzv-id", "job7",
         "--rdzv-backend", "static", "--master-addr", "127.0.0.1", "--master-port", "{port}"],
        same=("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    ),
    Row(
        "endpoint",
        ["--rdzv-endpoint", "localhost:{port}", "--nproc-per-node", "1"], 1,
        same=("MASTER_ADDR", "MASTER_PORT"),
    ),
    Row(
        "c10d",
        ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "j1",
         "--rdzv-conf", "timeout=60,join_timeout=30", "--nproc-per-node", "2",
         "--local-addr", "127.0.0.1"],
        env={"OMP_NUM_THREADS": "3"},
        same=("MASTER_ADDR", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS"),
    ),
    Row(
        "gpu",
        ["--virtual-local-rank", "--nproc-per-node=2"],
        env={"CUDA_VISIBLE_DEVICES": "5, GPU-x"},
    ),
    Row("module", ["--module", "--nproc-per-node=2"]),
    Row("program", ["--no-python", "--nproc-per-node=2"]),
    Row(
        "logs",
        ["--nproc-per-node=2", "--rdzv-id", "job7", "--rdzv-backend", "c10d",
         "--rdzv-endpoint", "localhost:0", "--log-dir", "{logs}", "--tee", "3",
         "--log-line-prefix-template", "<${role_name}/${rank}/${local_rank}@${hostname}>",
         "--local-ranks-filter", "0", "--duplicate-stdout-filters", "apple,r,, t",
         "--duplicate-stderr-filters", "plum"],
        same=("TORCHELASTIC_RUN_ID",),
    ),
    Row(
        "redirects",
        ["--nproc-per-node=2", "--rdzv-id", "job7", "--rdzv-backend", "c10d",
         "--rdzv-endpoint", "localhost:0", "--log-dir", "{logs}",
         "--redirects", "0:1,1:3", "--tee", "0:2", "--log-line-prefix-template", "${local_rank}>"],
        same=("TORCHELASTIC_RUN_ID",),
    ),
    Row(
        "empty",
        ["--nproc-per-node=2", "--rdzv-id", "", "--local-addr", "",
         "--master-addr", "", "--local-ranks-filter", "", "--log-dir", "", "--rdzv-endpoint", "",
         "--rdzv-conf", "", "--duplicate-stdout-filters", ""],
    ),
    Row("empty role", ["--nproc-per-node=2", "--role", ""]),
    Row(
        "empty, static",
        ["--nproc-per-node=2", "--rdzv-id=", "--local-addr=", "--master-port", "{port}"],
        same=("MASTER_ADDR", "MASTER_PORT"),
    ),
    Row(
        "blanks",
        ["--nproc-per-node", " 2 ", "--nnodes", " 1 : 1 ", "--max-restarts", "  1",
         "--monitor-interval", " 0.1 ", "--master-port", " {port} ", "--node-rank", " 0",
         "--shutdown-timeout", "3 ", "--rdzv-id", "job 7"],
        same=("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
    ),
    Row(
        "filters without tee",
        ["--nproc-per-node=2", "--rdzv-id", "job7", "--rdzv-backend", "c10d",
         "--rdzv-endpoint", "localhost:0", "--log-dir", "{logs}",
         "--duplicate-stdout-filters", "apple", "--duplicate-stderr-filters", "apple"],
        same=("TORCHELASTIC_RUN_ID",),
    ),
    Row(
        "no files",
        ["--nproc-per-node=2", "--log-dir", "/dev/null", "--redirects", "3"],
        same=("TORCHELASTIC_ERROR_FILE",),
    ),
]  # fmt: skip

# What ctrun refuses by name -> (what torchrun does here, what the line must say).
REFUSED = {
    ("--run-path",): (0, "--run-path is not supported"),
    ("--logs-specs", "nobody"): (1, "--logs-specs is not supported"),
}
# Not a job: told by themselves below.
ALONE = {"--help", "--print-completion", "--numa-binding"}

# Wrong under both: torchrun's exit code (2 from its parser, 1 from an exception later on), and what
# ctrun's one line names; its exit code is 2 for all.
WRONG = [
    (["--nnodes", "1:2:3"], 1, "--nnodes"),
    (["--nnodes", "2:1"], 1, "--nnodes"),
    (["--nnodes", "0"], 1, "--nnodes"),
    (["--nproc-per-node", "some"], 1, "--nproc-per-node"),
    (["--nproc-per-node", "0"], 1, "--nproc-per-node"),
    (["--nproc-per-node", "-1"], 1, "--nproc-per-node"),
    (["--max-restarts", "-1"], 1, "--max-restarts"),
    (["--max-restarts", "one"], 2, "--max-restarts"),
    (["--monitor-interval", "often"], 2, "--monitor-interval"),
    (["--start-method", "bogus"], 2, "--start-method"),
    (["--event-log-handler", "bogus"], 1, "--event-log-handler"),
    (["--rdzv-conf", "a=1,b", "--rdzv-backend", "c10d"], 1, "--rdzv-conf"),
    (["--rdzv-backend", "bogus"], 1, "--rdzv-backend"),
    (["--rdzv-backend", "etcd"], 1, "--rdzv-backend"),
    (["--rdzv-backend", "etcd-v2"], 1, "--rdzv-backend"),
    (["--rdzv-backend", "etcd", "--rdzv-endpoint", "localhost:port"], 1, "--rdzv-endpoint"),
    (["--rdzv-endpoint", "localhost:port"], 1, "--rdzv-endpoint"),
    (["--redirects", "5"], 1, "--redirects"),
    (["--redirects", "0:4"], 1, "--redirects"),
    (["--tee", "12"], 1, "--tee"),
    (["--local-ranks-filter", "a"], 1, "--local-ranks-filter"),
    (["--node-rank", "first"], 2, "--node-rank"),
    (["--master-port", "http"], 2, "--master-port"),
    (["--numa-binding", "near"], 2, "--numa-binding"),
    (["--shutdown-timeout", "-1"], 1, "--shutdown-timeout"),
    (["--print-completion", "fish"], 2, "--print-completion"),
    (["--standalone=1"], 2, "--standalone"),
    (["--module", "--no-python"], 1, "--no-python"),
    (["--bogus"], 2, "--bogus"),
    (["-x"], 2, "-x"),
]

TORCHRUN = pathlib.Path(CURRENT).with_name("torchrun")


def option_name(word):
    """The long name of an option in the argument list of a row; None for a value."""
    return word.partition("=")[0].replace("_", "-") if word.startswith("--") else None


def as_variables(args):
    """The same options from the environment."""
    env, rest = {}, list(args)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "1"
        env["PET_" + name[2:].upper().replace("-", "_")] = value
    return env


def tree(folder):
    """What stands below the folder of --log-dir: path -> mode, text. The random part of the run's
    folder is the same length for all."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = re.sub(r"\A(\w+)_\w{8}(?=/|\Z)", r"\1_XXXXXXXX", str(path.relative_to(folder)))
        mode = oct(stat.S_IMODE(path.stat().st_mode))
        text = path.read_text() if path.is_file() else None
        # Workers take turns here in an order of their own.
        found[name] = (mode, sorted(text.splitlines()) if "filtered" in name else text)
    return found


@unittest.skipUnless(TORCHRUN.exists(), f"no torchrun at {TORCHRUN}; tools/test --with-torch")
class Golden(testlib.Case):
    def setUp(self):
        super().setUp()
        self.dump = self.script("dump.py", f"#!/usr/bin/env python3\n{DUMP}")
        os.chmod(self.dump, 0o755)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port = taken.getsockname()[1]
        self.logs = self.tmp / "logs"
        self.base = {
            "PYTHON_EXEC": str(TORCHRUN.with_name("python")), "PYTHONPATH": str(self.tmp),
        }  # fmt: skip
        alias = python_package.folder_with_ctrun(self) / "torchrun"
        python_package.alias_command(self, alias.parent, "install-torchrun")
        self.launchers = {"ctrun": testlib.program("ctrun"), "the alias": str(alias)}

    def job(self, launcher, row, args, env):
        """Runs the row; returns what the workers found, the result, and the tree of log files."""
        folder = self.tmp / "facts"
        folder.mkdir()
        module = "--module" in row.args
        result = self.run_program(
            launcher, *args, "dump" if module else self.dump, folder, "--opt", "${local_rank}",
            deadline=LIMIT, env={**self.base, **row.env, **env},
        )  # fmt: skip
        self.assertEqual(result.code, 0, f"{row.name}: {result}")
        facts = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(row.workers)]
        self.assertEqual(len(list(folder.iterdir())), row.workers)
        files = tree(self.logs)
        shutil.rmtree(folder)
        shutil.rmtree(self.logs, ignore_errors=True)
        return facts, result, files

    def compare(self, row, theirs, ours):
        for rank, (their, our) in enumerate(zip(theirs, ours)):
            self.assertEqual(their["argv"], our["argv"])
            a, b = their["env"], our["env"]
            for name in sorted((a.keys() | b.keys()) - OUTSIDE):
                if name.startswith("PET_"):
                    continue
                with self.subTest(row=row.name, rank=rank, name=name):
                    if name in DIFFERENCES and name not in row.same:
                        self.assertRegex(b.get(name, ""), rf"\A(?:{DIFFERENCES[name][1]})\Z")
                    else:
                        self.assertEqual(a.get(name), b.get(name))

    def test_each_command_line_acts_alike(self):
        for row in ROWS:
            args = [a.format(port=self.port, logs=self.logs) if "${" not in a else a
                    for a in row.args]  # fmt: skip
            theirs, their_result, their_files = self.job(str(TORCHRUN), row, args, {})
            underscores = [a.replace("-", "_").replace("__", "--", 1) if a.startswith("--") else a
                           for a in args]  # fmt: skip
            for how, ours in (
                ("words", (args, {})),
                ("underscores", (underscores, {})),
                ("PET_ variables", ([], as_variables(args))),
            ):
                if row.name == "empty role" and how == "PET_ variables":
                    continue  # to ctrun an empty variable is one that is not set
                for name, launcher in self.launchers.items():
                    with self.subTest(row=row.name, how=how, launcher=name):
                        facts, result, files = self.job(launcher, row, *ours)
                        self.compare(row, theirs, facts)
                        self.assertEqual(their_files, files)
                        if "--log-line-prefix-template" in row.args:
                            self.same_screen(row, their_result, result)

    def same_screen(self, row, theirs, ours):
        """torchrun puts no prefix in front of what it does not tee, and says things of its own."""
        prefix = r"\A(<default/\d/\d@\S*>|\d>)"
        for a, b in ((theirs.out, ours.out), (theirs.err, ours.err)):
            shown = [sorted(line for line in x.splitlines() if re.match(prefix, line)) for x in (a, b)]
            self.assertEqual(*shown, row.name)

    def test_the_table_has_every_option(self):
        shown = self.run_program(str(TORCHRUN), "--help", deadline=LIMIT)
        self.assertEqual(shown.code, 0, shown)
        known = {
            name.replace("_", "-")
            for line in shown.out.splitlines() if re.match(r"  -", line)
            for name in re.findall(r"--[a-z][a-z_-]*", line)
        }  # fmt: skip
        rows = {option_name(word) for row in ROWS for word in row.args} - {None}
        self.assertEqual(rows | {args[0] for args in REFUSED} | ALONE, known)
        self.assertEqual(self.ctrun("--help").code, 0)

    def test_what_is_wrong_is_wrong_under_both(self):
        cases = [args for args, _, _ in WRONG] + [list(args) for args in REFUSED]
        lines = [[*args, os.devnull] for args in cases]
        many = self.run_program(
            CURRENT, self.script("many.py", MANY), json.dumps([*lines, []]), deadline=LIMIT
        )
        self.assertEqual(many.code, 0, many)
        theirs = dict(zip(map(tuple, cases), json.loads(many.out.splitlines()[-1])))
        self.assertEqual(json.loads(many.out.splitlines()[-1])[-1], 2, "no program")
        expected = [(a, code, rf"{named}\b") for a, code, named in WRONG]
        expected += [(list(a), code, re.escape(text)) for a, (code, text) in REFUSED.items()]
        for args, their_code, text in expected:
            with self.subTest(args=args):
                self.assertEqual(theirs[tuple(args)], their_code)
                for launcher in self.launchers.values():
                    ours = self.run_program(launcher, *args, os.devnull)
                    self.assertEqual(ours.code, 2, ours)
                    self.assert_one_line(ours.err)
                    self.assertRegex(ours.err, text)

    def test_a_failure_is_copied_on_and_told(self):
        script = self.script("fail.py", FAIL)
        copies = []
        # A script that looks at more than "not 0" is served better by the worker's own code.
        for launcher, code in ((str(TORCHRUN), 1), *((ours, 3) for ours in self.launchers.values())):
            copy = self.tmp / "copy.json"
            result = self.run_program(
                launcher, "--nproc-per-node", "2", "--log-dir", self.logs, script,
                env={**self.base, "TORCHELASTIC_ERROR_FILE": copy}, deadline=LIMIT,
            )  # fmt: skip
            self.assertEqual(result.code, code, result)
            self.assertIn("Traceback: here", result.err)
            copies.append(json.loads(copy.read_text()))
            copy.unlink()
            errors = [name for name in tree(self.logs) if name.endswith("error.json")]
            self.assertTrue(errors)
            for name in errors:
                self.assertRegex(name, r"/attempt_0/[01]/error\.json\Z")
            shutil.rmtree(self.logs)
        self.assertEqual(copies, copies[:1] * 3)

    def test_binding_needs_no_gpu_here(self):
        args = ["--nproc-per-node", "2", "--numa-binding", "node", "--no-python", "true"]
        theirs = self.run_program(str(TORCHRUN), *args, deadline=LIMIT)
        if not pathlib.Path("/dev/nvidiactl").exists():
            self.assertNotEqual(theirs.code, 0, theirs)
        for launcher in self.launchers.values():
            ours = self.run_program(launcher, *args)
            self.assertEqual(ours.code, 0, ours)

    def test_completion_needs_no_python_package(self):
        for launcher, shell in itertools.product(self.launchers.values(), ("bash", "zsh")):
            ours = self.run_program(launcher, "--print-completion", shell)
            self.assertEqual(ours.code, 0, ours)
            self.assertIn("--nproc-per-node", ours.out)


if __name__ == "__main__":
    testlib.main()
