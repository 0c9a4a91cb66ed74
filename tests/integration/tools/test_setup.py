# SPDX-License-Identifier: Apache-2.0
"""tools/setup against a pretended package system: what it asks for, and what it says when it may
not. The programs it calls are stand-ins in a folder at the front of PATH."""

import os

import testlib

SETUP = str(testlib.SOURCE_ROOT / "tools" / "setup")

# As the real one: knows some packages, complains and exits 1 about the others.
DPKG_QUERY = """#!/bin/bash
shift 3
code=0
for package in "$@"; do
    case " $INSTALLED " in
        *" $package "*) echo "ii $package:amd64" ;;
        *" removed:$package "*) echo "rc $package" ;;
        *) echo "dpkg-query: no packages found matching $package" >&2; code=1 ;;
    esac
done
exit $code
"""
APT_GET = """#!/bin/bash
echo "$@" >>"$CALLS"
case " $* " in *" $APT_FAILS "*) exit 100 ;; esac
"""
ID = "#!/bin/bash\necho $USER_ID\n"
SUDO = """#!/bin/bash
[ "$SUDO_WORKS" = yes ] || exit 1
[ "$1" = -n ] && shift
"$@"
"""


class Setup(testlib.Case):
    def setUp(self):
        super().setUp()
        self.calls = self.tmp / "calls"
        self.bin = self.tmp / "bin"
        self.bin.mkdir()
        for name, text in (
            ("dpkg-query", DPKG_QUERY), ("apt-get", APT_GET), ("id", ID), ("sudo", SUDO),
        ):  # fmt: skip
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        # What it wants, in its own words: the dry run on a machine that has nothing.
        self.wanted = self.setup("--dry-run").out.split("missing:")[1].split()

    def setup(self, *args, installed="", uid=0, sudo="no", fails="nothing"):
        self.calls.write_text("")
        return self.run_program(
            SETUP, *args,
            env={
                "PATH": f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin", "CALLS": self.calls,
                "INSTALLED": installed, "USER_ID": uid, "SUDO_WORKS": sudo, "APT_FAILS": fails,
            },
        )  # fmt: skip

    def test_nothing_missing_is_silent(self):
        result = self.setup(installed=" ".join(self.wanted))
        self.assertEqual((result.code, result.out, result.err), (0, "", ""))
        self.assertEqual(self.calls.read_text(), "")

    def test_installs_exactly_what_is_missing(self):
        some = [p for p in self.wanted if p not in ("meson", "mandoc")]
        result = self.setup(installed=" ".join(some) + " removed:mandoc")
        self.assertEqual(result.code, 0, result)
        update, install = self.calls.read_text().splitlines()
        self.assertTrue(update.endswith(" update"), update)
        self.assertTrue(install.endswith(" install meson mandoc"), install)

    def test_fresh_machine_gets_all_packages(self):
        result = self.setup()
        self.assertEqual(result.code, 0, result)
        self.assertIn("install " + " ".join(self.wanted), self.calls.read_text())

    def test_stale_package_lists_are_no_reason_to_stop(self):
        self.assertEqual(self.setup(fails="update").code, 0)

    def test_failed_installation_is_named(self):
        result = self.setup(installed=" ".join(self.wanted[1:]), fails="install")
        self.assertEqual(result.code, 1, result)
        self.assertIn(f"could not install: {self.wanted[0]}", result.err)

    def test_without_rights_it_says_what_to_do(self):
        result = self.setup(installed=" ".join(self.wanted[1:]), uid=1000)
        self.assertEqual(result.code, 1, result)
        self.assertIn(f"apt-get install --no-install-recommends {self.wanted[0]}", result.err)
        self.assertEqual(self.calls.read_text(), "")

    def test_sudo_is_used_when_it_may(self):
        result = self.setup(installed=" ".join(self.wanted[1:]), uid=1000, sudo="yes")
        self.assertEqual(result.code, 0, result)
        self.assertIn("with sudo", result.out)
        self.assertTrue(self.calls.read_text().splitlines()[-1].endswith(self.wanted[0]))

    def test_dry_run_changes_nothing(self):
        self.assertEqual(self.setup("--dry-run").code, 1)
        self.assertEqual(self.setup("--dry-run", installed=" ".join(self.wanted)).code, 0)
        self.assertEqual(self.calls.read_text(), "")

    def test_unknown_option_is_refused(self):
        result = self.setup("--everything")
        self.assertEqual(result.code, 2, result)
        self.assert_one_line(result.err)


if __name__ == "__main__":
    testlib.main()
