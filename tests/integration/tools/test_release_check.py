# SPDX-License-Identifier: Apache-2.0
"""tools/release makes a release only of a commit that is one, and each other commit has a version of its own. That it
makes the same bytes twice takes minutes: test_release.py."""

import os
import re
import shutil
import subprocess

import testlib
from testlib import SOURCE_ROOT

VERSION = re.search(r"^  version: '(.+)',$", (SOURCE_ROOT / "meson.build").read_text(), re.M)[1]


class ReleaseCheck(testlib.Case):
    def setUp(self):
        super().setUp()
        if shutil.which("git") is None:
            self.skipTest("git is not in PATH")
        self.tree = self.tmp / "tree"
        (self.tree / "tools").mkdir(parents=True)
        for name in ("tools/release", "tools/common.sh", "meson.build"):
            shutil.copy(SOURCE_ROOT / name, self.tree / name)
        self.news(f"{VERSION} (2026-02-03)")
        self.git("init", "--quiet")
        self.commit()
        self.git("tag", f"v{VERSION}")

    def git(self, *args, **env):
        subprocess.run(
            ["git", "-c", "user.name=me", "-c", "user.email=me@here.example", "-C", str(self.tree), *args],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True, env={**os.environ, **env},
        )  # fmt: skip

    def commit(self, date="2026-02-03T00:00:00+0000"):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "tree: change", GIT_COMMITTER_DATE=date)

    def news(self, title):
        (self.tree / "NEWS.md").write_text(f"# News\n\n## {title}\n\nText.\n")

    def check(self):
        result = self.run_program(str(self.tree / "tools" / "release"), "--check")
        self.assertEqual(result.code, 1 if result.err else 0, result)
        return result.err

    def test_a_commit_with_tag_and_day_is_a_release(self):
        self.assertEqual(self.check(), "")

    def test_what_is_missing_is_said(self):
        self.news(f"{VERSION} (unreleased)")
        self.assertIn("changes that are not committed", self.check())
        self.commit()
        text = self.check()
        self.assertIn(f"does not have the tag v{VERSION}", text)
        self.assertIn(f"NEWS.md begins with '{VERSION} (unreleased)'", text)
        self.news("99.9.9 (2026-02-03)")
        self.assertIn("NEWS.md begins with '99.9.9 (2026-02-03)'", self.check())

    def test_it_makes_nothing_of_another_commit(self):
        self.commit()
        out = self.tmp / "out"
        result = self.run_program(str(self.tree / "tools" / "release"), str(out))
        self.assertEqual(result.code, 1, result)
        self.assertFalse(out.exists())

    def test_help_promises_no_more_than_contributing(self):
        words = " ".join(self.run_program(str(self.tree / "tools" / "release"), "--help").out.split())
        rules = " ".join((SOURCE_ROOT / "CONTRIBUTING.md").read_text().split())
        for text in (words, rules):
            self.assertIn("the same bytes, as long as Debian's and PyPI's build tools have not changed", text)

    def version(self, *mark):
        """As tools/deb and tools/wheel ask for it."""
        done = subprocess.run(
            ["bash", "-c", '. "$0/tools/common.sh" && snapshot_version "$@"', str(self.tree), *mark],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    def test_each_commit_has_a_version_of_its_own(self):
        self.assertEqual([self.version(), self.version(".dev")], [VERSION, VERSION])
        # The date of the last one is written as that of an earlier day.
        for date, digits in (
            ("2026-03-04T05:06:07+0000", "20260304050607"),
            ("2026-03-04T05:06:08+0000", "20260304050608"),
            ("2026-03-04T23:00:00-0500", "20260305040000"),
        ):
            self.commit(date)
            self.assertEqual([self.version(), self.version(".dev")], [f"{VERSION}~git{digits}", f"{VERSION}.dev{digits}"])

    def test_the_news_are_those_of_the_version(self):
        title = re.search(r"^## (\S+)", (SOURCE_ROOT / "NEWS.md").read_text(), re.M)
        self.assertEqual(title[1], VERSION)


if __name__ == "__main__":
    testlib.main()
