# SPDX-License-Identifier: Apache-2.0
"""train: what is interrupted anywhere and resumed ends in the same bytes as what was not."""

import os
import pathlib
import random
import re
import resource
import signal

import testlib
from testlib import idx

EPOCHS = 300
ARGS = ("--hidden", "64", "--batch-size", "24", "--epochs", str(EPOCHS), "--device", "cpu")


# Trainings in which kills find their place, by number of workers: 300 epochs of one take less than a tenth of a
# second. Two wait for each other, and beside busy processes each of their steps takes a millisecond.
LONG = {1: ("--epochs", str(5 * EPOCHS)), 2: ("--epochs", str(3 * EPOCHS))}

# Waiting for the disk after each of many short epochs would be most of the test.
ONLY_LAST = ("--checkpoint-every", "1000000")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as listed:
            return [int(child) for child in listed.read().split()]
    except OSError:
        return []


class TrainCheckpoints(testlib.Case):
    def setUp(self):
        super().setUp()
        self.data = idx.write_dataset(self.tmp)
        self.folder = self.tmp / "checkpoints"
        self.final = self.tmp / "final"
        # Into the folder, and going on from there.
        self.going_on = ("--checkpoint-dir", self.folder, "--resume", "auto")

    def argv(self, *args):
        return (testlib.program("train"), "--data", self.data, *ARGS, *args)

    def train(self, *args, **kwargs):
        result = self.run_program(*self.argv(*args), **kwargs)
        self.assertEqual(result.code, 0, result)
        return result

    def undisturbed(self, *args):
        path = self.tmp / "undisturbed"
        self.train("--checkpoint", path, *ONLY_LAST, *args)
        return path.read_bytes()

    def steps(self):
        names = os.listdir(self.folder) if self.folder.exists() else []
        found = (re.fullmatch(r"step-(\d{12,})\.safetensors", name) for name in names)
        return sorted(int(match[1]) for match in found if match)

    def path(self, step):
        return self.folder / f"step-{step:012}.safetensors"

    def newest(self):
        return (self.steps() or [0])[-1]

    def held(self, *args, **kwargs):
        """A training that stops in its middle until read() empties its metrics."""
        fifo = self.tmp / "fifo"
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        proc = self.start(*self.argv("--metrics", fifo, *args), **kwargs)
        proc.wait_for("epoch 10/")

        def read():
            while proc.running():
                try:
                    os.read(reader, 65536)
                except BlockingIOError:
                    pass

        return proc, read

    # ---- kills -------------------------------------------------------------------------------

    def check_kills(self, workers, wanted):
        expected = self.undisturbed(*LONG[1]) if workers == 1 else None
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        job = self.start_ctrun(
            "--nproc-per-node", str(workers), "--max-restarts", "100", "--no-python",
            *self.argv(*self.going_on, *LONG[workers], "--checkpoint-every", "50", "--checkpoint", self.final,
                       "--snapshot", "off"),
        )  # fmt: skip
        kills = 0
        while kills < wanted and job.running():
            target = self.newest() + rng.randrange(1, 500)
            testlib.wait_until(
                lambda: not job.running() or self.newest() >= target, f"step {target}, seed {seed}"
            )
            victims = children(job.pid)
            if job.running() and victims:
                try:
                    os.kill(rng.choice(victims), signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    pass
        result = job.wait()
        self.assertEqual(result.code, 0, (seed, result))
        self.assertGreater(kills, 0, (seed, result))
        if expected is None:
            whole = self.tmp / "whole"
            again = self.ctrun(
                "--nproc-per-node", str(workers), "--no-python",
                *self.argv("--checkpoint", whole, *ONLY_LAST, *LONG[workers]),
            )
            self.assertEqual(again.code, 0, again)
            expected = whole.read_bytes()
        self.assertEqual(self.final.read_bytes(), expected, (seed, kills))
        self.assertEqual(len(self.steps()), 3)

    def test_same_bytes_after_kills_at_random_moments(self):
        self.check_kills(1, 6)

    def test_same_bytes_after_kills_of_one_of_two(self):
        self.check_kills(2, 4)

    # ---- notices -----------------------------------------------------------------------------

    def check_preempted(self, proc, read):
        read()
        result = proc.wait()
        self.assertEqual(result.code, 0, result)
        last = result.out.splitlines()[-1]
        step = int(re.fullmatch(r"preempted: the state after step (\d+) is saved, .*", last)[1])
        self.assertEqual(self.newest(), step)
        self.assertLess(step, EPOCHS * 25)
        return result

    def test_notice_by_signal_stops_with_everything_saved(self):
        expected = self.undisturbed()
        for number in (signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(number=number):
                proc, read = self.held("--checkpoint-dir", self.folder)
                proc.signal(number)
                self.check_preempted(proc, read)
                again = self.train(*self.going_on, "--checkpoint", self.final, *ONLY_LAST)
                self.assertIn("resuming after epoch", again.out)
                self.assertEqual(self.final.read_bytes(), expected)
                for step in self.steps():
                    self.path(step).unlink()
                (self.tmp / "fifo").unlink()

    def test_the_same_notice_twice_is_one_notice(self):
        # Slurm sends a signal to all processes of a step, and ctrun sends it to its workers again.
        proc, read = self.held("--checkpoint-dir", self.folder)
        proc.signal(signal.SIGTERM)
        testlib.wait_until(lambda: not self.has_pending(proc.pid), "the first signal was taken")
        proc.signal(signal.SIGTERM)
        self.check_preempted(proc, read)

    def test_no_thread_that_computes_runs_a_handler(self):
        # oneDNN's kernels may have the stack pointer in the heap, where the frame of a handler would go.
        proc, _ = self.held("--checkpoint-dir", self.folder, env={"OMP_NUM_THREADS": "2"})
        testlib.wait_until(lambda: self.steps(), "the first checkpoint")
        stops = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGUSR1 - 1)
        hears = []
        for thread in pathlib.Path(f"/proc/{proc.pid}/task").iterdir():
            fields = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
            if int(fields["SigBlk"], 16) & stops != stops:
                hears.append(int(thread.name))
        self.assertEqual(len(hears), 1)
        self.assertNotEqual(hears[0], proc.pid)

    @staticmethod
    def has_pending(pid):
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
        return any(int(fields[name], 16) for name in ("SigPnd", "ShdPnd"))

    def test_notice_by_file_reaches_all_ranks_at_one_step(self):
        notice = self.tmp / "notice"
        procs = testlib.start_ranks(
            self, 3, ("train", "--data", self.data, *ARGS, "--epochs", "1000000",
                      "--checkpoint-dir", self.folder),
            env={"CTRUN_PREEMPT_FILE": notice},
        )  # fmt: skip
        testlib.wait_until(lambda: self.steps(), "a checkpoint")
        notice.touch()
        results = [proc.wait() for proc in procs]
        self.assertEqual([result.code for result in results], [0, 0, 0], results)
        self.assertIn("\npreempted: the state after step ", results[0].out)

    def test_without_checkpoints_a_signal_ends_as_ever(self):
        proc, _ = self.held()
        proc.signal(signal.SIGTERM)
        self.assertEqual(proc.wait().code, -signal.SIGTERM)

    # ---- what the folder holds ---------------------------------------------------------------

    def test_damaged_ones_are_named_and_passed_over(self):
        every = ("--checkpoint-every", "20", "--keep-checkpoints", "4")
        expected = self.undisturbed()
        self.train("--checkpoint-dir", self.folder, *every)
        one, two, three, four = self.steps()
        raw = bytearray(self.path(four).read_bytes())
        raw[-5] ^= 1
        self.path(four).write_bytes(raw)
        self.path(three).write_bytes(self.path(three).read_bytes()[:1000])
        (self.folder / "step-000000009999.safetensors.0123456789abcdef.tmp").write_bytes(b"half")
        result = self.train(*self.going_on, *every, "--checkpoint", self.final)
        warnings = result.err.splitlines()
        self.assertEqual(len(warnings), 2, result)
        self.assertRegex(
            warnings[0],
            f"^train: passing over a damaged checkpoint: {self.path(four)}: damaged: the checksum",
        )
        self.assertRegex(warnings[1], f"{self.path(three)}: truncated")
        self.assertEqual(self.final.read_bytes(), expected)
        names = os.listdir(self.folder)
        self.assertEqual(sum(name.endswith(".torn") for name in names), 2, names)
        self.assertFalse(any(name.endswith(".tmp") for name in names), names)
        self.assertEqual(self.newest(), four)

    def test_another_trainings_folder_is_not_mixed_up(self):
        self.train("--epochs", "2", "--checkpoint-dir", self.folder)
        result = self.run_program(*self.argv("--checkpoint-dir", self.folder))
        self.assertEqual(result.code, 1, result)
        self.assert_one_line(result.err)
        self.assertIn(
            f"{self.folder} holds a checkpoint of step 50, beyond step 0 where this training "
            "starts: go on from it with --resume auto",
            result.err,
        )
        # Another start would be refused as this one was.
        result = self.ctrun("--max-restarts", "9", *self.argv("--checkpoint-dir", self.folder))
        self.assertEqual(result.code, 1, result)
        self.assertNotIn("restarting", result.err)

    def test_within_an_epoch_the_batch_size_must_stay(self):
        self.train("--epochs", "1", "--checkpoint-dir", self.folder, "--checkpoint-every", "20")
        within = ("--resume", self.path(20))
        result = self.run_program(*self.argv("--batch-size", "25", *within))
        self.assertEqual(result.code, 1, result)
        self.assertIn("go on with --batch-size 24, not 25", result.err)
        self.train("--resume", self.path(25), "--batch-size", "25", "--epochs", "2")
        # 300 samples are 13 batches.
        smaller = self.tmp / "smaller"
        smaller.mkdir()
        result = self.run_program(
            *self.argv("--data", idx.write_dataset(smaller, train=300), *within)
        )
        self.assertEqual(result.code, 1, result)
        self.assert_one_line(result.err)
        self.assertIn("was taken after 20 batches of an epoch, but this data set has", result.err)

    # ---- a full disk -------------------------------------------------------------------------

    def check_full(self, result, reason):
        # The last one of all is what the training was for; its failure is the program's.
        self.assertEqual(result.code, 1, result)
        self.assertRegex(
            result.err,
            r"\Atrain: going on without this checkpoint; an earlier one, if there is any, stays: checkpoint "
            rf"{self.folder}/step-\d+\.safetensors\.[0-9a-f]{{16}}\.tmp: cannot write: {reason} "
            r"\(\d+\.\d MB needed, \d+\.\d MB free\)\n"
            rf"train: checkpoint {self.folder}/[^\n]*\n\Z",
        )
        self.assertIn(f"epoch {EPOCHS}/{EPOCHS}", result.out)

    def test_a_full_disk_leaves_the_last_good_one_and_goes_on(self):
        wide = ("--hidden", "512", "--checkpoint-dir", self.folder)
        proc, read = self.held(*wide, "--checkpoint-every", "20")
        testlib.wait_until(lambda: self.newest() >= 100, "a checkpoint")
        # Room for what it prints, but for no checkpoint.
        _, hard = resource.prlimit(proc.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(proc.pid, resource.RLIMIT_FSIZE, (100000, hard))
        before = self.newest()
        read()
        self.check_full(proc.wait(), "File too large")
        self.assertGreaterEqual(self.newest(), before)
        self.assertFalse([name for name in os.listdir(self.folder) if name.endswith(".tmp")])
        again = self.train(*wide, *ONLY_LAST, "--resume", "auto", "--checkpoint", self.final)
        self.assertEqual(again.err, "")
        whole = self.tmp / "whole"
        self.train("--hidden", "512", "--checkpoint", whole, *ONLY_LAST)
        self.assertEqual(self.final.read_bytes(), whole.read_bytes())

    def test_a_file_system_without_space(self):
        self.folder.mkdir()
        probe = self.run_program("unshare", "-m", "mount", "-t", "tmpfs", "none", self.folder)
        if probe.code != 0:
            self.skipTest("no file system may be mounted here: " + probe.err.strip())
        kept = self.tmp / "kept"
        kept.mkdir()
        # Two checkpoints of 190 kB fit, the third does not.
        result = self.run_program(
            "unshare", "-m", "sh", "-c",
            'mount -t tmpfs -o size=500k none "$0" && { "$@"; code=$?; cp "$0"/* "$OUT"; exit $code; }',
            self.folder, *self.argv("--hidden", "512", "--checkpoint-dir", self.folder),
            env={"OUT": kept},
        )  # fmt: skip
        self.check_full(result, "No space left on device")
        self.assertEqual(
            sorted(os.listdir(kept)),
            ["step-000000000025.safetensors", "step-000000000050.safetensors"],
        )
        self.train("--hidden", "512", "--epochs", "2", "--resume", kept / os.listdir(kept)[0])


if __name__ == "__main__":
    testlib.main()
