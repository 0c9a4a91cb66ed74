# SPDX-License-Identifier: Apache-2.0
"""Debian systems without a compiler or any library of ours, in which tests install packages."""

import os
import pathlib
import shutil
import subprocess
import unittest

from .case import Case

MIRROR = os.environ.get("CTRUN_DEBIAN_MIRROR", "http://deb.debian.org/debian")
# What a package manager keeps for itself, and what it writes about each installation.
BOOKKEEPING = ("proc", "dev", "sys", "tmp", "var/cache", "var/lib/apt", "var/lib/dpkg", "var/log")


class DebianRoots(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
            raise unittest.SkipTest("needs root and mmdebstrap (tools/setup --packages)")

    def command(self, *argv, limit=2400):
        done = subprocess.run(
            [str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def bare_root(self, release, *options):
        root = self.tmp / release
        self.command(
            "mmdebstrap", "--quiet", "--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"',
            # The user of apt cannot read what this test puts there.
            '--aptopt=APT::Sandbox::User "root"', *options, release, root, MIRROR)  # fmt: skip
        return root

    def inside(self, root, script):
        # The mounts are gone with the shell that made them.
        return self.command(
            "unshare", "--mount", "--pid", "--fork", "sh", "-c",
            'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" && exec chroot "$1" sh -ec "$2"',
            "sh", root, script)  # fmt: skip

    def files_in(self, root):
        """All paths, relative to the root, but those of the package manager's own books."""
        found = set()
        for folder, folders, names in os.walk(root):
            here = pathlib.Path(folder).relative_to(root)
            folders[:] = [name for name in folders if str(here / name) not in BOOKKEEPING]
            found.update(str(here / name) for name in folders + names)
        return found
