# SPDX-License-Identifier: Apache-2.0
"""Restarts that know when to stop: which ends are not retried, how often, and with what pauses."""

import json
import os
import resource

import testlib


class NotRetried(testlib.Case):
    def test_a_code_that_is_named_ends_the_job_at_once(self):
        result = self.ctrun("--max-restarts", "5", "--no-restart-on", "7,SIGSEGV", "sh", "-c", "exit 7")
        self.assertEqual(result.code, 119, result)
        self.assertIn("exited with code 7", result.err)
        self.assertIn("--no-restart-on excludes a restart", result.err)
        self.assertNotIn("restarting", result.err)

    def test_a_signal_is_named_or_its_shells_code(self):
        for script in ("kill -SEGV $$$$", "exit 139"):
            result = self.ctrun("--max-restarts", "5", "--no-restart-on", "SIGSEGV", "sh", "-c", script)
            self.assertEqual(result.code, 119, result)

    def test_others_are_retried(self):
        result = self.ctrun(
            "--max-restarts", "1", "--no-restart-on", "7", "sh", "-c", "[ $CTRUN_GENERATION = 1 ] || exit 8"
        )
        self.assertEqual(result.code, 0, result)

    def test_garbage_is_one_clear_line(self):
        for value in ("", "0", "300", "SIGNOPE", "1,,2", "7-3", "x" * 100000):
            result = self.ctrun("--no-restart-on", value, "true")
            self.assertEqual((result.code, result.out), (2, ""), result)
            self.assert_one_line(result.err)
            self.assertIn("--no-restart-on", result.err)


# Completes steps of the progress page (common/progress_page.h) and fails. Argument n is for generation
# n, the last one for all that follow: "FIRST-LAST", or "none".
STEPS = """
import os, struct, sys, time
plan = sys.argv[1:]
mine = plan[min(int(os.environ["CTRUN_GENERATION"]), len(plan) - 1)]
path, offset = os.environ["CTRUN_PROGRESS"].rsplit(":", 1)
if mine != "none":
    first, last = map(int, mine.split("-"))
    with open(path, "r+b", buffering=0) as page:
        page.seek(int(offset))
        page.write(struct.pack("<IIQq", 0x31505443, last - first, last << 8 | 2, time.monotonic_ns()))
sys.exit(7)
"""


class NoProgress(testlib.Case):
    def restarts(self, *plan, limit="3", most="20"):
        script = self.script("steps.py", STEPS)
        report = self.tmp / "report.json"
        result = self.ctrun(
            "-n", 2, "--max-restarts", most, "--max-no-progress", limit, "--report", report, script, *plan
        )
        return result, json.loads(report.read_text())

    def test_a_crash_that_comes_back_ends_the_job_after_n(self):
        result, report = self.restarts("0-150")
        self.assertEqual(result.code, 119, result)
        self.assertEqual(report["generation"], 3, report)  # one that reached it, three that came no further
        self.assertEqual(report["first_failure"]["last_step"], 150, report)
        self.assertEqual(result.err.count("restarting the job"), 3, result)
        said = [line for line in result.err.splitlines() if "--max-no-progress" in line]
        self.assertEqual(
            said, ["ctrun: the job ends: 3 generations in a row came no further than step 150 (--max-no-progress 3)"]
        )

    def test_generations_without_a_step_count_once_steps_were_seen(self):
        result, report = self.restarts("0-9", "none", limit="2")
        self.assertEqual((result.code, report["generation"]), (119, 2), result)

    def test_a_program_without_steps_keeps_all_its_restarts(self):
        result, report = self.restarts("none", limit="1", most="2")
        self.assertEqual((result.code, report["generation"]), (7, 2), result)

    def test_progress_and_going_back_are_no_standstill(self):
        plan = ("0-10", "0-10", "5-11", "5-11", "2-6", "2-7", "3-6")
        result, report = self.restarts(*plan, limit="2", most="6")
        self.assertEqual((result.code, report["generation"]), (7, 6), result)


class Pauses(testlib.Case):
    def test_the_report_has_the_pauses(self):
        report = self.tmp / "report.json"
        result = self.ctrun("--max-restarts", "3", "--report", report, "sh", "-c", "exit 7")
        self.assertEqual(result.code, 7, result)
        rounds = json.loads(report.read_text())["story"]["rounds"]
        self.assertEqual([r.get("paused_ms", 0) for r in rounds], [0, 0, 1000, 2000], rounds)


