# SPDX-License-Identifier: Apache-2.0
"""The manifests of contrib/kubernetes against the published schemas, and against ctrun: the options of each container,
in the environment of each pod, give the job that the manifest means. The schemas come from PyPI, so only `tools/test
--with-packages` runs this. No cluster is needed; test_cluster.py runs the pods in one."""

import copy
import hmac
import json
import os
import re
import signal
import subprocess
import sys
import unittest

import testlib
from testlib import SOURCE_ROOT
from testlib.kubernetes import readme_secret

FOLDER = SOURCE_ROOT / "contrib" / "kubernetes"
DOMAIN = "team.svc.cluster.local"
CORE = ("Service", "NetworkPolicy", "Job", "StatefulSet")

# Prints all documents; those with a published model only if the model keeps every field of them.
READ = """
import json, pathlib, sys, yaml
import kubernetes_validate
from cloudcoil.models.prometheus_operator import v1 as operator
from kubeflow_trainer_api import models
kinds = {
    "JobSet": models.JobsetV1alpha2JobSet, "TrainJob": models.TrainerV1alpha1TrainJob,
    "TrainingRuntime": models.TrainerV1alpha1TrainingRuntime,
}
def lost(given, kept, at):
    if isinstance(given, dict):
        for name, value in given.items():
            if not isinstance(kept, dict) or name not in kept:
                sys.exit(f"{at}.{name} is no field")
            lost(value, kept[name], f"{at}.{name}")
    elif isinstance(given, list):
        for i, value in enumerate(given):
            lost(value, kept[i], f"{at}[{i}]")
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).glob("*/*.yaml")):
    for document in yaml.safe_load_all(path.read_text()):
        found.setdefault(path.parent.name, []).append(document)
        kind = document["kind"]
        if kind in sys.argv[2].split(","):
            kubernetes_validate.validate(document, "1.31", strict=True)
        elif kind in kinds:
            lost(document, kinds[kind].from_dict(document).to_dict(), f"{path}: ")
        elif kind == "ServiceMonitor":
            model = operator.ServiceMonitor.model_validate(document)
            lost(document, model.model_dump(mode="json", by_alias=True, exclude_none=True), f"{path}: ")
print(json.dumps(found))
"""


def pod_specs(document):
    """All pod specs in a document."""
    if isinstance(document, dict):
        if "containers" in document:
            yield document
        for value in document.values():
            yield from pod_specs(value)
    elif isinstance(document, list):
        for value in document:
            yield from pod_specs(value)


