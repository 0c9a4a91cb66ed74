# SPDX-License-Identifier: Apache-2.0
"""A real Grid Engine with two nodes on this machine: a master and two execution daemons, of a cell in the test's
folder, on machines of netns.Cluster. Needs root and Debian's gridengine packages."""

import os
import pathlib
import shutil
import subprocess
import unittest

from . import netns
from .wait import wait_until

# Seconds: each command reads the whole state of the master.
SLOW = 120

INSTALLED = pathlib.Path("/var/lib/gridengine")
LIBRARIES = pathlib.Path("/usr/lib/gridengine")
DEFAULTS = pathlib.Path("/usr/share/gridengine")
PROGRAMS = ("sge_qmaster", "sge_execd", "qconf", "qsub", "qrsh")
# Two slots of each node for a job, as a job with as many workers on each has it.
ENVIRONMENT = """
pe_name            ctrun
slots              4
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    2
control_slaves     TRUE
job_is_first_task  FALSE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""


class GridEngine:
    """`qrsh(...)` is a job that has ended."""

    def __init__(self, case):
        path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
        if missing:
            raise unittest.SkipTest(f"no Grid Engine here ({', '.join(missing)}); see tools/setup --gridengine")
        self.case, self.dir = case, case.tmp / "gridengine"
        self.cluster = netns.Cluster(case, 2, real_root=True)
        hosts = "\n".join(f"{a} {n}" for a, n in zip(self.cluster.addresses, self.cluster.names, strict=True))
        self.nodes = [self.cluster.knowing(i, hosts) for i in range(2)]
        self.env = {
            "SGE_ROOT": str(self.dir), "SGE_CELL": "default", "SGE_QMASTER_PORT": "6444", "SGE_EXECD_PORT": "6445",
            # In the foreground.
            "SGE_ND": "1", "EDITOR": str(self.dir / "editor"),
        }  # fmt: skip
        self._make_cell()
        # Who asks it before waits for long until it asks again.
        self._daemon(0, "sge_qmaster").wait_for("starting up SGE")
        self.check("qconf", "-sh")
        for option in ("-ah", "-as"):
            for name in self.cluster.names:
                self.run("qconf", option, name)
        for i in range(2):
            self._daemon(i, "sge_execd")
        self._make_queue()

    def _make_cell(self):
        common, spool = self.dir / "default" / "common", self.dir / "spool"
        for folder in (common, spool / "qmaster", spool / "execd", spool / "db"):
            folder.mkdir(parents=True)
        for folder in (self.case.tmp, self.dir):
            folder.chmod(0o755)
        for name in ("bin", "lib", "util", "utilbin"):
            (self.dir / name).symlink_to(INSTALLED / name)
        (common / "act_qmaster").write_text(self.cluster.names[0] + "\n")
        bootstrap = {
            "admin_user": "none", "default_domain": "none", "ignore_fqdn": "true", "spooling_method": "berkeleydb",
            "spooling_lib": "libspoolb", "spooling_params": spool / "db", "binary_path": "/usr/sbin",
            "qmaster_spool_dir": spool / "qmaster", "security_mode": "none", "listener_threads": 2,
            "worker_threads": 2, "scheduler_threads": 1,
        }  # fmt: skip
        (common / "bootstrap").write_text("".join(f"{name} {value}\n" for name, value in bootstrap.items()))
        # Jobs of root, and nobody is written to.
        changed = {"execd_spool_dir": spool / "execd", "mailer": "/bin/true", "min_uid": 0, "min_gid": 0}
        lines = (DEFAULTS / "default-configuration").read_text().splitlines()
        settings = [f"{line.split()[0]} {changed[line.split()[0]]}" if line.split()[:1] and line.split()[0] in changed
                    else line for line in lines]  # fmt: skip
        (self.dir / "configuration").write_text("\n".join(settings) + "\n")
        for argv in (
            ("spoolinit", "berkeleydb", "libspoolb", spool / "db", "init"),
            ("spooldefaults", "configuration", self.dir / "configuration"),
            ("spooldefaults", "complexes", DEFAULTS / "util" / "resources" / "centry"),
            ("spooldefaults", "usersets", DEFAULTS / "util" / "resources" / "usersets"),
            ("spooldefaults", "managers", "root"),
        ):
            self.check(LIBRARIES / argv[0], *argv[1:])

    def _daemon(self, node, name):
        return self.case.start(*self.nodes[node], shutil.which(name, path="/usr/sbin:/usr/bin"), env=self.env)

    def _make_queue(self):
        (self.dir / "environment").write_text(ENVIRONMENT.lstrip())
        self.check("qconf", "-Ap", self.dir / "environment")
        editor = self.dir / "editor"
        names = " ".join(self.cluster.names)
        editor.write_text(
            "#!/bin/sh\nexec sed -i -e 's/^hostlist .*/hostlist %s/' -e 's/^pe_list .*/pe_list ctrun/' "
            "-e 's/^slots .*/slots 2/' -e 's/^load_thresholds .*/load_thresholds NONE/' -e 's,^shell .*,shell /bin/sh,' \"$1\"\n" % names
        )
        editor.chmod(0o755)
        self.check("qconf", "-aq", "all.q")
        wait_until(self._has_slots, "both nodes take jobs", SLOW)

    def _has_slots(self):
        """Each node reports its load, and its queue has no letter of a trouble."""
        lines = [line.split() for line in self.run("qstat", "-f").stdout.splitlines() if line.startswith("all.q@")]
        return len(lines) == 2 and all(len(line) == 5 and line[3] != "-NA-" for line in lines)

    def run(self, *argv, limit=SLOW):
        return subprocess.run(
            [*map(str, (*self.nodes[0], *argv))], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit,
            check=False, env=os.environ | self.env,
        )  # fmt: skip

    def check(self, *argv):
        done = self.run(*argv)
        if done.returncode != 0:
            raise AssertionError(f"{argv}: {done.stdout}{done.stderr}")
        return done.stdout
