# SPDX-License-Identifier: Apache-2.0
"""The same command lines under PyPI's torchrun and under ctrun: workers must find the same
environment, variable by variable, but for the differences that stand in one table here."""

import json
import os
import pathlib
import shutil
import socket
import unittest

import testlib
from testlib.pytorch import CURRENT, LIMIT

DUMP = """
import json, os, sys
facts = {"env": dict(os.environ), "argv": sys.argv[2:]}
with open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w") as f:
    json.dump(facts, f)
"""

# name -> why it differs, and what ctrun's value must look like (None = absent).
DIFFERENCES = {
    "MASTER_ADDR": ("the literal the user wrote, else 127.0.0.1: no name service", r"[\w.:-]+"),
    "MASTER_PORT": ("chosen by the kernel unless named", r"\d+"),
    "TORCHELASTIC_RUN_ID": ("random in both unless --rdzv-id says it", r".+"),
    "TORCHELASTIC_ERROR_FILE": ("another folder", r"/.*/attempt_0/\d+/error\.json"),
    "OMP_NUM_THREADS": ("shares the CPUs out; torchrun gives 1, or nothing to one worker", r"\d+"),
    "CTRUN_GENERATION": ("ctrun's own", r"0"),
    "CTRUN_DEVICE_INDEX": ("ctrun's own, where a worker sees its GPU alone", r"0"),
    "CTRUN_JOB_COOKIE": ("ctrun's own", r".+"),
    "CTRUN_PREEMPT_FILE": ("ctrun's own", r"/.+/preempt\.json"),
    "CTRUN_SNAPSHOT": ("ctrun's own, with restarts", r"/proc/\d+/fd/\d+"),
    "CTRUN_PROGRESS": ("ctrun's own", r"/proc/\d+/fd/\d+:\d+"),
}
# The shell's or the test's own, not the launchers'.
OUTSIDE = {"_", "SHLVL", "OLDPWD", "PWD", "CTRUN_TEST_COOKIE"}

TORCHRUN = pathlib.Path(CURRENT).with_name("torchrun")


@unittest.skipUnless(TORCHRUN.exists(), f"no torchrun at {TORCHRUN}; tools/test --with-torch")
class Golden(testlib.Case):
    def workers(self, name, launcher, args, count, env):
        folder = self.tmp / name
        folder.mkdir()
        dump = self.script("dump.py", DUMP)
        result = self.run_program(
            launcher, *args, dump, folder, "--opt", "${local_rank}", deadline=LIMIT, env=env
        )
        self.assertEqual(result.code, 0, f"{name}: {result}")
        facts = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
        shutil.rmtree(folder)
        return facts

    def compare(self, *args, workers=2, same=(), env=None):
        """`same` are names of DIFFERENCES that must be equal for these arguments."""
        env = {"PYTHON_EXEC": str(TORCHRUN.with_name("python")), **(env or {})}
        theirs = self.workers("torchrun", str(TORCHRUN), args, workers, env)
        ours = self.workers("ctrun", testlib.program("ctrun"), args, workers, env)
        for rank, (their, our) in enumerate(zip(theirs, ours)):
            self.assertEqual(their["argv"], our["argv"])
            a, b = their["env"], our["env"]
            for name in sorted((a.keys() | b.keys()) - OUTSIDE):
                with self.subTest(args=args, rank=rank, name=name):
                    if name in DIFFERENCES and name not in same:
                        self.assertRegex(b.get(name, ""), rf"\A(?:{DIFFERENCES[name][1]})\Z")
                    else:
                        self.assertEqual(a.get(name), b.get(name))

    def test_alone_and_with_role_and_restarts(self):
        self.compare(
            "--standalone", "--nproc-per-node=2", "--max-restarts", "2", "--role", "trainer",
            "--monitor-interval", "0.5", "--signals-to-handle", "SIGTERM,SIGUSR1",
            "--start-method", "fork", "--event-log-handler", "null",
        )  # fmt: skip

    def test_defaults(self):
        self.compare(workers=1)

    def test_static(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        self.compare(
            "--nnodes", "1:1", "--node_rank=0", "--nproc_per_node", "2", "--rdzv-id", "job7",
            "--master-addr", "127.0.0.1", "--master-port", port,
            same=("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"),
        )  # fmt: skip
        self.compare(
            "--rdzv-endpoint", f"localhost:{port}", "--nproc-per", "1", workers=1,
            same=("MASTER_ADDR", "MASTER_PORT"),
        )  # fmt: skip

    def test_c10d_from_the_environment(self):
        env = {
            "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": "localhost:0", "PET_RDZV_ID": "j1",
            "PET_RDZV_CONF": "timeout=60,join_timeout=30", "PET_NPROC_PER_NODE": "2",
            "PET_LOCAL_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "3",
        }  # fmt: skip
        self.compare(env=env, same=("MASTER_ADDR", "TORCHELASTIC_RUN_ID", "OMP_NUM_THREADS"))

    def test_virtual_local_rank(self):
        env = {"CUDA_VISIBLE_DEVICES": "5, GPU-x"}
        self.compare("--virtual-local-rank", "--nproc-per-node=2", env=env)

    def test_what_is_wrong_is_wrong_under_both(self):
        for args in (
            ["--rdzv-conf", "a=1,b", "--rdzv-backend", "c10d"],
            ["--start-method", "bogus"],
        ):
            with self.subTest(args=args):
                theirs = self.run_program(str(TORCHRUN), *args, os.devnull, deadline=LIMIT)
                self.assertNotEqual(theirs.code, 0, theirs)
                ours = self.ctrun(*args, os.devnull)
                self.assertEqual(ours.code, 2, ours)
                self.assert_one_line(ours.err)


if __name__ == "__main__":
    testlib.main()
