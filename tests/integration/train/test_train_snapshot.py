# SPDX-License-Identifier: Apache-2.0
"""train under ctrun: killed workers lose no finished step, and no schedule of kills and sizes changes
the model. Small versions of bench/torture.py, and what its figures do not show."""

import json
import os
import re
import signal
import sys
import time

import testlib
from testlib.paths import BUILD_ROOT, SOURCE_ROOT

sys.path.insert(0, str(SOURCE_ROOT / "bench"))
import torture  # noqa: E402

# A sanitizer makes steps slow: fewer are enough to be in the midst of them when a worker is killed.
SLOW = os.environ["SANITIZE"] != "none"
EPOCHS = 5 if SLOW else 20


class Snapshots(testlib.Case):
    def check_kills(self, kind, workers, count):
        problems, summary = torture.run_kills(
            BUILD_ROOT, count, workers, seed=os.getpid(), epochs=EPOCHS, kind=kind
        )
        self.assertEqual(problems, [], summary)

    def test_random_kills_lose_no_step(self):
        self.check_kills("memory", 2, 5)

    def test_kills_of_stages_keep_the_model(self):
        self.check_kills("pipeline", 4, 3)

    def test_kills_with_checkpoints_alone(self):
        self.check_kills("files", 2, 3)

    def test_random_kills_and_sizes_keep_the_model(self):
        problems, summary = torture.run_schedules(BUILD_ROOT, 1, seed=os.getpid())
        self.assertEqual(problems, [], summary)

    def job(self, restarts, *args):
        job = torture.Job(BUILD_ROOT, 2, restarts, *torture.TRAIN, *torture.KINDS["memory"], *args)
        self.addCleanup(job.reader.join)
        self.addCleanup(job.proc.wait)
        self.addCleanup(job.proc.kill)
        return job

    def kill_after(self, job, step, generation):
        """Kills a worker of that generation once the step is done. The memory alone does not tell: a step
        that the generation before has done is there from the start."""
        deadline = time.monotonic() + testlib.DEADLINE
        while job.steps_in_memory()[0] < step or len(job.resumed()) < generation:
            self.assertTrue(job.running(), job.text())
            self.assertLess(time.monotonic(), deadline, job.text())
            time.sleep(0.002)
        self.assertTrue(job.kill_one(min), job.text())

    def test_reports_are_those_of_an_undisturbed_run(self):
        reports, losses = [], []
        for kills in ((), (3, 50, 90)):
            metrics = self.tmp / f"metrics{len(kills)}"
            job = self.job(5, "--epochs", 15, "--metrics", metrics)
            for generation, step in enumerate(kills):
                self.kill_after(job, step, generation)
            self.assertEqual(job.finish(), 0, job.text())
            self.assertEqual(len(job.resumed()), len(kills), job.text())
            epochs = [json.loads(line) for line in metrics.read_text().splitlines()][:-1]
            reports.append([(e["epoch"], e["test_loss"], e["param_hash"]) for e in epochs])
            losses.append([e["loss"] for e in epochs])
        self.assertEqual(reports[0], reports[1])
        for one, other in zip(*losses):
            self.assertAlmostEqual(one, other, delta=1e-6 * one)

    def test_no_epoch_is_reported_twice(self):
        # Of one step each, so that a kill comes before the next one is done.
        job = self.job(3, "--epochs", "12", "--batch-size", "12000")
        told = 0
        for wanted in (2, 5, 8):
            testlib.wait_until(lambda: job.epochs_told() >= wanted or not job.running(), f"epoch {wanted}")
            told = max(told, job.epochs_told())
            job.kill_one(min)
        self.assertEqual(job.finish(), 0, job.text())
        reported = re.findall(r"(?m)epoch (\d+)/12: ", job.text())
        # A kill between the line and the note that it is written is rare, and repeats that line; without the
        # note each kill does.
        counts = [reported.count(str(epoch)) for epoch in range(1, told + 1)]
        self.assertGreaterEqual(min(counts), 1, job.text())
        self.assertLessEqual(sum(counts) - len(counts), 1, job.text())

    def test_off_starts_over(self):
        job = self.job(1, "--epochs", "2", "--snapshot", "off")
        deadline = time.monotonic() + testlib.DEADLINE
        while "epoch 1/2" not in job.text() and time.monotonic() < deadline:
            time.sleep(0.002)
        killed = job.kill_one(min)
        self.assertEqual(job.finish(), 0, job.text())
        self.assertEqual(job.resumed(), [])
        if killed:  # it may have ended by itself in between
            self.assertIn(job.text().count("epoch 1/2"), (1, 2))

    def test_other_options_do_not_find_it(self):
        # A worker that changes its mind after a restart must not go on with another's state.
        epochs = 20
        script = self.script(
            "change.sh",
            f'exec {testlib.program("train")} --data synthetic --device cpu --hidden 64 '
            f'--epochs {epochs} --seed "$CTRUN_GENERATION"\n',
        )
        proc = self.start_ctrun("-n", "1", "--max-restarts", "1", "--no-python", "sh", script)
        proc.wait_for(f"epoch 1/{epochs}")
        (worker,) = children(proc.pid)
        os.kill(worker, signal.SIGKILL)
        result = proc.wait()
        self.assertEqual(result.code, 0, result)
        self.assertNotIn("from memory", result.out)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [c for c in map(int, f.read().split()) if torture.Job._is_train(c)]


if __name__ == "__main__":
    testlib.main()
