# SPDX-License-Identifier: Apache-2.0
"""`meson install` puts everything where a system expects it, and what is installed works from there:
ctrun finds its own train, which is in nobody's PATH by that name."""

import json
import os
import re
import shutil
import signal
import subprocess

import testlib

PROGRAMS = {
    "bin/ctrun": "1",
    "bin/ctrun-train": "1",
    "bin/ctrun-stat": "1",
    "libexec/ctrun/train": "1",
    "sbin/ctrdzvd": "8",
}


class Install(testlib.Case):
    def setUp(self):
        super().setUp()
        self.root = self.install_build()
        (ctrun,) = self.root.rglob("bin/ctrun")
        self.prefix = ctrun.parent.parent

    def test_programs_and_pages_are_in_their_places(self):
        for program, section in PROGRAMS.items():
            path = self.prefix / program
            self.assertTrue(os.access(path, os.X_OK), path)
            pages = list(self.prefix.glob(f"share/man/man{section}/{path.name}.{section}*"))
            self.assertEqual(len(pages), 1, f"man page of {program}: {pages}")

    def test_shells_find_the_completions(self):
        for name, word in (
            ("bash-completion/completions/ctrun", "complete "),
            ("bash-completion/completions/ctrdzvd", "complete "),
            ("bash-completion/completions/ctrun-stat", "complete "),
            ("bash-completion/completions/ctrun-train", "complete "),
            ("zsh/site-functions/_ctrun", "#compdef ctrun"),
            ("zsh/site-functions/_ctrdzvd", "#compdef ctrdzvd ctrun-stat ctrun-train"),
        ):
            self.assertIn(word, (self.prefix / "share" / name).read_text(), name)

    def test_the_unit_starts_what_is_installed(self):
        unit = (testlib.BUILD_ROOT / "contrib" / "ctrdzvd.service").read_text()
        there = self.prefix / "sbin" / "ctrdzvd"
        place = "/" + str(there.relative_to(self.root))
        self.assertIn(f"\nExecStart={place} $CTRDZVD_OPTIONS\n", unit)
        self.assertEqual(list(self.prefix.rglob("*.service")), [], "not asked for")
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not in PATH")
        copy = self.tmp / "ctrdzvd.service"
        copy.write_text(unit.replace(place, str(there)))
        done = self.run_program("systemd-analyze", "verify", "--man=no", str(copy))
        self.assertEqual((done.code, done.out, done.err), (0, "", ""))

    def test_the_unit_has_room_for_a_journal_and_a_token(self):
        unit = (testlib.BUILD_ROOT / "contrib" / "ctrdzvd.service").read_text()
        values = dict(re.findall(r"^(\w+)=(.+)$", unit, re.MULTILINE))
        # What systemd makes of StateDirectory= and LoadCredential=, and the options of the comments.
        folders = {
            f"/var/lib/{values['StateDirectory']}": self.tmp / "state",
            "/run/credentials/ctrdzvd.service": self.tmp / "credentials",
        }
        for folder in folders.values():
            folder.mkdir(mode=0o700)
        token = self.tmp / "credentials" / values["LoadCredential"].partition(":")[0]
        options = "--port 0"
        for name in ("--journal", "--token-file"):
            options += " " + re.search(rf"^# .*({name} \S+)$", unit, re.MULTILINE).group(1)
        for place, folder in folders.items():
            self.assertIn(place + "/", options)
            options = options.replace(place, str(folder))
        program, _, rest = values["ExecStart"].partition(" ")
        self.assertEqual(rest, "$CTRDZVD_OPTIONS")
        argv = [str(self.root / program.lstrip("/")), *options.split()]

        token.write_text(values["SetCredential"].partition(":")[2])
        token.chmod(0o400)
        result = self.run_program(*argv)
        self.assertEqual(result.code, 1, result)
        self.assertIn(f"{token}: a token has", result.err)

        token.chmod(0o600)
        token.write_text("0123456789abcdef\n")
        token.chmod(0o400)
        service = self.start(*argv)
        service.wait_for("listening on")
        self.assertTrue((self.tmp / "state" / "journal").exists())
        service.signal(signal.SIGTERM)
        self.assertEqual(service.wait().code, 0)

    def test_the_unit_is_installed_where_asked(self):
        folder = self.tmp / "configured"
        done = subprocess.run(
            ["meson", "setup", str(folder), str(testlib.SOURCE_ROOT), "--prefix=/opt/ct",
             "-Dtests=disabled", "-Dcuda=disabled", "-Dnccl=disabled", "-Donednn=disabled",
             "-Dhttp=disabled", "-Dsystemd_unit_dir=lib/systemd/system"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        unit = folder / "contrib" / "ctrdzvd.service"
        self.assertIn("\nExecStart=/opt/ct/sbin/ctrdzvd ", unit.read_text())
        listed = subprocess.run(
            ["meson", "introspect", "--installed", str(folder)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        self.assertEqual(
            json.loads(listed.stdout)[str(unit)], "/opt/ct/lib/systemd/system/ctrdzvd.service"
        )

    def test_nothing_of_the_tests_is_installed(self):
        names = [p.name for p in self.prefix.rglob("*") if p.is_file()]
        self.assertEqual([n for n in names if "test" in n or "cmocka" in n], [])

    def run_train(self, path):
        return self.run_program(
            str(self.prefix / "bin" / "ctrun"), "--nproc-per-node", "2",
            "train", "--data", "synthetic", "--epochs", "1", "--device", "cpu", "--hidden", "16",
            env={"PATH": path}, cwd=str(self.tmp),
        )  # fmt: skip

    def test_installed_ctrun_finds_its_own_train(self):
        self.assertFalse((self.prefix / "bin" / "train").exists())
        result = self.run_train(f"{self.prefix}/bin:/usr/bin:/bin")
        self.assertEqual(result.code, 0, result)
        self.assertIn("done:", result.out + result.err)

    def test_a_train_of_the_users_is_what_they_get(self):
        theirs = self.script("train", "#!/bin/sh\necho theirs\n")
        os.chmod(theirs, 0o755)
        result = self.run_train(f"{self.tmp}:/usr/bin:/bin")
        self.assertEqual((result.code, result.out.count("theirs")), (0, 2), result)

    def test_ctrun_train_is_that_program(self):
        result = self.run_program(
            str(self.prefix / "bin" / "ctrun-train"), "--version", env={"PATH": "/usr/bin:/bin"}
        )
        self.assertEqual(result.code, 0, result)
        self.assertRegex(result.out, r"\Atrain \d")

    def test_no_folder_of_the_build_machine_in_the_programs(self):
        if os.environ.get("SANITIZE", "none") != "none":
            self.skipTest("a sanitizer keeps source paths")
        if shutil.which("objcopy") is None:
            self.skipTest("objcopy is not in PATH")
        needles = [str(testlib.SOURCE_ROOT), str(testlib.BUILD_ROOT)]
        for program in PROGRAMS:
            bare = self.tmp / "bare"
            # Debug information is bound to the source on purpose.
            subprocess.run(["objcopy", "-g", str(self.prefix / program), str(bare)], check=True)
            content = bare.read_bytes()
            for needle in needles:
                # Not assertNotIn(), which would print the whole program.
                self.assertFalse(needle.encode() in content, f"{program} names {needle}")


class Uninstalled(testlib.Case):
    def test_build_folder_works_as_it_is(self):
        for name in ("ctrun", "ctrun-stat", "ctrdzvd", "train"):
            result = self.run_program(testlib.program(name), "--version")
            self.assertEqual(result.code, 0, result)
            self.assertRegex(result.out, rf"\A{name} \d+\.\d+\.\d+\n\Z")


if __name__ == "__main__":
    testlib.main()
