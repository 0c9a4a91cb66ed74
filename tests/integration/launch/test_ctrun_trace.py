# SPDX-License-Identifier: Apache-2.0
"""ctrun --trace: what happened on a machine, in the format of Chrome's tracing; and the same from --report."""

import json
import signal
import sys

import testlib
from testlib.paths import SOURCE_ROOT

# What each type of event must have, beside name, pid, tid and ts, by the Trace Event Format (2016).
NEEDED = {"X": {"dur": int}, "i": {"s": str}, "C": {"args": dict}, "M": {"args": dict}}
METADATA = {"process_name", "process_sort_index", "thread_name", "thread_sort_index"}


class Trace(testlib.Case):
    def load(self, text):
        """The events, each of them checked. Spans of a track must lie within each other: viewers drop others."""
        events = json.loads(text)
        tracks = {}
        for e in events:
            for field, kind in {"name": str, "pid": int, "tid": int, "ts": (int, float), **NEEDED[e["ph"]]}.items():
                self.assertIsInstance(e[field], kind, e)
            if e["ph"] == "X":
                tracks.setdefault((e["pid"], e["tid"]), []).append((e["ts"], -e["dur"], e["name"]))
            if e["ph"] == "M":
                self.assertIn(e["name"], METADATA)
            if e["ph"] == "C":
                self.assertTrue(all(isinstance(v, (int, float)) for v in e["args"].values()), e)
        for spans in tracks.values():
            ends = []
            for begin, minus, name in sorted(spans):
                while ends and ends[-1][0] <= begin:
                    ends.pop()
                if ends:
                    self.assertLessEqual(begin - minus, ends[-1][0], (name, ends[-1]))
                ends.append((begin - minus, name))
        return events

    @staticmethod
    def spans(events, begin):
        return [e for e in events if e["ph"] == "X" and e["name"].startswith(begin)]

    def check_two_restarts(self, events, per_generation):
        self.assertEqual([e["name"] for e in self.spans(events, "generation")], [f"generation {n}" for n in range(3)])
        self.assertEqual(len(self.spans(events, "rendezvous")), 3)
        for name, count in per_generation.items():
            self.assertEqual(len(self.spans(events, name)), 3 * count, name)
        marks = [e["name"] for e in events if e["ph"] == "i"]
        self.assertEqual(len(marks), 2, marks)
        for mark in marks:
            self.assertIn("exited with code 3", mark)

    def test_each_restart_is_a_generation_of_the_trace(self):
        script = self.script("twice.sh", '[ "$RANK" = 1 ] && [ "$CTRUN_GENERATION" -lt 2 ] && exit 3\nsleep 0.2\n')
        trace, report = self.tmp / "trace.json", self.tmp / "report.json"
        result = self.ctrun("-n", 2, "--max-restarts", 2, "--trace", trace, "--report", report, "--no-python", "sh", script)
        self.assertEqual(result.code, 0, result)
        events = self.load(trace.read_text())
        self.check_two_restarts(events, {"rank 0": 1, "rank 1": 1, "start workers": 1, "stop workers": 1})
        for e in self.spans(events, "rank 1")[:2]:
            self.assertEqual(e["args"]["end"], "exited with code 3")
        converted = self.run_program(sys.executable, SOURCE_ROOT / "contrib/ctreport-to-trace", report)
        self.assertEqual(converted.code, 0, converted)
        self.check_two_restarts(self.load(converted.out), {})

    def test_steps_phases_and_checkpoints_are_in_the_trace(self):
        trace = self.tmp / "trace.json"
        result = self.ctrun(
            "-n", 2, "--trace", trace, "--no-python", testlib.program("train"), "--data", "synthetic", "--device", "cpu",
            "--hidden", 32, "--epochs", 20, "--checkpoint-dir", self.tmp / "c", "--checkpoint-every", 300,
        )  # fmt: skip
        self.assertEqual(result.code, 0, result)
        events = self.load(trace.read_text())
        starts, checkpoints = self.spans(events, "start-up"), self.spans(events, "checkpoint")
        self.assertEqual(len(starts), 2)
        self.assertGreater(len(checkpoints), 0)
        (rank,) = self.spans(events, "rank 0")
        for e in starts[:1] + checkpoints:
            self.assertGreaterEqual(e["ts"], rank["ts"])
        steps = [e["args"]["rank 0"] for e in events if e["name"] == "step"]
        self.assertEqual(steps, sorted(steps))

    def test_a_signal_is_marked(self):
        trace = self.tmp / "trace.json"
        job = self.start_ctrun("--trace", trace, "--no-python", "sh", self.script("s.sh", "echo started; exec sleep 60"))
        job.wait_for("started")
        job.signal(signal.SIGTERM)
        job.wait()
        marks = [e["name"] for e in self.load(trace.read_text()) if e["ph"] == "i"]
        self.assertIn("SIGTERM received", marks)

    def test_a_file_that_cannot_be_written_is_refused_at_the_start(self):
        result = self.ctrun("--trace", self.tmp / "no" / "trace.json", "--no-python", "echo", "started")
        self.assertNotEqual(result.code, 0, result)
        self.assertNotIn("started", result.out)
        self.assertRegex(result.err, r"ctrun: (error: )?--trace: .*trace\.json")

    def test_what_is_no_report_is_refused(self):
        for text in ("", "{}", "[]", "null"):
            path = self.tmp / "other.json"
            path.write_text(text)
            result = self.run_program(sys.executable, SOURCE_ROOT / "contrib/ctreport-to-trace", path)
            self.assertEqual(result.code, 1, result)
            self.assertRegex(result.err, r"\Actreport-to-trace: .*other\.json[^\n]*\n\Z")


if __name__ == "__main__":
    testlib.main()