class HealthCheck(testlib.Case):
    def test_a_check_that_passes_comes_before_each_generation(self):
        log = self.tmp / "log"
        result = self.ctrun(
            "--max-restarts", "1", "--health-check", f"echo check $CTRUN_GENERATION >> {log}",
            "sh", "-c", f"echo work $CTRUN_GENERATION >> {log}; [ $CTRUN_GENERATION = 1 ]",
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        self.assertEqual(log.read_text(), "check 0\nwork 0\ncheck 1\nwork 1\n")

    def test_a_check_that_fails_is_named_with_its_last_lines(self):
        report = self.tmp / "report.json"
        result = self.ctrun(
            "--report", report, "--health-check", "echo the fan stands still; exit 3", "echo", "never"
        )
        self.assertEqual((result.code, result.out), (118, ""), result)
        self.assertRegex(result.err, r"machine \S+ is not fit: its health check exited with code 3\n")
        self.assertIn("ctrun: its health check wrote last:\n    the fan stands still\n", result.err)
        self.assertIn("what to do: look at this machine: the check says what is wrong with it\n", result.err)
        # There are no others, so nothing is said of them.
        self.assertNotRegex(result.err, "other|spare|without it|left out|nnodes")
        self.assertTrue(json.loads(report.read_text())["first_failure"]["unfit"])

    def test_a_check_has_the_limit_of_open_files_of_a_worker(self):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        result = self.ctrun(
            "--health-check", "[ $(ulimit -Sn) = 200 ]", "sh", "-c", "ulimit -Sn",
            preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard)),
        )  # fmt: skip
        self.assertEqual((result.code, result.out), (0, "200\n"), result)

    def test_a_check_that_never_stops_talking_is_killed_and_named(self):
        result = self.ctrun("--health-check", "yes & yes & exec yes", "--health-check-timeout", "1", "echo", "never")
        self.assertEqual((result.code, result.out), (118, ""), result)
        self.assertIn("its health check did not end within 1 s (--health-check-timeout)", result.err)

    def test_a_check_that_hangs_is_killed_and_named(self):
        result = self.ctrun(
            "--health-check", "echo begun; sleep 600 & sleep 600", "--health-check-timeout", "1", "echo", "never"
        )
        self.assertEqual((result.code, result.out), (118, ""), result)
        self.assertIn("its health check did not end within 1 s (--health-check-timeout)", result.err)
        self.assertIn("    begun\n", result.err)
        self.assertIn("what to do: look at this machine, or give its check more time\n", result.err)

    def test_a_check_that_fails_in_silence_is_not_said_to_have_spoken(self):
        result = self.ctrun("--health-check", "exit 3", "echo", "never")
        self.assertEqual((result.code, result.out), (118, ""), result)
        self.assertNotIn("the check says what is wrong", result.err)
        self.assertIn("what to do: look at this machine; the check has not written what is wrong with it\n", result.err)

    def test_a_machine_alone_is_checked_again_as_often_as_it_may_and_after_pauses(self):
        report = self.tmp / "report.json"
        result = self.ctrun("--max-restarts", "2", "--report", report, "--health-check", "exit 3", "echo", "never")
        self.assertEqual((result.code, result.out), (118, ""), result)
        self.assertIn("ctrun: restarting the job (restart 1 of 2)\n", result.err)
        self.assertIn("ctrun: restarting the job (restart 2 of 2)\n", result.err)
        self.assertNotIn("another one", result.err)
        rounds = json.loads(report.read_text())["story"]["rounds"]
        self.assertEqual([r.get("paused_ms", 0) for r in rounds], [0, 0, 1000], rounds)

    def test_a_command_that_cannot_be_run_is_a_mistake(self):
        result = self.ctrun("--health-check", "no-such-chekc --fast", "echo", "never")
        self.assertEqual((result.code, result.out), (127, ""), result)
        self.assertIn("the command of its health check was not found there", result.err)
        self.assertIn("look for a typing mistake in the command of --health-check", result.err)
        self.assertIn("no-such-chekc", result.err)

    def test_a_command_that_the_shell_cannot_read_is_a_mistake(self):
        result = self.ctrun("--max-restarts", "3", "--health-check", "if true", "echo", "never")
        self.assertEqual((result.code, result.out), (126, ""), result)
        self.assertIn("the command of its health check is no command for /bin/sh (syntax error)", result.err)
        self.assertIn("what to do: look for a typing mistake in the command of --health-check\n", result.err)
        self.assertIn("the job ends: the command of --health-check cannot be run", result.err)

    def test_a_check_that_cannot_be_started_has_failed(self):
        # ctrun and its guard are the only processes that this user may have.
        if os.geteuid() != 0:
            self.skipTest("needs root, to run as another user")
        user = str(1000000 + os.getpid())
        result = self.run_program(
            "setpriv", "--reuid", user, "--regid", user, "--clear-groups", "prlimit", "--nproc=2:2",
            testlib.program("ctrun"), "--log-dir", "/dev/null", "--health-check", "true", "echo", "never",
        )  # fmt: skip
        self.assertEqual((result.code, result.out), (118, ""), result)
        self.assertIn("is not fit: its health check could not be started: cannot create a process", result.err)
        self.assertIn("make room on it: memory, processes", result.err)

    def test_restarts_do_not_mend_a_mistake(self):
        result = self.ctrun("--max-restarts", "3", "--health-check", "no-such-chekc", "echo", "never")
        self.assertEqual((result.code, result.out), (127, ""), result)
        self.assertIn("the job ends: the command of --health-check cannot be run", result.err)
        self.assertEqual(result.err.count("is not fit"), 1, result)

    def test_what_a_check_leaves_behind_is_its_own(self):
        result = self.ctrun("--health-check", "setsid sleep 600 & exit 1", "echo", "never")
        self.assertEqual(result.code, 118, result)
        self.assertNotIn("workers left behind", result.err)

    def test_a_check_may_pass_the_next_time(self):
        mark = self.tmp / "mark"
        check = f"[ -e {mark} ] || {{ touch {mark}; exit 1; }}"
        result = self.ctrun("--max-restarts", "1", "--health-check", check, "echo", "work")
        self.assertEqual((result.code, result.out.count("work")), (0, 1), result)

    def test_a_signal_ends_a_check(self):
        job = self.start_ctrun("--health-check", "echo $$$$ > %s; exec sleep 600" % (self.tmp / "pid"), "echo", "never")
        testlib.wait_until(lambda: (self.tmp / "pid").exists(), "the check runs")
        job.signal(15)
        result = job.wait()
        self.assertNotEqual(result.code, 0, result)
        self.assertEqual(result.out, "")

    def test_garbage_is_one_clear_line(self):
        for option, value in (
            ("--health-check", ""), ("--health-check-timeout", "0"), ("--health-check-timeout", "x"),
            ("--health-check-timeout", "1e9"), ("--ban-after", "-1"), ("--ban-after", "often"),
        ):  # fmt: skip
            result = self.ctrun(option, value, "true")
            self.assertEqual((result.code, result.out), (2, ""), result)
            self.assert_one_line(result.err)
            self.assertIn(option, result.err)


