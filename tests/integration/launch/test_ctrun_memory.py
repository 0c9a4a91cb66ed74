# SPDX-License-Identifier: Apache-2.0
"""A worker that the kernel kills for want of memory, in a cgroup of the test's own."""

import os
import pathlib
import uuid

import testlib

CGROUPS = pathlib.Path("/sys/fs/cgroup")
LIMIT = 128 << 20

# The last rank takes what there is and more; the others wait.
WORKER = """
import os, time
if os.environ["RANK"] == "1":
    held = []
    while True:
        held.append(b"x" * (8 << 20))
time.sleep(1000)
"""


class Memory(testlib.Case):
    def place(self):
        """Our memory cgroup's folder and the name of its limit, of either version."""
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return CGROUPS / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        return CGROUPS / path.lstrip("/"), "memory.max"

    def make_cgroup(self):
        parent, limit = self.place()
        folder = parent / f"ctrun-test-{uuid.uuid4().hex}"
        try:
            folder.mkdir()
            self.addCleanup(folder.rmdir)
            (folder / limit).write_text(str(LIMIT))
            for name in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
                if (folder / name).exists():
                    (folder / name).write_text(str(LIMIT) if "memsw" in name else "0")
        except OSError as why:
            self.skipTest(f"no memory cgroup can be made here: {why}")
        return folder

    def test_the_victim_is_told(self):
        folder = self.make_cgroup()
        job = self.start_ctrun(
            "-n", "2", self.script("worker.py", WORKER),
            preexec=lambda: (folder / "cgroup.procs").write_text(str(os.getpid())),
        )  # fmt: skip
        result = job.wait()
        self.assertEqual(result.code, 137, result)
        self.assertRegex(result.err, r"rank 1 failed on .* killed by signal 9")
        self.assertRegex(
            result.err,
            r"it was probably out of memory \(the kernel "
            r"(log says .*Killed process|has just killed 1 process of our cgroup.* 128 MiB)",
        )
        job.wait_no_family(30)

    def test_a_kill_of_somebody_else_is_not(self):
        script = self.script("kill.py", "import os; os.kill(os.getpid(), 9)")
        result = self.ctrun("-n", "2", script)
        self.assertEqual(result.code, 137, result)
        self.assertNotIn("probably out of memory", result.err)


if __name__ == "__main__":
    testlib.main()
