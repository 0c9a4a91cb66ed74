# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of --warm conclude from results: wrong ones are noticed. They start no job here, which takes
minutes."""

import argparse
import contextlib
import io
import json
import pathlib
import sys

import testlib

sys.path.insert(0, str(testlib.SOURCE_ROOT / "bench"))
import restart  # noqa: E402 the path comes first
import warm_cost  # noqa: E402
import warm_frameworks  # noqa: E402
import warm_torture  # noqa: E402
from frameworks import torch_tests  # noqa: E402

COLD, WARM, TORCHRUN = (side.name for side in (restart.ScriptOfCtrun, restart.ScriptOfWarm, restart.ScriptOfTorchrun))


class Judge(testlib.Case):
    def said(self, judge, *args):
        """What it returns, and what it prints."""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            returned = judge(*args)
        return returned, out.getvalue()


class Restart(Judge):
    def script(self, **other):
        """Are the goals met? By default all are, just so."""
        took = {COLD: [4.4] * 3, WARM: [0.4, 0.3, 0.3], TORCHRUN: [4.0, 4.0, 40.0], **other}
        medians = {name: sorted(seconds)[1] for name, seconds in took.items()}
        return self.said(restart.check_script, took, medians, {})

    def test_the_script(self):
        self.assertEqual(self.script()[0], [True, True])
        self.assertEqual(self.script(**{COLD: [4.5] * 3})[0], [True, False])

    def test_a_warm_restart_that_is_slow_once(self):
        slow = {TORCHRUN: [6.0, 6.0, 6.0], WARM: [0.2, 0.2, 0.51]}
        self.assertEqual(self.script(**slow)[0][0], False)
        self.assertEqual(self.script(**slow | {WARM: [0.2, 0.2, 0.5]})[0][0], True)

    def test_a_warm_restart_that_is_no_tenth_of_the_median(self):
        self.assertEqual(self.script(**{WARM: [0.3, 0.3, 0.41]})[0][0], False)

    def test_a_warm_restart_that_is_no_tenth_of_its_round(self):
        goals, said = self.script(**{TORCHRUN: [4.0, 3.9, 4.1], WARM: [0.3, 0.4, 0.3]})
        self.assertEqual(goals[0], False)
        self.assertIn("in the worst round 0.103 of what torchrun took", said)

    def test_jobs_that_fail(self):
        none = {COLD: 0, WARM: 0, TORCHRUN: 7}
        goals, said = self.said(restart.check_failures, none)
        self.assertTrue(all(goals))
        self.assertEqual(said, "script, torchrun: 7 jobs have failed\n")
        for name in (COLD, WARM):
            goals, said = self.said(restart.check_failures, none | {name: 1})
            self.assertFalse(all(goals))
            self.assertIn(f"{name}: 1 jobs have failed\n", said)

    def test_train(self):
        for took, goals in (((0.2, 0.02), [True, True]), ((0.21, 0.02), [False, True]), ((0.2, 0.021), [True, False])):
            seconds = {side.name: [t] for side, t in zip((restart.Train, restart.TrainOfWarm), took)}
            medians = {name: each[0] for name, each in seconds.items()}
            self.assertEqual(self.said(restart.check_train, seconds, medians)[0], goals)


class Cost(Judge):
    def judge(self, warm, plain=(100.0, 100.0), pairs=5, drift=0.001):
        """Of a series in which each job without --warm is faster than the one before by this share."""
        jobs = [{"rates": [rate * (1 + drift * number) for rate in plain]} for number in range(pairs + 1)]
        between = [{"rates": [rate * (1 + drift * (number + 0.5)) for rate in warm]} for number in range(pairs)]
        both = [job for two in zip(jobs, between) for job in two] + jobs[-1:]
        return self.said(warm_cost.judge, {"series": [both]})

    def test_losses_are_by_what_is_around_them(self):
        jobs = [{"rates": [90.0, 50.0]}, {"rates": [50.0, 60.0]}, {"rates": [110.0, 50.0]}]
        self.assertEqual([[round(each, 6) for each in phase] for phase in warm_cost.losses([jobs])], [[0.5], [-0.2]])
        self.assertEqual([[round(each, 6) for each in phase] for phase in warm_cost.noise([jobs])], [[0.222222], [0.0]])

    def test_a_loss_while_spares_are_made(self):
        self.assertEqual(self.judge((98.1, 100.0))[0], 0)
        self.assertEqual(self.judge((97.9, 100.0))[0], 1)

    def test_a_loss_afterwards_that_is_more_than_noise(self):
        """It is far below 2 %, but two jobs alike differ by 0.1 %."""
        code, said = self.judge((100.0, 99.7))
        self.assertEqual(code, 1)
        self.assertIn("median loss afterwards +0.30%", said)
        self.assertEqual(self.judge((100.0, 99.95))[0], 0)
        self.assertEqual(self.judge((100.0, 97.5), drift=0.03)[0], 1)  # noise allows no more than 2 %

    def test_too_little_or_too_much_noise_to_tell(self):
        self.assertEqual(self.judge((100.0, 100.0), pairs=4)[0], 2)
        self.assertEqual(self.judge((50.0, 50.0), drift=0.05)[0], 2)


class Torture(Judge):
    def setUp(self):
        super().setUp()
        # A generation of six workers, and one of four: the agent with the number 1 was lost.
        self.logs = [self.log((0, 0, 6), (1, 0, 4)), self.log((0, 2, 6)), self.log((0, 4, 6), (1, 2, 4))]
        self.workers = [warm_torture.Told(0, rank, 6, "a", 7, rank // 2, rank) for rank in range(6)]
        self.workers += [warm_torture.Told(1, rank, 4, "a", 8, (0, 2)[rank // 2], 9 + rank) for rank in range(4)]

    def log(self, *places):
        return "".join(
            f"ctrun: generation {generation}: node {first // 2} of {world // 2}, ranks {first}-{first + 1} of {world}\n"
            for generation, first, world in places
        )

    def wrong(self, number, **other):
        """What is said when one worker was told something else."""
        self.workers[number] = self.workers[number]._replace(**other)
        return "\n".join(warm_torture.wrong_identities(self.workers, self.logs))

    def test_the_right_ranks(self):
        self.assertEqual(warm_torture.wrong_identities(self.workers, self.logs), [])

    def test_the_rank_of_the_generation_before(self):
        self.assertIn("ctrun has given range(2, 4) of 4 to the agent of", self.wrong(9, rank=5))

    def test_the_rank_of_another_worker(self):
        self.assertIn("generation 1: ", self.wrong(9, rank=2))

    def test_two_ranks_that_are_exchanged(self):
        self.workers[1] = self.workers[1]._replace(rank=2)
        self.assertIn("ctrun has given range(0, 2) of 6", self.wrong(2, rank=1))

    def test_the_world_of_the_generation_before(self):
        self.assertIn("generation 1: ", self.wrong(8, world=6))

    def test_the_master_of_the_generation_before(self):
        self.assertIn("generation 1: ", self.wrong(7, port=7))

    def test_another_address(self):
        self.assertIn("generation 0: ", self.wrong(3, address="b"))

    def test_an_agent_that_was_in_no_such_generation(self):
        self.assertIn("ctrun has given () of -1", self.wrong(8, agent=1))

    def test_a_world_that_cannot_be(self):
        logs = [self.log((3, 0, 2))]
        workers = [warm_torture.Told(3, rank, 2, "a", 7, 0, rank) for rank in range(2)]
        self.assertIn("generation 3: ", "\n".join(warm_torture.wrong_identities(workers, logs)))

    def test_states(self):
        for rank in range(6):
            (self.tmp / f"state.{rank}").write_text(json.dumps([rank, warm_torture.chain(rank, rank)]))
        self.assertEqual(warm_torture.wrong_states(self.tmp), [])
        (self.tmp / "state.2").write_text(json.dumps([2, warm_torture.chain(3, 2)]))
        (self.tmp / "state.4").unlink()
        (self.tmp / "stale").write_text("generation 1, rank 0: attempt_0\n")
        self.assertEqual(
            warm_torture.wrong_states(self.tmp),
            ["generation 1, rank 0: attempt_0", "rank 2 has another hash after 2 steps", "rank 4 has never run"],
        )

    def test_spares_that_are_not_made_any_more(self):
        """That there is no memory for some at the moment is no such thing."""
        line = "ctrun: --warm makes no spares{}\n"
        logs = [line.format(" now: there is too little memory"), line.format(": why")]
        self.assertEqual(warm_torture.turned_off(logs), ["--warm makes no spares: why"])

    def test_the_use_of_spares(self):
        line = "ctrun: generation {}: {} of 2 workers here were warm\n"
        logs = [line.format(1, 2), line.format(1, 1) + line.format(3, 2)]
        self.assertEqual(warm_torture.use_of_spares(logs, [(0, 4), (1, 4), (2, 1)]), (5, 9, 4))

    def judge(self, wanted=10, **other):
        run = {"seed": 1, "killed": {"worker": 6, "agent": 4}, "generations": 9, "worlds": [4, 6], "workers": 50,
               "warm": 30, "ready": 20, "used": 15, "refused": 1, "wrong": []}  # fmt: skip
        return self.said(warm_torture.judge, [run | other], wanted)

    def test_a_run(self):
        self.assertEqual(self.judge()[0], 0)
        for other, text in (
            ({"wrong": ["--warm makes no spares: why"]}, "--warm makes no spares: why\n"),
            ({"warm": 0, "used": 0}, "0 of 20 spares that were ready became workers"),
            ({"used": 14}, "14 of 20"),
        ):
            code, said = self.judge(**other)
            self.assertEqual(code, 1, said)
            self.assertIn(text, said)

    def test_a_run_that_shows_too_little(self):
        self.assertEqual(self.judge(wanted=11)[0], 2)
        code, said = self.judge(worlds=[6])
        self.assertEqual(code, 2)
        self.assertIn("no generation had 4 workers", said)
        self.assertEqual(self.judge(ready=0, used=0)[0], 2)


class Frameworks(Judge):
    def check(self, cold, warm, said="generation 1: 2 of 2 workers here were warm\n", fails=""):
        """Of jobs that give these values."""

        class Run:
            def __init__(self, _args, _python, _name, _folder, is_warm):
                self.is_warm, self.said = is_warm, said

            def go(self):
                if self.is_warm and fails:
                    raise RuntimeError(fails)
                return (warm if self.is_warm else cold), 0.1

            def close(self):
                pass

        real, warm_frameworks.Run = warm_frameworks.Run, Run
        try:
            return self.said(warm_frameworks.check, argparse.Namespace(), "python", "ddp", pathlib.Path("/nowhere"))
        finally:
            warm_frameworks.Run = real

    def test_programs(self):
        self.assertTrue(self.check([1, 2], [1, 2])[0])
        for how, text in (
            ({"warm": [1, 3]}, "[1, 2] and [1, 3]"),
            ({"said": "1 of 2 workers here were warm\nctrun: rank 1 starts cold: why\n"}, "rank 1 starts cold: why"),
            ({"said": ""}, "not warm"),
            ({"fails": "processes are left"}, "warm: processes are left"),
        ):
            alike, said = self.check(**{"cold": [1, 2], "warm": [1, 2], **how})
            self.assertFalse(alike, said)
            self.assertIn(text, said)

    def pytorch(self, cold, warm):
        """Of four tests, of which these ended otherwise than well."""
        names = ["a", "b", "c", "d"]
        found = {side: dict.fromkeys(names, "passed") | how for side, how in (("cold", cold), ("warm", warm))}
        return self.said(torch_tests.judge, names, found)

    def test_tests_of_pytorch(self):
        skipped = "skipped (no GPU)"
        self.assertEqual(self.pytorch({}, {})[0], 0)
        self.assertEqual(self.pytorch({"a": "failed"}, {})[0], 1)
        self.assertEqual(self.pytorch({}, {"b": "failed"})[0], 1)
        self.assertEqual(self.pytorch({}, {"b": "not run"})[0], 2)
        self.assertEqual(self.pytorch({}, {"b": skipped})[0], 1)
        self.assertEqual(self.pytorch({"b": skipped}, {"b": skipped})[0], 0)
        code, said = self.pytorch({"b": skipped, "c": skipped}, {"b": skipped, "c": skipped})
        self.assertEqual(code, 2)
        self.assertIn("2 of 4 tests have passed cold and warm, 2 were skipped", said)


if __name__ == "__main__":
    testlib.main()
