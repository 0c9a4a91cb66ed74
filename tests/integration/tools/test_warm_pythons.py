# SPDX-License-Identifier: Apache-2.0
"""Warm starts under the versions of Python that other releases of Debian have. Each is unpacked into a folder, with
its own C library, and made to run there. Takes minutes and the network, so only `tools/test --with-packages` runs
it."""

import shutil
import sys
import unittest

import testlib
from testlib import SOURCE_ROOT
from testlib.debian_roots import MIRROR

LAUNCH = SOURCE_ROOT / "tests" / "integration" / "launch"


class WarmPythons(testlib.DebianRoots):
    def interpreter(self, release, name):
        """What a program under this interpreter sees of itself is as in its own system, except for the folder."""
        root = self.tmp / release
        self.command(
            "mmdebstrap", "--quiet", "--mode=chrootless", "--variant=extract",
            '--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=APT::Sandbox::User "root"',
            f"--include={name}", release, root, MIRROR)  # fmt: skip
        (loader,) = {path.resolve() for path in root.glob("**/lib/*-linux-gnu/ld-linux-*.so.?")}
        folders = [str(path) for path in (root / "lib", root / "usr" / "lib") for path in path.glob("*-linux-gnu")]
        python = root / "usr" / "bin" / name
        self.command("patchelf", "--set-interpreter", loader, "--force-rpath", "--set-rpath", ":".join(folders), python)
        return python

    @unittest.skipIf(shutil.which("patchelf") is None, "needs patchelf (tools/setup --packages)")
    def test_each_python_starts_warm(self):
        for release, name in (("bullseye", "python3.9"), ("trixie", "python3.13"), ("forky", "python3.14")):
            python = self.interpreter(release, name)
            for part in ("same", "plan", "spares"):
                with self.subTest(name, part=part):
                    self.command("env", f"TEST_PYTHON={python}", sys.executable, LAUNCH / f"test_ctrun_warm_{part}.py")


if __name__ == "__main__":
    testlib.main()
