# SPDX-License-Identifier: Apache-2.0
"""The manifests of contrib/kubernetes in a real Kubernetes (testlib/kubernetes.py), with the image of
contrib/container. It is 1.20, the newest whose source Debian has: what is newer (the index of a pod as its label,
Indexed Jobs, podFailurePolicy) is stood in for here, and checked against schemas in test_kubernetes.py. Only
`tools/test --with-kubernetes` runs this."""

import base64
import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import testlib
from testlib import SOURCE_ROOT
from testlib.container_image import ImageStore
from testlib.kubernetes import SLOW, Kubernetes, programs_folder, readme_secret

FOLDER = SOURCE_ROOT / "contrib" / "kubernetes"
# A process for the sandbox of each pod, and the trainer, which the image leaves out.
PAUSE = 'FROM localhost/ctrun\nENTRYPOINT ["sleep", "2147483647"]\n'
TRAINER = "FROM localhost/ctrun\nCOPY trainer/ /\n"
NAMES = ("docker.io/library/ctrun:latest", "localhost/pause:latest")
# Who is told to end takes a while, less than the pod's grace, and says when it is done.
SAVES = "trap 'sleep 3; echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"
# Prints the code of /metrics, and the page, for whoever sends the key that is named.
METRICS = """
import sys, urllib.error, urllib.request
headers = {"Authorization": "Bearer " + key for key in sys.argv[2:]}
try:
    with urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/metrics", headers=headers), timeout=60) as page:
        print(page.status, page.read().decode(), sep="\\n")
except urllib.error.HTTPError as error:
    print(error.code)
"""


def one(documents, kind):
    (found,) = [d for d in documents if d["kind"] == kind]
    return found


def pod_template(document):
    return document["spec"]["template"]


def container_of(document):
    return pod_template(document)["spec"]["containers"][0]


def with_command(document, *command, options=()):
    """The container's own options of ctrun, with these behind them and another command."""
    args = container_of(document)["args"]
    container_of(document)["args"] = [*args[: args.index("--no-python")], *options, "--no-python", *command]


def little(document):
    """Fits on a machine that has little left for it."""
    container_of(document)["resources"]["requests"] = {"cpu": "50m", "memory": "64Mi"}
    return document


