# SPDX-License-Identifier: Apache-2.0
"""The image of contrib/container, in a store of the test's own."""

import os
import shutil
import subprocess
import unittest

from .debian_roots import MIRROR
from .paths import SOURCE_ROOT

TOOLS = ("buildah", "podman", "runc", "mmdebstrap")


class ImageStore:
    """`podman` is the beginning of a command line that sees these images and none of the machine's own."""

    def __init__(self, case):
        for tool in TOOLS:
            if shutil.which(tool) is None:
                raise unittest.SkipTest(f"{tool} is not installed (tools/setup --packages)")
        if os.geteuid() != 0:
            raise unittest.SkipTest("needs root")
        self.case, self.folder = case, case.tmp / "images"
        # vfs needs no overlay file system, and works in a container.
        self.places = [f"--root={self.folder}/store", f"--runroot={self.folder}/run", "--storage-driver=vfs"]
        self.podman = ["podman", *self.places, "--cgroup-manager=cgroupfs", "--runtime=runc"]
        case.addCleanup(subprocess.run, [*self.podman, "rm", "--all", "--force"], capture_output=True, check=False)

    def command(self, *argv):
        done = subprocess.run(
            [str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2400, check=False
        )
        if done.returncode != 0:
            raise AssertionError(f"{argv}: {done.stdout}{done.stderr}")
        return done.stdout

    def build(self, name, containerfile, context, *options):
        self.command("buildah", *self.places, "build", "--isolation=chroot", *options,
                     f"--file={containerfile}", f"--tag={name}", context)  # fmt: skip

    def build_ctrun(self):
        """localhost/ctrun, of the tree as it was committed last."""
        context = self.folder / "context"
        (context / "dist").mkdir(parents=True)
        self.command(SOURCE_ROOT / "tools" / "wheel", context / "dist")
        base = self.folder / "debian.tar"
        self.command("mmdebstrap", "--quiet", "--variant=minbase", "bookworm", base, MIRROR)
        self.command(*self.podman, "import", base, "localhost/debian")
        self.build("ctrun", SOURCE_ROOT / "contrib" / "container" / "Containerfile", context,
                   "--build-arg=DEBIAN=localhost/debian")  # fmt: skip
