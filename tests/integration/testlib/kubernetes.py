# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes of one node on this machine: etcd, the API server, controllers, scheduler and kubelet of
tools/kubernetes, with containerd, runc and CNI's plugins. All of it is in namespaces of its own (mounts, network,
processes, name), where fixed ports and places belong to nobody else, and ends with them."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from . import cluster_dns
from .paths import SOURCE_ROOT
from .wait import DEADLINE, wait_until

ADDRESS = "10.88.0.1"
SERVER = f"https://{ADDRESS}:6443"
TOKEN = "0123456789abcdef"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
PACKAGED = ("etcd", "containerd", "ctr", "runc", "kubectl", "openssl", "ip")
PLUGINS = pathlib.Path("/usr/lib/cni")
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# Seconds until a pod runs, or has ended: the controllers look at some things every 10 s only.
SLOW = 180

CONTAINERD = """
version = 2
root = "{dir}/containerd"
state = "/run/containerd"
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:latest"
  # A container that has fewer rights than root of the machine may not lower it.
  restrict_oom_score_adj = true
  disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{dir}/cni"
"""
NETWORK = {
    "cniVersion": "0.4.0", "name": "pods", "plugins": [{
        "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False,
        "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.88.0.0/16"}]],
                 "routes": [{"dst": "0.0.0.0/0"}]},
    }],
}  # fmt: skip
KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "test",
    "clusters": [{"name": "test", "cluster": {"server": SERVER, "insecure-skip-tls-verify": True}}],
    "users": [{"name": "test", "user": {"token": TOKEN}}],
    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
}  # fmt: skip
KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "cgroupDriver": "cgroupfs", "enforceNodeAllocatable": [], "failSwapOn": False, "oomScoreAdj": 0,
    "clusterDNS": [ADDRESS], "clusterDomain": "cluster.local", "resolvConf": "", "makeIPTablesUtilChains": False,
    # Of a disk that is nearly full pods are evicted, and images are removed.
    "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
    "imageGCHighThresholdPercent": 100,
}  # fmt: skip


