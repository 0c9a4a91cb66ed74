# SPDX-License-Identifier: Apache-2.0
"""What ctrun makes of a scheduler's environment, as --print-config tells it; nothing is started."""

import testlib

SLURM = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_NODEID": "1", "SLURM_PROCID": "1", "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}  # fmt: skip


class Where(testlib.Case):
    def config(self, *args, env=None, code=0):
        marker = self.tmp / "started"
        script = self.script("x.py", f"open({str(marker)!r}, 'w')")
        result = self.ctrun("--print-config", *args, script, env=env)
        self.assertEqual((result.code, result.err), (code, ""), result)
        self.assertFalse(marker.exists())
        return {line[:13].strip(): line[13:] for line in result.out.splitlines()}

    def test_without_a_scheduler_it_stands_alone(self):
        config = self.config("-n", 3)
        self.assertTrue(config["found"].startswith("stand-alone"), config)
        self.assertTrue(config["mode"].startswith("single"), config)
        self.assertEqual(config["workers here"].split(), ["3", "--nproc-per-node"])
        self.assertIn("x.py", config["command"])
        self.assertIn("-u", config["command"])

    def test_exit_code_is_that_of_a_job_that_cannot_start(self):
        folder = self.tmp / "folder"
        folder.mkdir()
        no_gpu = ("-n", 2, "--gpu-bind", "mask", "--virtual-local-rank", "/bin/true")
        one_gpu = {"CUDA_VISIBLE_DEVICES": "0"}
        elsewhere = ("--master-addr", "192.0.2.1", "/bin/true")
        cases = (
            (("no-such-program",), {}, 127), ((folder,), {}, 126), (no_gpu, one_gpu, 1), (elsewhere, {}, 2),
            (("/bin/true",), {}, 0),
        )  # fmt: skip
        for args, env, code in cases:
            with self.subTest(args=args):
                result = self.ctrun("--print-config", *args, env=env)
                self.assertEqual((result.code, result.err), (code, ""), result)
                self.assertEqual("\nproblem " in result.out, code != 0, result)
                self.assertEqual(self.ctrun(*args, env=env).code, code)

    def test_node_of_a_step(self):
        config = self.config("-n", 2, env=SLURM)
        self.assertTrue(config["mode"].startswith("agent"), config)
        self.assertEqual(config["nodes"].split(), ["2", "SLURM_STEP_NUM_NODES"])
        self.assertEqual(config["node rank"].split(), ["1", "SLURM_NODEID"])
        self.assertRegex(config["store"], r"^n1:6\d{4} +SLURM_STEP_NODELIST$")
        self.assertEqual(config["expected"], "n1 n2 (SLURM_STEP_NODELIST)")
        # Every node computes the same port; another step another one.
        zero = SLURM | {"SLURM_NODEID": "0", "SLURM_PROCID": "0"}
        first = self.config(env=zero)
        self.assertRegex(first["warning"], "cannot resolve host 'n1': .* so far: ctrun waits for it")
        self.assertEqual(first["store"], config["store"])
        self.assertEqual(first["hosted by"], "this ctrun")
        self.assertNotEqual(self.config(env=SLURM | {"SLURM_STEP_ID": "1"})["store"], config["store"])

    def test_rank_of_a_step(self):
        env = SLURM | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
                       "SLURM_PROCID": "3", "SLURM_LOCALID": "1"}  # fmt: skip
        config = self.config(env=env)
        self.assertTrue(config["mode"].startswith("shim"), config)
        self.assertEqual(config["rank"].split(), ["3", "SLURM_PROCID"])
        self.assertEqual(config["local rank"].split(), ["1", "of", "2", "SLURM_LOCALID"])
        result = self.ctrun("-n", "2", "/bin/true", env=env)
        self.assertEqual(result.code, 2, result)
        self.assertIn("leave it out, and every task becomes one rank", result.err)

    def test_flags_win_over_the_scheduler(self):
        config = self.config("--standalone", env=SLURM)
        self.assertTrue(config["mode"].startswith("single"), config)
        self.assertEqual(self.ctrun("--standalone", "/bin/true", env=SLURM).code, 0)
        self.assertEqual(self.ctrun("--nnodes", "1", "/bin/true", env=SLURM).code, 0)

    def test_batch_script_is_one_node(self):
        env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "4", "SLURM_NODEID": "0"}
        config = self.config(env=env)
        self.assertTrue(config["mode"].startswith("single"), config)
        self.assertIn("start ctrun through srun", config["warning"])
        started = self.ctrun("/bin/true", env=env)
        self.assertEqual(started.code, 0, started)
        self.assertIn(f"ctrun: warning: {config['warning']}", started.err)

    def test_nodes_without_an_address_are_told_how_far_they_reach(self):
        warning = self.config("--nnodes", "2")["warning"]
        self.assertIn("without --master-addr the 2 nodes meet at 127.0.0.1", warning)
        self.assertNotIn("warning", self.config("--nnodes", "2", "--master-addr", "10.0.0.1"))

    def test_a_hint_of_several_nodes_is_never_dropped(self):
        env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}
        result = self.ctrun("/bin/true", env=env)
        self.assertEqual(result.code, 2, result)
        self.assertIn("pass --nnodes N, or --standalone", result.err)
        self.assertEqual(self.ctrun("--standalone", "/bin/true", env=env).code, 0)


if __name__ == "__main__":
    testlib.main()
