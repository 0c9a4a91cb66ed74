# SPDX-License-Identifier: Apache-2.0
"""Machines that lack what one takes for granted: a place for temporary files, standard streams, shared
memory, an environment, the loopback. The job runs all the same, or one line says what is missing."""

import os
import resource
import shutil
import signal
import subprocess
import unittest

import testlib

TRAIN = ("train", "--data", "synthetic", "--epochs", "1", "--device", "cpu")


class MissingResources(testlib.Case):
    def unshare(self, *options):
        """The beginning of a command line that runs a program in namespaces of its own."""
        argv = ["unshare", "--user", "--map-root-user", *options]
        if shutil.which("unshare") is None or subprocess.run([*argv, "true"], check=False).returncode:
            raise unittest.SkipTest("no namespaces here")
        return argv

    def mounted(self, setup, *args):
        """Runs ctrun where the shell commands of `setup` have changed the mounts."""
        return self.run_program(
            *self.unshare("--mount"), "sh", "-c", f'{setup} && exec "$0" "$@"',
            testlib.program("ctrun"), *args,
        )  # fmt: skip

    def test_temporary_folder_that_cannot_be_used(self):
        for place in (str(self.tmp / "missing"), "/proc"):
            with self.subTest(place=place):
                done = self.ctrun("-n", "2", "echo", "hello", env={"TMPDIR": place})
                self.assertEqual((done.code, done.err), (0, ""))
                self.assertEqual(done.out.count("hello"), 2)
                done = self.ctrun("-n", "2", "--tee", "3", "echo", "hello", env={"TMPDIR": place})
                self.assertEqual(done.code, 1, done.err)
                self.assertIn(f"cannot make the folder {place}/ctrun_", done.err)
                self.assertIn("; set TMPDIR or --log-dir to a folder for temporary files", done.err)
                self.assert_one_line(done.err)

    def test_a_file_in_the_place_of_the_log_folder(self):
        place = self.tmp / "file"
        place.touch()
        for log_dir in (place, place / "below"):
            done = self.ctrun("--log-dir", log_dir, "true")
            self.assertEqual(
                (done.code, done.err), (1, f"ctrun: --log-dir: {place} is no folder: name another one\n")
            )

    def test_no_room_for_logs(self):
        full = self.tmp / "full"
        full.mkdir()
        setup = f"mount -t tmpfs -o size=64k none {full} && {{ seq 1 100000 >{full}/x; :; }} 2>/dev/null"
        done = self.mounted(
            setup, "-n", "2", "--log-dir", full, "--redirects", "3", "--report", full / "report.json",
            "seq", "1", "20000",
        )  # fmt: skip
        self.assertEqual(done.code, 0, done.err)
        for name in ("0/stdout.log", "1/stdout.log", "report.json"):
            self.assertRegex(done.err, rf"cannot write \S*{name}: No space left on device")

    def test_too_few_open_files(self):
        def limited(number, *argv):
            return self.run_program("sh", "-c", f'ulimit -n {number}; exec "$0" "$@"', *argv)

        job = (testlib.program("ctrun"), "-n", "2", "--no-python", "true")
        for number in (8, 12, 20, 51):
            with self.subTest(number=number):
                done = limited(number, *job)
                self.assertEqual(done.code, 1)
                self.assertEqual(
                    done.err,
                    f"ctrun: only {number} files may be open at once (ulimit -Hn), and 52 are needed\n",
                )
        self.assertEqual(limited(52, *job).code, 0)
        done = limited(8, testlib.program("ctrdzvd"), "--port", "0")
        self.assertEqual(done.code, 1)
        self.assertEqual(done.err, "ctrdzvd: only 8 files may be open at once (ulimit -Hn), and 32 are needed\n")

    def test_workers_run_without_standard_streams(self):
        def close_all():
            for fd in (0, 1, 2):
                os.close(fd)

        mark = self.tmp / "mark"
        done = subprocess.run(
            [testlib.program("ctrun"), "-n", "2", "sh", "-c", f"echo text; echo text >&2; echo >{mark}.$RANK"],
            preexec_fn=close_all, timeout=60, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 0)
        self.assertTrue(all(os.path.exists(f"{mark}.{rank}") for rank in (0, 1)))

    def test_empty_environment_is_enough(self):
        done = subprocess.run(
            [testlib.program("ctrun"), "-n", "2", "/bin/echo", "hello"], env={},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        self.assertEqual((done.returncode, done.stderr, done.stdout.count("hello")), (0, "", 2))

    def test_hardly_any_shared_memory(self):
        for options in ("size=64k", "ro"):
            with self.subTest(options=options):
                done = self.mounted(f"mount -t tmpfs -o {options} none /dev/shm", "-n", "2", *TRAIN)
                self.assertEqual((done.code, done.err), (0, ""))
                self.assertIn("done: ", done.out)

    def test_a_loopback_that_is_down_gives_a_warning(self):
        done = self.run_program(*self.unshare("--net"), testlib.program("ctrun"), "-n", "2", "true")
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("warning: the loopback interface is down here: workers do not reach", done.err)
        self.assert_one_line(done.err)
        done = self.run_program(
            *self.unshare("--net"), "sh", "-c", 'ip link set lo up && exec "$0" -n 2 true',
            testlib.program("ctrun"),
        )  # fmt: skip
        self.assertEqual((done.code, done.err), (0, ""))

    def test_limit_on_the_size_of_files(self):
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (16384, resource.RLIM_INFINITY))

        # SIGXFSZ ends who does not ignore it: not ctrun, but a worker, unless it does.
        for redirects in ((), ("--redirects", "3")):
            with self.subTest(redirects=redirects):
                done = self.start_ctrun(
                    "-n", "2", "--log-dir", self.tmp / "logs", "--report", self.tmp / "report.json",
                    *(redirects or ("--tee", "3")), "sh", "-c", "trap '' XFSZ; seq 1 20000",
                    preexec=small,
                ).wait()  # fmt: skip
                self.assertEqual(done.code, 0, done.err)
                self.assertRegex(done.err, r"cannot write \S*0/stdout.log: File too large")
        done = self.start_ctrun("-n", "1", "sh", "-c", f"exec seq 1 20000 >{self.tmp}/big", preexec=small).wait()
        self.assertEqual(done.code, 128 + signal.SIGXFSZ, done.err)
        self.assertIn("(SIGXFSZ)", done.err)

    def test_no_descriptors_left_for_a_restart(self):
        go = self.tmp / "go"
        job = self.start_ctrun(
            "-n", "2", "--max-restarts", "1", "sh", "-c",
            f"echo up; until [ -e {go} ]; do sleep 0.02; done; exit 3",
        )  # fmt: skip
        job.wait_for("up")
        resource.prlimit(job.pid, resource.RLIMIT_NOFILE, (9, 9))
        go.touch()
        done = job.wait()
        self.assertEqual(done.code, 1, done.err)
        # Which of a worker's descriptors is the last one depends on how many ctrun has of its own.
        self.assertRegex(
            done.err, r"rank \d+ failed on \S+ cannot (create a process|make a pipe) .*Too many open files"
        )

    def test_name_of_a_machine_in_any_letters(self):
        name = "b\u00fccher-\u00fc1"
        done = self.run_program(
            *self.unshare("--uts"), "sh", "-c",
            f'python3 -c "import ctypes; n = {name.encode()!r}; ctypes.CDLL(None).sethostname(n, len(n))"'
            ' && exec "$0" -n 2 sh -c "exit 3"',
            testlib.program("ctrun"), env={"LANG": "C"},
        )  # fmt: skip
        self.assertEqual(done.code, 3, done.err)
        self.assertRegex(done.err, rf"rank [01] failed on {name}: ")  # both exit at once

    def test_a_proc_that_hides_others(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become somebody else")
        script = 'exit $((RANK == 1 && TORCHELASTIC_RESTART_COUNT == 0))'
        done = self.run_program(
            "unshare", "--mount", "--pid", "--fork", "sh", "-c",
            'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 12345 --clear-groups "$0" "$@"',
            testlib.program("ctrun"), "-n", "2", "--max-restarts", "1", "--hang-timeout", "20",
            "sh", "-c", script, env={"TMPDIR": "/tmp"},
        )  # fmt: skip
        if "mount" in done.err:
            self.skipTest(f"no hidepid here: {done.err}")
        self.assertEqual(done.code, 0, done.err)
        self.assertNotIn("warning", done.err)


if __name__ == "__main__":
    testlib.main()
