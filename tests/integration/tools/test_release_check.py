# SPDX-License-Identifier: Apache-2.0
"""tools/release makes a release only of a commit that is one. That it makes the same bytes twice takes minutes:
test_release.py."""

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
        for name in ("tools/release", "meson.build"):
            shutil.copy(SOURCE_ROOT / name, self.tree / name)
        self.news(f"{VERSION} (2026-02-03)")
        self.git("init", "--quiet")
        self.commit()
        self.git("tag", f"v{VERSION}")

    def git(self, *args):
        subprocess.run(
            ["git", "-c", "user.name=me", "-c", "user.email=me@here.example", "-C", str(self.tree), *args],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", "tree: change")

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

    def test_the_news_are_those_of_the_version(self):
        title = re.search(r"^## (\S+)", (SOURCE_ROOT / "NEWS.md").read_text(), re.M)
        self.assertEqual(title[1], VERSION)


if __name__ == "__main__":
    testlib.main()
