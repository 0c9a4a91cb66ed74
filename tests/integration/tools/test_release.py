# SPDX-License-Identifier: Apache-2.0
"""tools/release makes the same bytes in another folder at another time. Takes minutes and packages of Debian and
PyPI, so only `tools/test --with-packages` runs it."""

import json
import sys

import testlib
from testlib import SOURCE_ROOT

VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
print(JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(sys.argv[1]).read()))
"""


class Release(testlib.DebianRoots):
    def test_it_is_the_same_twice_and_lists_what_is_in_it(self):
        sums = []
        for name in ("first", "a/second"):
            tree, out = self.tmp / name, self.tmp / f"{name}-out"
            self.command("git", "clone", "--quiet", SOURCE_ROOT, tree)
            self.command(tree / "tools" / "release", "--snapshot", out)
            sums.append((out / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sums[0], sums[1])
        names = [line.split("  ")[1] for line in sums[0]]
        self.assertEqual(sum(name.endswith(".deb") and "dbgsym" not in name for name in names), 12, names)
        self.assertEqual(sum(name.endswith((".whl", ".tar.gz")) for name in names), 2, names)
        self.command("sh", "-c", 'cd "$1" && sha256sum --check --strict --quiet SHA256SUMS', "sh", out)

        bom = json.loads((out / "ctrun.cdx.json").read_text())
        listed = [c["name"] for c in bom["components"]]
        self.assertEqual(sorted(listed), sorted(set(names) - {"ctrun.cdx.json"} | {
            "cjson", "libmicrohttpd", "libsodium", "libuv1", "zlib"}))  # fmt: skip
        python = self.tmp / "venv" / "bin" / "python"
        self.command(sys.executable, "-m", "venv", self.tmp / "venv")
        self.command(python, "-m", "pip", "--quiet", "install", "cyclonedx-python-lib[json-validation]")
        self.assertEqual(self.command(python, "-c", VALIDATE, out / "ctrun.cdx.json").strip(), "None")


if __name__ == "__main__":
    testlib.main()