def with_key(document, key):
    """All values of that key in a document."""
    if isinstance(document, dict):
        if key in document:
            yield document[key]
        for value in document.values():
            yield from with_key(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from with_key(value, key)


class Kubernetes(testlib.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        venv = testlib.BUILD_ROOT / "kubernetes-venv"
        python = venv / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        done = subprocess.run(
            [python, "-m", "pip", "--quiet", "install", "kubernetes-validate", "kubeflow-trainer-api",
             "cloudcoil-models-prometheus-operator"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise unittest.SkipTest(f"the schemas cannot be had from PyPI: {done.stderr.strip()[-200:]}")
        done = subprocess.run(
            [python, "-c", READ, FOLDER, ",".join(CORE)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        cls.manifests = json.loads(done.stdout)

    def test_all_kinds_are_there(self):
        kinds = {d["kind"] for documents in self.manifests.values() for d in documents}
        self.assertEqual(
            kinds, {*CORE, "Kustomization", "JobSet", "TrainJob", "TrainingRuntime", "ServiceMonitor"}
        )

    def test_kustomizations_name_all_files(self):
        for folder, documents in self.manifests.items():
            named = [d["resources"] for d in documents if d["kind"] == "Kustomization"]
            if folder == "monitoring":
                continue
            (resources,) = named
            files = {p.name for p in (FOLDER / folder).glob("*.yaml")} - {"kustomization.yaml"}
            self.assertEqual({r for r in resources if "/" not in r}, files)
            self.assertEqual("../common" in resources, folder != "common")

    def test_the_readmes_secret_has_a_read_key_or_is_not_made(self):
        lines = readme_secret()
        folder = self.tmp / "bin"
        folder.mkdir()
        made = self.tmp / "made"
        kubectl, stat = folder / "kubectl", folder / "ctrun-stat"
        kubectl.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{made}\n')
        # As where it is not installed.
        stat.write_text("#!/bin/sh\nexit 127\n")
        for path in (kubectl, stat):
            path.chmod(0o755)
        paths = {"PATH": f"{folder}:{os.environ['PATH']}"}
        self.assertNotEqual(self.run_program("sh", "-c", lines, env=paths).code, 0)
        self.assertFalse(made.exists())
        stat.unlink()
        stat.symlink_to(testlib.program("ctrun-stat"))
        result = self.run_program("sh", "-c", lines, env=paths)
        self.assertEqual(result.code, 0, result)
        token, key = re.findall(r"^--from-literal=(?:token|read-key)=(.+)$", made.read_text(), re.M)
        self.assertEqual(key, hmac.new(token.encode(), b"ctrun read key 1", "sha256").hexdigest())

    def test_pods_match_service_and_policy(self):
        common = {d["kind"]: d for d in self.manifests["common"]}
        selector = common["Service"]["spec"]["selector"]
        self.assertTrue(common["Service"]["spec"]["publishNotReadyAddresses"])
        self.assertEqual(common["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], selector)
        count = 0
        for documents in self.manifests.values():
            for document in documents:
                for template in with_key(document, "template"):
                    if "containers" in template["spec"]:
                        self.assertEqual(selector.items() - template["metadata"]["labels"].items(), set())
                        count += 1
                if document["kind"] == "StatefulSet":
                    labels = document["spec"]["template"]["metadata"]["labels"]
                    self.assertEqual(document["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(count, 5)

    def test_every_pod_is_confined(self):
        for folder, documents in self.manifests.items():
            for spec in pod_specs(documents):
                (container,) = spec["containers"]
                with self.subTest(folder):
                    self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                    self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
                    self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
                    places = {m["mountPath"] for m in container["volumeMounts"]}
                    self.assertLessEqual({"/tmp"} if folder == "store" else {"/tmp", "/dev/shm"}, places)

    def test_the_grace_is_longer_than_the_workers_may_take(self):
        for folder, documents in self.manifests.items():
            for spec in pod_specs(documents):
                args = " ".join(spec["containers"][0]["args"])
                timeout = re.search(r"--shutdown-timeout=(\d+)", args)
                self.assertEqual(timeout is None, folder == "store")
                if timeout:
                    self.assertGreater(spec["terminationGracePeriodSeconds"], int(timeout[1]) + 10)

    def test_exit_codes_are_those_of_the_manual(self):
        page = (SOURCE_ROOT / "man" / "ctrun.1").read_text()
        section = page.partition(".Sh EXIT STATUS")[2].partition("\n.Sh ")[0]
        codes = {int(code) for code in re.findall(r"^\.It (\d+)$", section, re.M)}
        policies = []
        for job in [s for d in self.manifests.values() for s in with_key(d, "spec") if "podFailurePolicy" in s]:
            # The Job sees an exit code only if the kubelet does not start the container again.
            self.assertEqual(job["template"]["spec"]["restartPolicy"], "Never")
            self.assertEqual(job["podReplacementPolicy"], "Failed")
            (container,) = job["template"]["spec"]["containers"]
            policies.append(copy.deepcopy(job["podFailurePolicy"]))
            for exits in with_key(policies[-1], "onExitCodes"):
                self.assertEqual(exits.pop("containerName"), container["name"])
        self.assertEqual(len(policies), 3)
        self.assertEqual(policies, [policies[0]] * 3)
        by_action = {r["action"]: r["onExitCodes"]["values"] for r in policies[0]["rules"] if "onExitCodes" in r}
        self.assertEqual(by_action, {"FailJob": [2, 119, 126, 127], "Ignore": [120, 121, 123, 143]})
        self.assertIn(".It 128 + n\n", section)
        codes.add(128 + signal.SIGTERM)
        self.assertLessEqual({code for values in by_action.values() for code in values}, codes)

    def test_jobsets_restart_their_pods_in_the_same_way(self):
        policies = [p for documents in self.manifests.values() for p in with_key(documents, "failurePolicy")]
        self.assertEqual(len(policies), 2)
        self.assertEqual(policies[0], policies[1])
        for rule in policies[0]["rules"]:
            # JobSet's webhook refuses other names; the schemas do not say so.
            self.assertRegex(rule["name"], r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")

    def config(self, container, pod, service, env):
        """What ctrun makes of the container's options in a pod: --print-config's rows, by their names."""
        here = {e["name"]: e["value"] for e in container["env"] if "value" in e}
        here |= {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "CTRUN_TOKEN": "0123456789abcdef0123456789abcdef", **env}
        hosts = self.tmp / "hosts"
        # As the kubelet writes it.
        hosts.write_text(f"127.0.0.1 localhost\n10.244.0.5\t{pod}.{service}.{DOMAIN}\t{pod}\n")
        result = self.run_program(
            "unshare", "--user", "--map-root-user", "--mount", "--uts", "sh", "-c",
            f'hostname {pod} && mount --bind {hosts} /etc/hosts && exec "$0" --print-config "$@"',
            testlib.program("ctrun"), *container["args"], env=here,
        )  # fmt: skip
        if "unshare" in result.err:
            self.skipTest(f"no namespaces here: {result.err}")
        return {line[:13].strip(): line[13:] for line in result.out.splitlines()}, result

    def check_pods(self, folder, name, service, store, env):
        (spec,) = [s for d in self.manifests[folder] for s in pod_specs(d)]
        for index in (0, 1):
            config, result = self.config(spec["containers"][0], f"{name}-{index}", service, env(index))
            self.assertEqual(config["nodes"].split()[0], "2", result)
            self.assertEqual(config["node rank"].split()[0], str(index), result)
            self.assertEqual(config["store"].split()[0], store, result)
            self.assertEqual(config["workers here"].split()[0], "2", result)

    def test_a_pod_of_the_job_finds_its_place(self):
        self.check_pods("job", "train", "ctrun", f"train-0.ctrun.{DOMAIN}:29500",
                        lambda i: {"JOB_COMPLETION_INDEX": str(i)})  # fmt: skip

    def test_a_pod_of_the_jobset_finds_its_place(self):
        self.check_pods("jobset", "train-nodes-0", "train", f"train-nodes-0-0.train.{DOMAIN}:29500",
                        lambda i: {"JOB_COMPLETION_INDEX": str(i)})  # fmt: skip

    def test_a_pod_of_the_statefulset_finds_its_place(self):
        self.check_pods("statefulset", "train", "ctrun", "train-0.ctrun:29500", lambda i: {"NODE_RANK": str(i)})

    def test_a_pod_of_the_trainjob_finds_its_place(self):
        # What Trainer's policy "torch" sets.
        self.check_pods("trainjob", "train-node-0", "train", "train-node-0-0.train:29500", lambda i: {
            "PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": str(i), "PET_MASTER_PORT": "29500",
            "PET_MASTER_ADDR": "train-node-0-0.train", "JOB_COMPLETION_INDEX": str(i)})  # fmt: skip

    def test_the_monitor_selects_the_service_and_its_port(self):
        (monitor,) = self.manifests["monitoring"]
        (service,) = [d for d in self.manifests["common"] if d["kind"] == "Service"]
        selected = monitor["spec"]["selector"]["matchLabels"].items()
        self.assertEqual(selected - service["metadata"]["labels"].items(), set())
        ports = {port["name"] for port in service["spec"]["ports"]}
        self.assertLessEqual({endpoint["port"] for endpoint in monitor["spec"]["endpoints"]}, ports)

    def test_the_monitor_sends_the_read_key_of_the_pods_and_not_their_token(self):
        (monitor,) = self.manifests["monitoring"]
        pods = [spec for documents in self.manifests.values() for spec in pod_specs(documents)]
        tokens = [e["valueFrom"]["secretKeyRef"] for spec in pods for e in spec["containers"][0]["env"]
                  if e["name"] == "CTRUN_TOKEN"]  # fmt: skip
        self.assertEqual(len(tokens), 5)
        (endpoint,) = monitor["spec"]["endpoints"]
        for token in tokens:
            key = {"name": token["name"], "key": "read-key"}
            self.assertEqual(endpoint["authorization"], {"type": "Bearer", "credentials": key})
            self.assertNotEqual(token["key"], "read-key")

    def test_the_probe_of_the_statefulset_says_whether_the_job_is_there(self):
        """Its command, beside two pods that share one network, where their fixed port belongs to nobody else."""
        (spec,) = [s for d in self.manifests["statefulset"] for s in pod_specs(d)]
        (container,) = spec["containers"]
        name = next(e["value"] for e in container["env"] if e["name"] == "MASTER_ADDR")
        hosts = self.tmp / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {name}\n")
        holder = self.start("unshare", "--user", "--map-root-user", "--mount", "--net", "sh", "-c",
                            f"ip link set lo up && mount --bind {hosts} /etc/hosts && echo inside && exec sleep 600")  # fmt: skip
        try:
            holder.wait_for("inside")
        except AssertionError as why:
            self.skipTest(f"no namespaces here: {why}")
        inside = ("nsenter", "-t", str(holder.pid), "--user", "--preserve-credentials", "--mount", "--net")
        command = spec["containers"][0]["readinessProbe"]["exec"]["command"]
        token = {"CTRUN_TOKEN": "0123456789abcdef0123456789abcdef"}

        def probe():
            return self.run_program(*inside, testlib.program(command[0]), *command[1:], env=token).code

        self.assertNotEqual(probe(), 0)
        given = {e["name"]: e["value"] for e in container["env"] if "value" in e}
        pods = [
            self.start(*inside, testlib.program("ctrun"), *container["args"],
                       env={**given, **token, "NODE_RANK": str(index)})
            for index in (0, 1)
        ]  # fmt: skip
        for index, pod in enumerate(pods):
            for rank in (2 * index, 2 * index + 1):
                pod.wait_for(f"I am rank {rank} of 4")
        self.assertEqual(probe(), 0)
        pods[1].signal(15)
        for pod in pods:
            # The signal asked the job to end, and `sleep` does not end with 0 at it.
            self.assertEqual(pod.wait().code, 128 + 15)
        self.assertNotEqual(probe(), 0)

    def test_the_store_takes_its_options(self):
        (spec,) = [s for d in self.manifests["store"] for s in pod_specs(d)]
        (container,) = spec["containers"]
        args = [a.replace("/var/lib/ctrdzvd", str(self.tmp)) for a in container["args"]]
        (memory,) = [a.partition("=")[2] for a in args if a.startswith("--max-memory=")]
        self.assertEqual(container["resources"]["limits"]["memory"], "2Gi")
        self.assertEqual(memory, "1536M")
        (claim,) = [c for d in self.manifests["store"] for c in d["spec"].get("volumeClaimTemplates", [])]
        self.assertEqual(claim["spec"]["resources"]["requests"]["storage"], "5Gi")  # three times the memory
        self.assertEqual(container["command"], ["ctrdzvd"])
        env = {"CTRUN_TOKEN": "0123456789abcdef0123456789abcdef"}
        daemon, port = self.start_ctrdzvd(*args, env=env)
        self.assertTrue((self.tmp / "journal").exists())
        health = self.run_program(testlib.program("ctrun-stat"), "--health", str(port), env=env)
        self.assertEqual(health.code, 0, health)
        daemon.signal(15)
        self.assertEqual(daemon.wait().code, 0)


if __name__ == "__main__":
    testlib.main()