class Budget(testlib.Case):
    def test_so_many_restarts_in_a_time(self):
        result = self.ctrun("--restart-budget", "2/1h", "sh", "-c", "exit 7")
        self.assertEqual(result.code, 7, result)
        self.assertIn("restarting the job (restart 2)\n", result.err)
        self.assertEqual(result.err.count("restarting the job"), 2, result)
        self.assertIn("--restart-budget 2/1h", result.err)

    def test_both_limits_hold(self):
        result = self.ctrun("--restart-budget", "5/1h", "--max-restarts", "1", "sh", "-c", "exit 7")
        self.assertEqual(result.code, 7, result)
        self.assertEqual(result.err.count("no restarts are left (--max-restarts 1)"), 1, result)
        self.assertNotIn("--restart-budget", result.err)

    def test_the_window_moves_on(self):
        # The pauses after early failures are longer than this window.
        result = self.ctrun(
            "--restart-budget", "2/1s", "sh", "-c", "[ $CTRUN_GENERATION = 4 ] || exit 7"
        )
        self.assertEqual(result.code, 0, result)

    def test_garbage_is_one_clear_line(self):
        for option, value in (
            ("--restart-budget", "x"), ("--restart-budget", "1/0s"), ("--restart-budget", ""),
            ("--max-no-progress", "two"), ("--max-no-progress", "-1"), ("--max-no-progress", "1e99"),
        ):  # fmt: skip
            result = self.ctrun(option, value, "true")
            self.assertEqual((result.code, result.out), (2, ""), result)
            self.assert_one_line(result.err)
            self.assertIn(option, result.err)


if __name__ == "__main__":
    testlib.main()