def programs_folder():
    """Where tools/kubernetes has put them; skips without."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    folder = pathlib.Path(cache) / "ctrun" / "kubernetes"
    if not (folder / "complete").exists():
        raise unittest.SkipTest("no Kubernetes is built here (tools/test --with-kubernetes)")
    return folder / "bin"


def readme_secret():
    """The lines of contrib/kubernetes/README.md that make the secret of the jobs."""
    text = (SOURCE_ROOT / "contrib" / "kubernetes" / "README.md").read_text()
    return re.search(r"^    token=.*\n(?:    .*\n)+?(?=    kubectl apply)", text, re.M)[0]


class Kubernetes:
    def __init__(self, case, images):
        """`images` is a file in the form of `docker save`, in which localhost/pause is a process that waits."""
        self.programs = programs_folder()
        missing = [name for name in PACKAGED if shutil.which(name) is None]
        if missing or not PLUGINS.is_dir():
            raise unittest.SkipTest(f"not installed: {missing or PLUGINS} (tools/setup --kubernetes)")
        if os.geteuid() != 0:
            raise unittest.SkipTest("containers need root")
        self.case, self.dir = case, case.tmp / "kubernetes"
        self.dir.mkdir()
        self.cgroup = f"/{case.tmp.name}"
        self._make_cgroups()
        self.inside = self._namespaces()
        self._write_files()
        self._start_server()
        self._start_node(images)

    # ---- its parts ----

    def _make_cgroups(self):
        """The kubelet wants its place in each hierarchy; what is in it has ended when it is removed."""
        whole = (CGROUPS / "cgroup.controllers").exists()
        hierarchies = [CGROUPS] if whole else [p for p in CGROUPS.iterdir() if (p / "cgroup.procs").exists()]
        places = [pathlib.Path(f"{hierarchy}{self.cgroup}") for hierarchy in hierarchies]

        def remove():
            for place in places:
                for folder, _, _ in os.walk(place, topdown=False):
                    wait_until(lambda f=folder: self._removed(f), f"{folder} is empty")

        self.case.addCleanup(remove)
        for place in places:
            try:
                place.mkdir()
            except OSError as why:
                raise unittest.SkipTest(f"no control groups can be made here: {why}") from None
            # A new one of cpuset has no processor.
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (place / name).exists() and not whole:
                    (place / name).write_text((place.parent / name).read_text())

    @staticmethod
    def _removed(folder):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            pass
        except OSError:
            return False
        return True

    def _namespaces(self):
        hosts = self.dir / "hosts"
        hosts.write_text(f"127.0.0.1 localhost\n{ADDRESS} node\n")
        steps = (
            "hostname node", f"mount --bind {hosts} /etc/hosts", "mount -t tmpfs tmpfs /run",
            "mount -t tmpfs tmpfs /var/log", "ip link set lo up", "ip link add cni0 type bridge",
            f"ip addr add {ADDRESS}/16 dev cni0", "ip link set cni0 up", "echo inside $$", "exec sleep 3600",
        )  # fmt: skip
        holder = self.case.start(
            "unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
            "sh", "-c", " && ".join(steps))  # fmt: skip
        try:
            holder.wait_for("inside")
        except AssertionError as why:
            raise unittest.SkipTest(f"no namespaces here: {why}") from None
        children = pathlib.Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        return ("nsenter", "-t", children[0], "--mount", "--net", "--uts", "--pid")

    def _write_files(self):
        (self.dir / "cni").mkdir()
        (self.dir / "cni" / "pods.conflist").write_text(json.dumps(NETWORK))
        (self.dir / "containerd.toml").write_text(CONTAINERD.format(dir=self.dir, plugins=PLUGINS))
        (self.dir / "kubeconfig").write_text(json.dumps(KUBECONFIG))
        plugins = str(self.dir / "volume-plugins")
        (self.dir / "kubelet.json").write_text(
            json.dumps(KUBELET | {"cgroupRoot": self.cgroup, "volumePluginDir": plugins})
        )
        (self.dir / "tokens").write_text(f'{TOKEN},admin,1,"system:masters"\n')
        subprocess.run(["openssl", "genrsa", "-out", self.dir / "key", "2048"], capture_output=True, check=True)

    def _daemon(self, name, *flags):
        return self.case.start(*self.inside, self.programs / name if name in PROGRAMS else name, *flags, cwd=self.dir)

    def _start_server(self):
        self.daemons = {"etcd": self._daemon("etcd", "--data-dir", self.dir / "etcd", "--unsafe-no-fsync")}
        kubeconfig = f"--kubeconfig={self.dir}/kubeconfig"
        certificates = f"--cert-dir={self.dir}/certificates"
        self.daemons["kube-apiserver"] = self._daemon(
            "kube-apiserver", certificates, "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443",
            f"--advertise-address={ADDRESS}", "--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true",
            f"--service-account-key-file={self.dir}/key", f"--service-account-signing-key-file={self.dir}/key",
            "--service-account-issuer=https://kubernetes.default.svc", f"--token-auth-file={self.dir}/tokens",
            "--authorization-mode=AlwaysAllow", "--disable-admission-plugins=ServiceAccount",
            "--kubelet-preferred-address-types=InternalIP")  # fmt: skip
        self.wait("the API server is ready", lambda: self.try_kubectl("get", "--raw", "/readyz").returncode == 0)
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.daemons[name] = self._daemon(name, kubeconfig, certificates, "--leader-elect=false")
        self.daemons["dns"] = self._daemon(sys.executable, cluster_dns.__file__, ADDRESS, SERVER, TOKEN)

    def _start_node(self, images):
        socket = self.dir / "containerd.sock"
        self.daemons["containerd"] = self._daemon("containerd", "--config", self.dir / "containerd.toml")
        ctr = (*self.inside, "ctr", "--address", str(socket), "--namespace", "k8s.io")
        self.wait("containerd answers", lambda: self._run(*ctr, "version").returncode == 0)
        self._check(self._run(*ctr, "images", "import", "--snapshotter", "native", str(images), limit=600))
        self.daemons["kubelet"] = self._daemon(
            "kubelet", f"--config={self.dir}/kubelet.json", f"--kubeconfig={self.dir}/kubeconfig",
            f"--root-dir={self.dir}/kubelet", f"--cert-dir={self.dir}/certificates",
            "--container-runtime=remote", f"--container-runtime-endpoint=unix://{socket}",
            f"--node-ip={ADDRESS}", "--hostname-override=node")  # fmt: skip
        self.wait("the node is ready", self._node_is_ready)

    def _node_is_ready(self):
        nodes = self.get("nodes")["items"]
        conditions = [c for node in nodes for c in node["status"].get("conditions", ())]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    # ---- for tests ----

    def wait(self, what, condition, limit=SLOW):
        """As wait_until(), but says what a part of it said that has ended."""

        def checked():
            for name, daemon in self.daemons.items():
                if not daemon.running():
                    raise AssertionError(f"{name} has ended: {daemon.err[-3000:]}")
            return condition()

        return wait_until(checked, what, limit)

    def _run(self, *argv, limit=DEADLINE, text=None):
        return subprocess.run(
            [str(a) for a in argv], input=text or "", capture_output=True, text=True, timeout=limit, check=False,
            env=os.environ | {"HOME": str(self.dir)},
        )  # fmt: skip

    def _check(self, done):
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(done.args)}: {done.stdout}{done.stderr}")
        return done.stdout

    def kubectl_line(self, *args):
        return (*self.inside, "kubectl", f"--kubeconfig={self.dir}/kubeconfig", *args)

    def try_kubectl(self, *args, text=None):
        return self._run(*self.kubectl_line(*args), text=text, limit=SLOW)

    def kubectl(self, *args, text=None):
        return self._check(self.try_kubectl(*args, text=text))

    def get(self, *args):
        return json.loads(self.kubectl("get", "-o", "json", *args))

    def apply(self, namespace, documents):
        listed = {"apiVersion": "v1", "kind": "List", "items": documents}
        # kubectl would refuse fields that are newer than this server.
        return self.kubectl("apply", "-n", namespace, "--validate=false", "-f", "-", text=json.dumps(listed))

    def documents(self, folder):
        """What a kustomization consists of, unchanged, in kubectl's own reading: one object after the other."""
        text = self.kubectl("create", "--dry-run=client", "--validate=false", "-o", "json", "-k", str(folder))
        found, at = [], 0
        while text[at:].strip():
            at += len(text[at:]) - len(text[at:].lstrip())
            document, at = json.JSONDecoder().raw_decode(text, at)
            document["metadata"].pop("namespace", None)
            found.append(document)
        return found
