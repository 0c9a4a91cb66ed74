# SPDX-License-Identifier: Apache-2.0
"""The image of contrib/container under podman, as a cluster runs it: PID 1, not root, a root that cannot be written
and 64 MB of shared memory. Takes minutes and Debian's packages, so only `tools/test --with-packages` runs it."""

import json
import os

import testlib
from testlib.container_image import ImageStore

# README says 8 MB.
MAX_BYTES = 10 * 1000 * 1000
# Two workers that end in order when they are told to, and a process that outlives the one that started it.
JOB = """
trap 'echo saved; exit 0' TERM
(sh -c 'exec sleep 0' &)
echo up $(id -u) $(cat /proc/1/comm)
while :; do sleep 0.1; done
"""


class Container(testlib.Case):
    def setUp(self):
        super().setUp()
        self.images = ImageStore(self)
        self.podman = self.images.podman
        limit = os.sysconf("SC_OPEN_MAX")
        # The defaults of podman are more than a sandbox may have.
        self.options = [
            "--network=none", "--shm-size=64m", "--read-only", "--read-only-tmpfs=false",
            f"--ulimit=nofile={limit}:{limit}", "--ulimit=nproc=1000:1000",
        ]  # fmt: skip

    def processes(self):
        """State and command of each, without the ps that says so."""
        lines = self.images.command(*self.podman, "exec", "job", "ps", "-o", "stat,comm").splitlines()[1:]
        found = [tuple(line.split()[:2]) for line in lines]
        return [(state, name) for state, name in found if name != "ps"]

    def test_it_ends_in_order_and_leaves_nothing(self):
        self.images.build_ctrun()
        (image,) = json.loads(self.images.command(*self.podman, "image", "inspect", "localhost/ctrun"))
        self.assertLess(image["Size"], MAX_BYTES)
        self.assertEqual(image["Config"]["User"], "65532:65532")

        job = self.start(
            *self.podman, "run", "--name=job", *self.options, "localhost/ctrun", "-n", "2", "--no-python", "sh", "-c", JOB
        )
        for rank in (0, 1):
            job.wait_for(f"[{rank}] up 65532 ctrun")
        # The guard, and each rank with the sleep that it waits for: the others that have ended are reaped.
        testlib.wait_until(
            lambda: sorted(name for _, name in self.processes()) == ["ctrun", "ctrun-guard", "sh", "sh", "sleep", "sleep"],
            "only the job's own processes",
        )
        self.images.command(*self.podman, "exec", "job", "ls", "/usr/share/ctrun/licenses/LICENSE")
        main = json.loads(self.images.command(*self.podman, "inspect", "job"))[0]["State"]["Pid"]
        self.images.command(*self.podman, "stop", "--time=30", "job")
        result = job.wait()
        self.assertEqual(result.code, 123, result)
        self.assertEqual(result.out.count("saved"), 2, result)
        self.assertFalse(testlib.pid_alive(main))

        # The store alone, in the same image.
        store = self.start(
            *self.podman, "run", "--name=store", *self.options, "--entrypoint=/usr/bin/ctrdzvd", "localhost/ctrun"
        )
        store.wait_for("listening on")
        self.images.command(*self.podman, "exec", "store", "ctrun-stat", "--health", "127.0.0.1:29500")
        self.images.command(*self.podman, "stop", "--time=30", "store")
        self.assertEqual(store.wait().code, 0)


if __name__ == "__main__":
    testlib.main()
