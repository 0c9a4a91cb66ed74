# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own clients against `ctrdzvd`, and the very same checks against PyTorch's own store of
the same version: a check that only one of the two passes tells of a difference between them."""

import pathlib
import re
import shutil
import subprocess

import testlib
from testlib import pytorch
from testlib.pytorch import LIMIT, PROGRAMS


class Conformance:
    """The tests; the classes below say with which client."""

    # What a version may skip: calls that it does not have, and against its own store also promises
    # that this store does not keep.
    skips = frozenset()
    skips_own = frozenset()

    def conformance(self, port, *options, skips):
        script = str(PROGRAMS / "store_conformance.py")
        result = self.run_program(self.python, script, str(port), *options, deadline=LIMIT)
        self.assertEqual(result.code, 0, result)
        skipped = set(re.findall(r"^skipped (\w+):", result.out, re.MULTILINE))
        self.assertEqual(skipped, skips, f"other checks were skipped than known: {result}")
        tally = re.search(r"^torch \S+: (\d+) ok, \d+ skipped, 0 failed$", result.out, re.MULTILINE)
        self.assertIsNotNone(tally, result)
        self.assertGreaterEqual(int(tally.group(1)), 12, result)
        print(f"\n{tally.group(0)}", *options)

    def test_ctrdzvd_conforms(self):
        daemon, port = self.start_ctrdzvd()
        self.conformance(port, skips=self.skips)
        self.assertTrue(daemon.running(), "ctrdzvd ended under its clients")

    def test_the_own_store_conforms(self):
        script = str(PROGRAMS / "own_store.py")
        own = self.start(self.python, script, stdin=subprocess.PIPE)
        self.addCleanup(own.popen.stdin.close)
        port = own.wait_for("own store on port", LIMIT).split()[-1]
        self.conformance(port, "own", skips=self.skips | self.skips_own)


class Debian(Conformance, pytorch.Case):
    python = pytorch.DEBIAN
    skips = frozenset({
        "a_pop_blocks_until_a_push", "append", "barrier", "check", "clone", "list_keys",
        "multi_get_and_multi_set", "prefix_store_of_the_newer_calls", "queues",
    })  # fmt: skip
    skips_own = frozenset({
        "a_key_of_8_kib_is_the_longest", "a_value_above_8_mib", "a_wait_that_timed_out_is_forgotten",
    })  # fmt: skip


CPP = pathlib.Path("/usr/include/torch/csrc/distributed/c10d/TCPStore.hpp")
SEEN = """\
key: (none) -> 1
key: 1 -> 1
key: 1 -> 42
key: 42 -> new
key: new -> (none)
key: (none) -> of its own
6 notices
large: (none) -> 4194304 bytes
large: 4194304 bytes -> 8388608 bytes
8 notices
20008 notices
20000
"""


class DebianCpp(testlib.Case):
    """Debian's libtorch-dev, for what only the C++ interface has."""

    def test_a_watch_gets_every_notice(self):
        if shutil.which("g++") is None or not CPP.exists():
            self.skipTest("no g++ or no libtorch-dev here; see tools/setup --torch")
        program = self.tmp / "watch_keys"
        built = self.run_program(
            "g++", "-std=c++17", "-w", str(PROGRAMS / "watch_keys.cpp"), "-o", str(program),
            "-ltorch", "-ltorch_cpu", "-lc10", deadline=LIMIT,
        )  # fmt: skip
        self.assertEqual(built.code, 0, built)
        daemon, port = self.start_ctrdzvd()
        result = self.run_program(str(program), str(port), deadline=LIMIT)
        self.assertEqual((result.code, result.out), (0, SEEN), result)
        self.assertTrue(daemon.running(), "ctrdzvd ended under its client")


class Current(Conformance, pytorch.Case):
    python = pytorch.CURRENT


if __name__ == "__main__":
    testlib.main()
