# SPDX-License-Identifier: Apache-2.0
"""The Debian packages of tools/deb in bare roots of Debian 12 and 13: installed, used, upgraded and purged. Takes
minutes and Debian's packages, so only `tools/test --with-packages` runs it."""

import os
import re
import shutil

import testlib
from testlib import SOURCE_ROOT

PACKAGES = ("ctrdzvd", "ctrun", "ctrun-train", "libctworker-dev", "libctworker0", "python3-ctrun")
OLDER, NEWER = "0.0.1~older", "0.0.1"
# The package of the library that ctrun loads for etcd.
LIBCURL = {"bookworm": "libcurl4", "trixie": "libcurl4t64"}
# Stands for systemd's, and writes down what it is asked.
SYSTEMCTL = """#!/bin/sh
echo "$@" >>/var/log/systemctl
"""


class Deb(testlib.DebianRoots):
    def packages(self, release, version):
        """Makes them in a folder that may have those of an older version."""
        out = self.tmp / "dist" / release
        # Fails if lintian finds an error or a warning that debian/ does not explain.
        self.command(SOURCE_ROOT / "tools" / "deb", "--release", release, "--version", version, out)
        made = list(out.glob("*.deb"))
        self.assertEqual(sorted(p.name.split("_")[:2] for p in made), [[name, version] for name in PACKAGES])
        self.assertEqual({p.name.split("_")[1] for p in (out / "debug").iterdir()}, {version})
        return made

    def install(self, root, release):
        """As README says, which has the folder of one release."""
        (line,) = re.findall(r"`(apt install [^`]+)`", (SOURCE_ROOT / "README.md").read_text())
        self.assertIn("/bookworm/", line)
        shutil.rmtree(root / "tmp" / "dist", ignore_errors=True)
        shutil.copytree(self.tmp / "dist" / release, root / "tmp" / "dist" / release)
        (root / "tmp" / "apt.conf").write_text('APT::Get::Assume-Yes "true";\n')
        self.inside(root, f"""
            export DEBIAN_FRONTEND=noninteractive
            (cd /tmp && APT_CONFIG=/tmp/apt.conf {line.replace("bookworm", release)})
            dpkg --verify {' '.join(PACKAGES)}
            dpkg-query -W -f '${{Version}}\\n' {' '.join(PACKAGES)} >/tmp/versions""")  # fmt: skip
        return (root / "tmp" / "versions").read_text().split()

    def install_dependencies(self, root, packages, *more):
        """What the packages need of Debian stays when they go, and is none of their traces."""
        fields = [self.command("dpkg-deb", "--field", package, "Depends").split(",") for package in packages]
        needed = {entry.strip() for entries in fields for entry in entries}
        others = sorted({*more, *(entry for entry in needed if entry and entry.split()[0] not in PACKAGES)})
        self.inside(root, f"""
            export DEBIAN_FRONTEND=noninteractive
            apt-get -qq update
            apt-get -qq -y --no-install-recommends satisfy '{', '.join(others)}'""")  # fmt: skip

    def let_systemd_run(self, root):
        """What the packages see of it: its folder, and systemctl."""
        (root / "run" / "systemd" / "system").mkdir(parents=True)
        systemctl = root / "usr" / "bin" / "systemctl"
        systemctl.write_text(SYSTEMCTL)
        systemctl.chmod(0o755)

    def enable_service(self, root):
        """As `systemctl enable` does."""
        wants = root / "etc" / "systemd" / "system" / "multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        os.symlink("/usr/lib/systemd/system/ctrdzvd.service", wants / "ctrdzvd.service")

    def asked_of_service(self, root):
        log = root / "var" / "log" / "systemctl"
        return [line for line in log.read_text().splitlines() if "ctrdzvd" in line] if log.exists() else []

    def use(self, root):
        shutil.copy(SOURCE_ROOT / "debian" / "tests" / "run", root / "tmp")
        self.inside(root, """
            cd /tmp && ./run && ctrdzvd --version
            export CTRUN_TOKEN=0123456789abcdef
            etcd() {
                code=0
                ctrun --rdzv-backend etcd --rdzv-endpoint 127.0.0.1:1 --rdzv-id deb --nnodes 2 \\
                    --rdzv-conf join_timeout=1 true 2>/tmp/etcd || code=$?
            }
            # As where the package that is suggested is not installed.
            library=$(echo /usr/lib/*/libcurl.so.4)
            mv "$library" /tmp/library
            etcd
            mv /tmp/library "$library"
            test $code = 1
            test $(wc -l </tmp/etcd) = 1
            grep '^ctrun: etcd needs libcurl.so.4, which is not here: install the package libcurl4 ' /tmp/etcd
            # It is loaded; there is no etcd.
            etcd
            test $code = 120""")

    def test_they_install_run_upgrade_and_leave_nothing(self):
        for release in ("bookworm", "trixie"):
            with self.subTest(release):
                root = self.bare_root(release)
                older = self.packages(release, OLDER)
                (suggests,) = [self.command("dpkg-deb", "--field", package, "Suggests")
                               for package in older if package.name.startswith("ctrun_")]  # fmt: skip
                self.assertIn(LIBCURL[release], suggests.strip().split(", "))
                self.install_dependencies(root, older, LIBCURL[release])
                self.let_systemd_run(root)
                before = self.files_in(root)

                self.assertEqual(self.install(root, release), [OLDER] * len(PACKAGES))
                self.use(root)
                self.enable_service(root)
                # Of an administrator, and what the service has written.
                options = root / "etc" / "default" / "ctrdzvd"
                options.write_text("CTRDZVD_OPTIONS=--port 4711\n")
                (root / "etc" / "ctrdzvd.token").write_text("0123456789abcdef\n")
                (root / "var/lib/private/ctrdzvd").mkdir(parents=True)
                (root / "var/lib/private/ctrdzvd/journal").write_text("")
                os.symlink("private/ctrdzvd", root / "var/lib/ctrdzvd")

                self.packages(release, NEWER)
                self.assertEqual(self.install(root, release), [NEWER] * len(PACKAGES))
                self.use(root)
                self.assertEqual(self.asked_of_service(root), [], "an update must leave the daemon alone")
                self.assertIn("4711", options.read_text())
                self.assertTrue((root / "var/lib/ctrdzvd/journal").exists())

                self.inside(root, f"""
                    export DEBIAN_FRONTEND=noninteractive
                    apt-get -qq -y purge {' '.join(PACKAGES)}
                    rm -r /tmp/*""")  # fmt: skip
                self.assertEqual(self.asked_of_service(root), ["stop ctrdzvd.service"])
                self.assertEqual(sorted(self.files_in(root) - before), [])
                shutil.rmtree(root)


if __name__ == "__main__":
    testlib.main()
