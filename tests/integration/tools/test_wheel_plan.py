# SPDX-License-Identifier: Apache-2.0
"""What a wheel would hold, and where: Meson's install plan of a build with the options of pyproject.toml, by which
meson-python makes the wheel. The wheel itself takes minutes to build; test_wheel.py installs it."""

import json
import re
import shutil
import subprocess

import testlib
from testlib import SOURCE_ROOT

# The folders of an installation into /venv: meson-python knows these names, and calls data what it puts below /venv.
PLACES = {
    "{bindir}": "bin",
    "{datadir}": "",
    "{libdir_shared}": "LIBRARIES",
    "{py_purelib}": "MODULES",
}
FILES = {
    "bin/ctrdzvd",
    "bin/ctrun",
    "bin/ctrun-stat",
    "LIBRARIES/libctworker.so.0",
    "share/bash-completion/completions/ctrdzvd",
    "share/bash-completion/completions/ctrun",
    "share/bash-completion/completions/ctrun-stat",
    "share/ctrun/ctreport-to-trace",
    "share/ctrun/ctrun-array.sbatch",
    "share/ctrun/ctrun-requeue.sbatch",
    "share/ctrun/ctrun.json",
    "share/ctrun/ctrun.qsub",
    "share/ctrun/ctrun.rules.yml",
    "share/ctrun/warm/sitecustomize.py",
    "share/zsh/site-functions/_ctrdzvd",
    "share/zsh/site-functions/_ctrun",
}


class WheelPlan(testlib.Case):
    def setUp(self):
        super().setUp()
        if shutil.which("meson") is None:
            self.skipTest("meson is not in PATH")

    def output_of(self, *argv):
        done = subprocess.run(
            [str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_every_file_is_in_its_place(self):
        options = re.search(r"^setup = \[(.*?)^\]", (SOURCE_ROOT / "pyproject.toml").read_text(), re.M | re.S)
        options = re.findall(r"'(-D[^']+)'", options[1])
        self.assertIn("-Dwheel=true", options)
        build = self.tmp / "build"
        # The library of the status over HTTP changes no place, and may be missing here.
        self.output_of("meson", "setup", build, SOURCE_ROOT, *options, "-Dhttp=auto", "-Detcd=auto")
        plan = json.loads(self.output_of("meson", "introspect", "--install-plan", build))

        planned = []
        for entries in plan.values():
            for source, entry in entries.items():
                place, _, rest = entry["destination"].partition("/")
                self.assertIn(place, PLACES, f"a wheel has no such place: {source} -> {entry['destination']}")
                planned.append("/".join(part for part in (PLACES[place], rest) if part))

        pages = [p.name for p in (SOURCE_ROOT / "man").glob("*.[0-9]") if p.name != "train.1"]
        modules = (SOURCE_ROOT / "worker" / "python").glob("*/*")
        modules = [p for p in modules if p.suffix in (".py", ".typed")]
        self.assertGreater(min(len(pages), len(modules)), 5)
        expected = FILES | {f"share/man/man{name[-1]}/{name}" for name in pages}
        expected |= {f"MODULES/{p.parent.name}/{p.name}" for p in modules}
        self.assertEqual(sorted(planned), sorted(expected))


if __name__ == "__main__":
    testlib.main()
