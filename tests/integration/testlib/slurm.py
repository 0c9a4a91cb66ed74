# SPDX-License-Identifier: Apache-2.0
"""A real Slurm with two nodes on this machine: munged, slurmctld and two slurmd in the test's folder,
inside of a mount namespace, where the nodes have names, and a network namespace, where fixed ports
belong to nobody else. Needs root, which Slurm's daemons want, and Debian's slurm packages."""

import os
import shutil
import socket
import subprocess
import unittest

from .wait import DEADLINE, wait_until

DAEMONS = ("munged", "slurmctld", "slurmd", "srun")

CONFIG = """
ClusterName=ctrun
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={dir}/munge.sock,cred_expire=10
SlurmctldPort=6817
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldLogFile={dir}/slurmctld.log
StateSaveLocation={dir}/state
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmdLogFile={dir}/slurmd-%n.log
SlurmdSpoolDir={dir}/spool-%n
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,builtin_interval=1
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName=node1 NodeHostname={host} NodeAddr=node1 Port=6818 CPUs=2
NodeName=node2 NodeHostname={host} NodeAddr=node2 Port=6819 CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP
"""


class Slurm:
    """`srun(...)` is a started process; everything ends with the test."""

    def __init__(self, case):
        missing = [name for name in DAEMONS if self._find(name) is None]
        if missing:
            raise unittest.SkipTest(f"no Slurm here ({', '.join(missing)}); see tools/setup --peers")
        if os.geteuid() != 0:
            raise unittest.SkipTest("Slurm's daemons need root")
        self.case, self.dir = case, case.tmp / "slurm"
        self.dir.mkdir()
        self.dir.chmod(0o755)
        self.inside = self._namespace()
        self.env = {"SLURM_CONF": self._configure()}
        self._daemon("munged", "--foreground", "--force", "--num-threads", "2",
                     "--key-file", self.dir / "key", "--socket", self.dir / "munge.sock",
                     "--pid-file", self.dir / "munge.pid", "--log-file", self.dir / "munge.log",
                     "--seed-file", self.dir / "seed")  # fmt: skip
        wait_until(lambda: (self.dir / "munge.sock").exists(), "munged listens")
        self._daemon("slurmctld", "-D")
        for node in ("node1", "node2"):
            self._daemon("slurmd", "-D", "-N", node)
        wait_until(self._is_idle, "both nodes are idle")
        case.addCleanup(self._await_steps)

    def _await_steps(self):
        # A step whose slurmd has gone would go on for minutes trying to tell it of its end.
        wait_until(lambda: not self._runs_steps(), "the last step has ended")

    def _runs_steps(self):
        """Is there a slurmstepd in our network namespace?"""
        ours = os.stat(f"/proc/{self.inside[2]}/ns/net")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                    if f.read() == "slurmstepd\n" and os.path.samestat(os.stat(f"/proc/{pid}/ns/net"), ours):
                        return True
            except OSError:
                pass  # it has just ended
        return False

    @staticmethod
    def _find(name):
        return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

    def _namespace(self):
        host = socket.gethostname()
        hosts = self.dir / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {host}\n10.77.0.1 node1\n10.77.0.2 node2\n")
        # Slurm looks names up with AI_ADDRCONFIG, which finds nothing where there is only loopback.
        steps = (
            "ip link set lo up", "ip link add ctveth0 type veth peer name ctveth1",
            "ip link set ctveth0 up", "ip link set ctveth1 up",
            "ip addr add 10.77.0.1/24 dev ctveth0", "ip addr add 10.77.0.2/24 dev ctveth0",
            f"mount --bind {hosts} /etc/hosts", "echo inside", "exec sleep 600",
        )  # fmt: skip
        holder = self.case.start("unshare", "--mount", "--net", "sh", "-c", " && ".join(steps))
        try:
            holder.wait_for("inside")
        except AssertionError as why:
            raise unittest.SkipTest(f"no namespaces here: {why}") from None
        return ("nsenter", "-t", str(holder.pid), "--mount", "--net")

    def _configure(self):
        key = self.dir / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for name in ("state", "spool-node1", "spool-node2"):
            (self.dir / name).mkdir()
        config = self.dir / "slurm.conf"
        config.write_text(CONFIG.format(host=socket.gethostname(), dir=self.dir))
        return str(config)

    def _daemon(self, name, *args):
        return self.case.start(*self.inside, self._find(name), *args, env=self.env)

    def _is_idle(self):
        done = subprocess.run(
            [*self.inside, "sinfo", "-h", "-o", "%D %t"], capture_output=True, text=True,
            timeout=DEADLINE, env=os.environ | self.env,
        )  # fmt: skip
        return done.stdout.split() == ["2", "idle"]

    def start_srun(self, *args, env=None):
        return self.case.start(*self.inside, "srun", *args, env=self.env | (env or {}))

    def srun(self, *args, env=None, deadline=DEADLINE):
        return self.start_srun(*args, env=env).wait(deadline)
