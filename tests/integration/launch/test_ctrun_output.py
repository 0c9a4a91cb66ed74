# SPDX-License-Identifier: Apache-2.0
"""Where the workers' output goes: prefixes, redirects, tee, filters, log folders."""

import re
import socket
import subprocess

import testlib

BOTH = 'echo "out $RANK"; echo "err $RANK" >&2'


class Output(testlib.Case):
    def run_job(self, *args, code=0, workers=2, command=BOTH, **kwargs):
        result = self.ctrun("-n", workers, *args, "sh", "-c", command, **kwargs)
        self.assertEqual(result.code, code, result)
        return result

    def files(self, folder, attempt=0):
        """{"0/stdout.log": text, ...} of the only run in `folder`."""
        runs = list(folder.iterdir())
        self.assertEqual(len(runs), 1, runs)
        top = runs[0] / f"attempt_{attempt}"
        return {str(p.relative_to(top)): p.read_text() for p in top.rglob("*.log")}

    def test_lines_begin_with_the_rank(self):
        result = self.run_job()
        self.assertEqual(sorted(result.out.splitlines()), ["[0] out 0", "[1] out 1"], result)
        self.assertEqual(sorted(result.err.splitlines()), ["[0] err 0", "[1] err 1"], result)

    def test_a_rank_that_does_not_exist_is_named(self):
        result = self.run_job("--local-ranks-filter", "7")
        self.assertEqual(result.out, "", result)
        self.assertEqual(
            result.err, "ctrun: warning: --local-ranks-filter: there is no local rank 7 here (0 to 1)\n"
        )

    def test_a_text_that_cannot_be_written_is_told(self):
        for argv in (("--help",), ("--version",), ("--print-completion", "bash"), ("--print-config", "true")):
            with self.subTest(argv=argv), open("/dev/full", "wb") as full:
                done = subprocess.run([testlib.program("ctrun"), *argv], stdout=full, stderr=subprocess.PIPE,
                                      text=True, check=False)  # fmt: skip
                self.assertEqual(done.returncode, 1)
                self.assertEqual(
                    done.stderr, "ctrun: cannot write to standard output: No space left on device\n"
                )

    def test_prefix_template_is_filled_in(self):
        template = "<${role_name}/${local_rank}/$rank/${other}/$$>"
        result = self.run_job("--log-line-prefix-template", template, "--role", "r", workers=1)
        self.assertEqual(result.out, "<r/0/0/${other}/$>out 0\n", result)
        env = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "${hostname}:"}
        result = self.run_job(env=env)
        host = socket.gethostname().split(".")[0]
        self.assertTrue(all(x.startswith(f"{host}:") for x in result.out.splitlines()), result)

    def test_an_empty_template_is_no_prefix(self):
        result = self.run_job(
            "--log-line-prefix-template", "", env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "t"}
        )
        self.assertEqual(sorted(result.out.splitlines()), ["out 0", "out 1"], result)
        self.assertEqual(sorted(result.err.splitlines()), ["err 0", "err 1"], result)

    def test_the_only_rank_shown_passes_unchanged(self):
        document = """printf '{"rank": %s}' $RANK"""
        result = self.run_job("--local-ranks-filter", 1, command=document)
        self.assertEqual(result.out, '{"rank": 1}', result)
        result = self.run_job("--local-ranks-filter", "0,1", command="echo {}")
        self.assertEqual(sorted(result.out.splitlines()), ["[0] {}", "[1] {}"], result)
        result = self.run_job(
            "--local-ranks-filter", 1, "--log-line-prefix-template", "${rank}:", command="echo {}"
        )
        self.assertEqual(result.out, "1:{}\n", result)

    def test_what_torchrun_takes_empty(self):
        result = self.run_job(
            "--role", "", "--rdzv-id", "", "--local-addr", "", "--master-addr", "",
            "--local-ranks-filter", "", "--log-dir", "", "--max-restarts", " 0 ",
            command='echo "<$ROLE_NAME>${TORCHELASTIC_RUN_ID:+id}"', workers=" 2 ",
        )  # fmt: skip
        self.assertEqual(sorted(result.out.splitlines()), ["[0] <>id", "[1] <>id"], result)

    def test_an_id_with_slash_and_blank(self):
        logs = self.tmp / "logs"
        result = self.run_job(
            "--rdzv-id", "team a/job", "-t", 3, "--log-dir", logs, command="echo $TORCHELASTIC_RUN_ID"
        )
        self.assertEqual(
            sorted(result.out.splitlines()), ["[0] team a/job", "[1] team a/job"], result
        )
        self.assertRegex(next(logs.iterdir()).name, r"\Ateam a_job_[a-z0-9]{8}\Z")

    def test_filter_files_are_there_without_tee(self):
        logs = self.tmp / "logs"
        self.run_job(
            "--log-dir", logs, "--duplicate-stdout-filters", "out", "--duplicate-stderr-filters", "err"
        )
        self.assertEqual(self.files(logs), {"filtered_stdout.log": "", "filtered_stderr.log": ""})

    def test_filters_copy_lines_of_teed_streams(self):
        logs = self.tmp / "logs"
        self.run_job(
            "--log-dir", logs, "-t", "0:3,1:1", "--duplicate-stdout-filters", "no,ut 1,t,,x",
            "--duplicate-stderr-filters", "err",
        )  # fmt: skip
        files = self.files(logs)
        self.assertEqual(files["filtered_stdout.log"], "[1] out 1\n")
        self.assertEqual(files["filtered_stderr.log"], "[0] err 0\n")
        self.assertEqual(files["1/stdout.log"], "out 1\n")

    def test_one_worker_has_none(self):
        result = self.run_job(workers=1, command="printf 'no newline'; printf e >&2")
        self.assertEqual((result.out, result.err), ("no newline", "e"), result)

    def test_lines_are_whole(self):
        command = "for i in $(seq 300); do printf 'line-'; printf '%s-%s\\n' $RANK $i; done"
        result = self.run_job(workers=3, command=command)
        lines = result.out.splitlines()
        self.assertEqual(len(lines), 900)
        for rank in range(3):
            mine = [line for line in lines if line.startswith(f"[{rank}] ")]
            self.assertEqual(mine, [f"[{rank}] line-{rank}-{i}" for i in range(1, 301)])

    def test_redirected_output_goes_to_files(self):
        logs = self.tmp / "logs"
        result = self.run_job("-r", "3", "--log-dir", logs, "--rdzv-id", "job")
        self.assertEqual((result.out, result.err), ("", ""), result)
        self.assertRegex(next(logs.iterdir()).name, r"\Ajob_[a-z0-9]{8}\Z")
        self.assertEqual(
            self.files(logs),
            {
                "0/stdout.log": "out 0\n", "0/stderr.log": "err 0\n",
                "1/stdout.log": "out 1\n", "1/stderr.log": "err 1\n",
            },
        )  # fmt: skip

    def test_a_map_redirects_single_ranks(self):
        logs = self.tmp / "logs"
        result = self.run_job("--redirects", "0:2", "-t", "1:1", "--log-dir", logs)
        self.assertEqual(sorted(result.out.splitlines()), ["[0] out 0", "[1] out 1"], result)
        self.assertEqual(result.err, "[1] err 1\n", result)
        self.assertEqual(
            self.files(logs), {"0/stderr.log": "err 0\n", "1/stdout.log": "out 1\n"}
        )

    def test_tee_is_stronger_than_redirect(self):
        logs = self.tmp / "logs"
        result = self.run_job("-r", "3", "-t", "0:1", "--log-dir", logs)
        self.assertEqual((result.out, result.err), ("[0] out 0\n", ""), result)
        self.assertEqual(len(self.files(logs)), 4)

    def test_tee_of_one_worker(self):
        logs = self.tmp / "logs"
        result = self.run_job("-t", "3", "--log-dir", logs, workers=1)
        self.assertEqual((result.out, result.err), ("out 0\n", "err 0\n"), result)
        self.assertEqual(
            self.files(logs), {"0/stdout.log": "out 0\n", "0/stderr.log": "err 0\n"}
        )

    def test_filter_shows_the_chosen_ranks(self):
        logs = self.tmp / "logs"
        result = self.run_job("--local-ranks-filter", "1", "-t", "1", "--log-dir", logs)
        self.assertEqual((result.out, result.err), ("out 1\n", "err 1\n"), result)
        self.assertEqual(
            self.files(logs), {"0/stdout.log": "out 0\n", "1/stdout.log": "out 1\n"}
        )

    def test_filtered_rank_is_still_quoted_when_it_fails(self):
        result = self.run_job(
            "--local-ranks-filter", "1", code=3,
            command='[ $RANK = 1 ] && exec sleep 1000; echo "the reason" >&2; exit 3',
        )  # fmt: skip
        self.assertIn("    the reason\n", result.err)

    def test_each_attempt_has_its_files(self):
        logs = self.tmp / "logs"
        self.run_job(
            "-r", "1", "--log-dir", logs, "--max-restarts", "1", workers=1,
            command="echo gen $CTRUN_GENERATION; [ $CTRUN_GENERATION = 1 ]",
        )  # fmt: skip
        self.assertEqual(self.files(logs, 0), {"0/stdout.log": "gen 0\n"})
        self.assertEqual(self.files(logs, 1), {"0/stdout.log": "gen 1\n"})

    def test_dev_null_switches_files_off(self):
        result = self.run_job(
            "-r", "3", "--log-dir", "/dev/null", workers=1, command='echo "[$TORCHELASTIC_ERROR_FILE]"'
        )
        self.assertEqual(result.out, "[]\n", result)

    def test_redirects_without_log_dir_say_where(self):
        result = self.run_job("-r", "1", workers=1, env={"TMPDIR": self.tmp})
        run = re.search(r"files of this run: (\S+)", result.err).group(1)
        with open(f"{run}/attempt_0/0/stdout.log") as f:
            self.assertEqual(f.read(), "out 0\n")

    def test_output_of_a_failing_worker_is_complete(self):
        command = "seq 2000; seq 2000 >&2; exit 3"
        result = self.run_job(workers=1, code=3, command=command)
        expected = "".join(f"{i}\n" for i in range(1, 2001))
        self.assertEqual(result.out, expected)
        self.assertTrue(result.err.startswith(expected), result.err[-2000:])


if __name__ == "__main__":
    testlib.main()
