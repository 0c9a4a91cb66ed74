# SPDX-License-Identifier: Apache-2.0
"""The same PyTorch script under torchrun and under ctrun, on four machines of which three suffice, when the one is
lost that hosts the rendezvous."""

import pathlib
import time

from testlib import netns, program, wait_until

SCRIPT = pathlib.Path(__file__).with_name("steps.py")
MACHINES = 4
LEFT = MACHINES - 1
# Eight processes import PyTorch on two processors.
PATIENCE = 180
# How long the others may take to go on, or to end.
SILENCE = 180


class Side:
    """One launcher, and what becomes of its job."""

    def __init__(self, case, python, launcher, number):
        self.launcher, self.folder = launcher, case.tmp / f"beside-{number}"
        self.folder.mkdir()
        self.cluster = netns.Cluster(case, MACHINES)
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text("correct-horse-battery-staple\n")
        self.agents = []
        for machine in range(MACHINES):
            common = (
                "--nnodes", f"{LEFT}:{MACHINES}", "--nproc-per-node", 1, "--max-restarts", 100, "--rdzv-backend", "c10d",
                "--rdzv-endpoint", f"{self.cluster.addresses[0]}:29400", "--rdzv-id", "beside",
            )  # fmt: skip
            conf = "join_timeout=120,last_call_timeout=5"
            if launcher == "torchrun":
                argv = (python, "-m", "torch.distributed.run", *common, "--local-addr", self.cluster.addresses[machine],
                        "--rdzv-conf", f"{conf},is_host={int(machine == 0)}")  # fmt: skip
            else:
                argv = (program("ctrun"), *common, "--token-file", token, "--rdzv-conf", conf)
            self.agents.append(
                case.start(
                    *self.cluster.nodes[machine], *argv, SCRIPT, self.folder,
                    env={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "ctlink", "PYTHON_EXEC": python,
                         # So that torchrun's workers do not find the addresses of those before them.
                         "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
                )  # fmt: skip
            )

    def stepped(self, world, since_ns=0):
        """When all of a world of that size had done their first step, if that was after that time; None before."""
        texts = [path.read_text() for path in self.folder.glob(f"steps-{world}-*")]
        firsts = [int(text.split("\n")[0]) for text in texts if "\n" in text]
        firsts = sorted(first for first in firsts if first > since_ns)
        return firsts[world - 1] if len(firsts) >= world else None

    def ended(self):
        return [agent for agent in self.agents[1:] if not agent.running()]

    def play(self, cut):
        """Loses machine 1; returns what came of it, and whether the job went on to a good end."""
        wait_until(lambda: self.stepped(MACHINES) or self.ended(), "a step on all machines", PATIENCE)
        if self.ended():
            return f"did not begin: {self.ended()[0].result()}", False
        since_ns = time.monotonic_ns()
        if cut:
            self.cluster.cut(0)
        else:
            self.agents[0].kill()
        try:
            wait_until(lambda: self.stepped(LEFT, since_ns) or len(self.ended()) == LEFT, "", SILENCE)
        except AssertionError:
            return f"neither went on nor ended in {SILENCE} s", False
        next_ns = self.stepped(LEFT, since_ns)
        if next_ns is None:
            seconds = (time.monotonic_ns() - since_ns) / 1e9
            codes = ", ".join(str(agent.popen.returncode) for agent in self.agents[1:])
            return f"ended after {seconds:.1f} s, with the exit codes {codes}: {self.last_words()}", False
        (self.folder / "go").touch()
        codes = [agent.wait(PATIENCE).code for agent in self.agents[1:]]
        text = f"went on: next step of the others after {(next_ns - since_ns) / 1e9:.1f} s; then ended with {codes}"
        return text, codes == [0] * LEFT

    def last_words(self):
        lines = [line.strip() for line in self.agents[1].err.splitlines() if line.strip()]
        return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "no word")[:200]


def compare(new_case, python):
    """Prints how each side took each loss. Returns whether ctrun's jobs went on."""
    good, number = True, 0
    for loss, cut in (("killed", False), ("cut off", True)):
        for launcher in ("torchrun", "ctrun"):
            with new_case() as case:
                try:
                    text, went_on = Side(case, python, launcher, number).play(cut)
                except AssertionError as why:
                    text, went_on = str(why), False
            number += 1
            print(f"{launcher}, machine 1, which hosts, {loss}: the others {text}", flush=True)
            good = good and (went_on or launcher == "torchrun")
    return good