class Cluster(testlib.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs_folder()
        # One cluster for all tests: its start takes most of the time. Each test has a namespace of its own.
        shared = cls.shared = testlib.Case()
        shared.setUp()
        cls.addClassCleanup(shared.doCleanups)
        cls.cluster = Kubernetes(shared, cls.images(shared))

    @staticmethod
    def images(case):
        """All images in one file."""
        store = ImageStore(case)
        store.build_ctrun()
        context = case.tmp / "layers"
        trainer = context / "trainer"
        (trainer / "usr" / "bin").mkdir(parents=True)
        program = testlib.program("train")
        shutil.copy(program, trainer / "usr" / "bin")
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for path in {word for word in listed.split() if word.startswith("/")}:
            (trainer / path[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, trainer / path[1:])
        for name, text in (("docker.io/library/ctrun:latest", TRAINER), ("pause", PAUSE)):
            (context / "Containerfile").write_text(text)
            store.build(name, context / "Containerfile", context)
        out = case.tmp / "images.tar"
        store.command(*store.podman, "save", "--quiet", "--multi-image-archive", "-o", out, *NAMES)
        return out

    def setUp(self):
        super().setUp()
        self.namespace = self._testMethodName.removeprefix("test_").replace("_", "-")[:50]
        self.cluster.kubectl("create", "namespace", self.namespace)
        self.make_secret()
        self.addCleanup(self.cluster.try_kubectl, "delete", "namespace", self.namespace, "--wait=false")
        # Before the namespace: what runs needs no grace any more.
        self.addCleanup(self.cluster.try_kubectl, "-n", self.namespace, "delete", "all", "--all", "--grace-period=0",
                        "--force")  # fmt: skip

    def make_secret(self):
        """As the README says it, where kubectl is that of the test."""
        folder = self.tmp / "bin"
        folder.mkdir()
        line = shlex.join(map(str, self.cluster.kubectl_line("-n", self.namespace)))
        # Its own kubectl is not this one.
        (folder / "kubectl").write_text(f'#!/bin/sh\nPATH={shlex.quote(os.environ["PATH"])} exec {line} "$@"\n')
        (folder / "kubectl").chmod(0o755)
        (folder / "ctrun-stat").symlink_to(testlib.program("ctrun-stat"))
        paths = f"{folder}:{os.environ['PATH']}"
        result = self.run_program("sh", "-c", readme_secret(), env={"PATH": paths, "HOME": str(self.tmp)})
        self.assertEqual(result.code, 0, result)

    def secret(self, name):
        """A value of the pods' secret, as Prometheus is given it."""
        return base64.b64decode(self.cluster.get("-n", self.namespace, "secret", "ctrun-token")["data"][name]).decode()

    def kubectl(self, *args):
        return self.cluster.kubectl("-n", self.namespace, *args)

    def apply(self, *documents):
        return self.cluster.apply(self.namespace, documents)

    def manifests(self, name):
        """The workload of a folder, and what else is in it, which is in the cluster afterwards."""
        documents = self.cluster.documents(FOLDER / name)
        kind = "Job" if name == "job" else "StatefulSet"
        self.apply(*[d for d in documents if d["kind"] != kind])
        return little(one(documents, kind))

    def pod(self, name):
        """None while there is none of that name."""
        done = self.cluster.try_kubectl("-n", self.namespace, "get", "-o", "json", "pod", name)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def pods(self, owner):
        """Of a Job."""
        return self.cluster.get("-n", self.namespace, "pods", "-l", f"job-name={owner}")["items"]

    def log(self, pod, *options):
        done = self.cluster.try_kubectl("-n", self.namespace, "logs", *options, pod)
        return done.stdout if done.returncode == 0 else ""

    def wait(self, what, condition):
        try:
            return self.cluster.wait(what, condition)
        except AssertionError as why:
            state = self.cluster.try_kubectl("-n", self.namespace, "describe", "pods")
            logs = [self.log(p["metadata"]["name"]) for p in self.cluster.get("-n", self.namespace, "pods")["items"]]
            raise AssertionError(f"{why}\n{state.stdout[-6000:]}\n{logs}") from None

    def ended(self, pod):
        """The exit code of a pod's container; None while it runs."""
        for status in pod["status"].get("containerStatuses", ()):
            if "terminated" in status["state"]:
                return status["state"]["terminated"]["exitCode"]
        return None

    def start_job(self, *command, options=()):
        """The two pods of the Indexed Job in job/, each as a Job: what 1.21 sets by the index is set here."""
        job = self.manifests("job")
        for index in (0, 1):
            single = copy.deepcopy(job)
            name = single["metadata"]["name"] = f"train-{index}"
            single["spec"] |= {"completions": 1, "parallelism": 1, "backoffLimit": 0}
            pod_template(single)["spec"]["hostname"] = name
            container_of(single)["env"].append({"name": "JOB_COMPLETION_INDEX", "value": str(index)})
            with_command(single, *command, options=options)
            self.apply(single)
        return "train-0", "train-1"

    def conditions(self, name):
        """Of a Job that has ended: what it says of its end."""
        job = self.cluster.get("-n", self.namespace, "jobs", name)
        return {c["type"]: c.get("reason", "") for c in job["status"].get("conditions", ()) if c["status"] == "True"}

    def test_a_job_of_two_pods_trains_to_its_end(self):
        names = self.start_job("train", "--data=synthetic", "--device=cpu", "--hidden=64", "--epochs=3")
        for name in names:
            self.wait(f"{name} has ended", lambda name=name: self.conditions(name))
            self.assertEqual(self.conditions(name), {"Complete": ""})
            (pod,) = self.pods(name)
            self.assertEqual(self.ended(pod), 0)
        log = self.log("job/train-0")
        self.assertRegex(log, r"epoch +3")
        self.assertIn("4 workers", log)

    def test_the_exit_code_is_in_the_status_of_all_pods(self):
        names = self.start_job("sh", "-c", 'test "$RANK" != 3 || exit 7; exec sleep 1000', options=["--max-restarts=0"])
        for name in names:
            self.wait(f"{name} has failed", lambda name=name: self.conditions(name))
            self.assertEqual(self.conditions(name), {"Failed": "BackoffLimitExceeded"})
            (pod,) = self.pods(name)
            self.assertEqual(self.ended(pod), 7, self.log(pod["metadata"]["name"]))
            self.assertEqual(self.cluster.get("-n", self.namespace, "jobs", name)["status"]["failed"], 1)

    def stateful_set(self, *command):
        """statefulset/ with the index of a pod from its name, because 1.20 has it nowhere else."""
        document = self.manifests("statefulset")
        container = container_of(document)
        container["env"] = [e for e in container["env"] if e["name"] != "NODE_RANK"]
        container["command"] = ["sh", "-c", 'NODE_RANK=${HOSTNAME##*-} exec ctrun "$@"', "sh"]
        with_command(document, *command)
        return document

    def is_ready(self, name, but=None):
        """A pod of this name, other than `but`, is ready, which its probe says."""
        pod = self.pod(name)
        if pod is None or pod["metadata"]["uid"] == but:
            return False
        conditions = pod["status"].get("conditions", ())
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def is_pending(self, name):
        pod = self.pod(name)
        return pod is not None and pod["status"]["phase"] == "Pending"

    def test_the_manifests_are_accepted(self):
        for name in ("job", "statefulset", "store"):
            done = self.kubectl("apply", "--dry-run=server", "--validate=false", "-k", str(FOLDER / name))
            for line in ("service/ctrun created", "networkpolicy.networking.k8s.io/ctrun created"):
                self.assertIn(line, done)
            self.assertRegex(done, r"(job.batch|statefulset.apps)/(train|store) created")

    def test_a_deleted_pod_comes_back_and_the_job_goes_on(self):
        # Its checkpoints are in a folder that all pods see, as a job of more than one node must have it.
        shared = self.tmp / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        document = self.stateful_set(
            "train", "--data=synthetic", "--device=cpu", "--hidden=64", "--epochs=1000000",
            "--checkpoint-dir=/shared/checkpoints", "--resume=auto", "--metrics=/shared/metrics")  # fmt: skip
        pod_template(document)["spec"]["volumes"].append({"name": "shared", "hostPath": {"path": str(shared)}})
        container_of(document)["volumeMounts"].append({"name": "shared", "mountPath": "/shared"})
        self.apply(document)

        def epochs():
            path = shared / "metrics"
            lines = path.read_text().splitlines(keepends=True) if path.exists() else []
            events = [json.loads(line) for line in lines if line.endswith("\n")]
            return [e["epoch"] for e in events if e["event"] == "epoch"]

        for name in ("train-0", "train-1"):
            self.wait(f"the probe of {name} is answered", lambda name=name: self.is_ready(name))
        self.wait("the job trains", lambda: len(epochs()) >= 2)
        before = self.pod("train-1")["metadata"]["uid"]
        self.kubectl("delete", "pod", "train-1", "--wait=false")
        self.wait("the pod is another", lambda: self.is_ready("train-1", but=before))
        seen = len(epochs())
        self.wait("the job goes on", lambda: len(epochs()) >= seen + 2)
        told = epochs()
        # It went on from a checkpoint, and left no epoch out.
        self.assertEqual(sorted(set(told)), list(range(1, max(told) + 1)))
        self.assertEqual(told.count(1), 1, told)

    def test_a_drained_node_keeps_the_grace(self):
        self.apply(self.stateful_set("sh", "-c", SAVES))
        for name in ("train-0", "train-1"):
            self.wait(f"{name} runs", lambda name=name: self.log(name).count("up\n") == 2)
        watch = self.start(*self.cluster.kubectl_line(
            "-n", self.namespace, "get", "pod", "train-1", "--watch", "-o",
            "jsonpath=code {.status.containerStatuses[0].state.terminated.exitCode}{'\\n'}"))  # fmt: skip
        watch.wait_for("code", SLOW)
        log = self.start(*self.cluster.kubectl_line("-n", self.namespace, "logs", "--follow", "train-1"))
        log.wait_for("up", SLOW)
        self.kubectl("cordon", "node")
        self.addCleanup(self.cluster.try_kubectl, "uncordon", "node")
        drain = self.start(*self.cluster.kubectl_line(
            "drain", "node", "--pod-selector=statefulset.kubernetes.io/pod-name=train-1", "--ignore-daemonsets",
            "--delete-emptydir-data"))  # fmt: skip
        self.wait("both workers have saved", lambda: log.out.count("saved") == 2)
        self.wait("train-1 has ended", lambda: re.search(r"code \d+\n", watch.out) or not watch.running())
        # Of a job that was told to end.
        self.assertRegex(watch.out, r"(?m)^code 123$", watch.err)
        result = drain.wait(SLOW)
        self.assertEqual(result.code, 0, result)
        # No place for it until the node takes pods again.
        self.wait("it waits for a node", lambda: self.is_pending("train-1"))
        self.kubectl("uncordon", "node")
        self.wait("train-1 is back", lambda: self.log("train-1").count("up\n") == 2)

    def test_the_store_answers_its_probes(self):
        journal = self.tmp / "journal"
        journal.mkdir()
        journal.chmod(0o777)
        self.apply({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "journal"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                     "hostPath": {"path": str(journal)}}})  # fmt: skip
        document = self.manifests("store")
        probes = {name: container_of(document)[f"{name}Probe"] for name in ("startup", "readiness", "liveness")}
        self.apply(document)
        self.wait("the store is ready", lambda: self.is_ready("store-0"))
        self.assertTrue((journal / "journal").exists())
        status = self.pod("store-0")["status"]["containerStatuses"][0]
        self.assertEqual((status["restartCount"], status["started"], status["ready"]), (0, True, True), probes)

        # From the node, which is no machine of a job; as the ServiceMonitor says it.
        metrics = (*self.cluster.inside, sys.executable, "-c", METRICS, f"http://{self.pod('store-0')['status']['podIP']}:29500")
        self.assertEqual(self.run_program(*metrics).out, "403\n")
        self.assertRegex(self.run_program(*metrics, self.secret("read-key")).out, r"\A200\n# HELP ctrun_")


if __name__ == "__main__":
    testlib.main()
