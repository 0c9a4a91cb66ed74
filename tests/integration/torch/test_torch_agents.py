# SPDX-License-Identifier: Apache-2.0
"""A PyTorch program over two agents: torchrun's, as a stranger to this project starts them, that meet
at a `ctrdzvd`; and ctrun's."""

import pathlib
import socket
import unittest
import uuid

import testlib
from testlib import pytorch, store_client
from testlib.pytorch import LIMIT, PROGRAMS


class Agents(pytorch.Case):
    python = pytorch.CURRENT

    def start_agents(self, port, run_id, script, *arguments):
        torchrun = pathlib.Path(self.python).with_name("torchrun")
        if not torchrun.exists():
            raise unittest.SkipTest(f"no {torchrun}")
        # The agents share the store of the workers between their lives unless told otherwise, and
        # gloo then meets the addresses of the dead: torchrun's own restarts need the variable.
        env = {
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        }
        return [
            self.start(
                self.python, str(torchrun),
                "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                "--rdzv-conf", "is_host=0", "--local-addr", "127.0.0.1", "--rdzv-id", run_id,
                "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "1",
                str(PROGRAMS / script), *arguments, env=env,
            )
            for _ in range(2)
        ]  # fmt: skip

    def test_a_job_with_a_restart(self):
        daemon, port = self.start_ctrdzvd()
        run_id = uuid.uuid4().hex
        marker = self.tmp / "second-life"
        agents = self.start_agents(port, run_id, "torchrun_restart.py", str(marker))
        results = [agent.wait(LIMIT) for agent in agents]

        for result in results:
            self.assertEqual(result.code, 0, f"an agent failed: {results}")
        self.assertTrue(marker.exists(), f"nothing failed, so nothing was restarted: {results}")
        out = "".join(result.out for result in results)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2 done in the second life of {run_id}", out)
        self.assertNotIn("first life", out)
        self.assertTrue(daemon.running(), "ctrdzvd ended under the agents")

        # They did meet here: the state of the rendezvous, and the keys of both of its rounds.
        peer = store_client.Peer(port)
        self.addCleanup(peer.close)
        keys = peer.keys()
        self.assertIn(f"/torch.rendezvous.{run_id}".encode(), keys)
        for turn in range(2):
            prefix = f"/torch.rendezvous.{run_id}.{turn}/".encode()
            self.assertTrue(
                any(key.startswith(prefix) for key in keys), f"no key of round {turn}: {keys}"
            )


class OurAgents(pytorch.Case):
    python = pytorch.CURRENT

    def test_a_job_with_a_restart(self):
        marker = self.tmp / "second-life"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        agents = [
            self.start_ctrun(
                "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
                "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "ours",
                "--max-restarts", "1", str(PROGRAMS / "torchrun_restart.py"), str(marker),
                env={"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                     "PYTHON_EXEC": self.python},
            )
            for _ in range(2)
        ]  # fmt: skip
        results = [agent.wait(LIMIT) for agent in agents]
        for result in results:
            self.assertEqual(result.code, 0, f"an agent failed: {results}")
            self.assertRegex(result.err, r"rank 1 failed on .*: process \d+ exited with code 17")
        out = "".join(result.out for result in results)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2 done in the second life of ours", out)


if __name__ == "__main__":
    testlib.main()
