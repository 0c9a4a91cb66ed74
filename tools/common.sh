# SPDX-License-Identifier: Apache-2.0
#
# What tools/demo, tools/test and .ci/run share; sourced by them.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# build_in DIR [meson options]: configures once, builds. Quiet unless it fails.
build_in() {
    local dir=$1 log
    shift
    if [ ! -f "$dir/build.ninja" ]; then
        log=$(meson setup "$dir" "$root" "$@" 2>&1) || { echo "$log" >&2; return 1; }
    fi
    log=$(ninja -C "$dir" 2>&1) || { echo "$log" >&2; return 1; }
    # Warnings are worth seeing even when the build goes on.
    grep -A6 'warning:' <<<"$log" || true
}

# gpu_toolkit: says what was found of NVIDIA's software, which comes from NVIDIA's own packages.
gpu_toolkit() {
    local nvcc nccl
    nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
    nccl=$(ls /usr/include/nccl.h /usr/local/cuda/include/nccl.h 2>/dev/null | head -1 || true)
    echo "CUDA toolkit: ${nvcc:-not found (GPU kernels are left out)}"
    echo "NCCL: ${nccl:-not found (GPU collectives are left out)}"
}

# gpu_count: GPUs that the driver shows, 0 without a driver.
gpu_count() {
    { nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU ' || true
}

# count_tests DIR: adds up the test log that `meson test` left in DIR into passed, failed, skipped.
count_tests() {
    local counts
    counts=$(python3 - "$1/meson-logs/${2:-testlog}.json" <<'PY'
import collections, json, sys
kind = {"OK": "passed", "EXPECTEDFAIL": "passed", "SKIP": "skipped"}
seen = collections.Counter()
for line in open(sys.argv[1]):
    seen[kind.get(json.loads(line)["result"], "failed")] += 1
print(seen["passed"], seen["failed"], seen["skipped"])
PY
    ) || return 1
    local p f s
    read -r p f s <<<"$counts"
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

# skip_reasons DIR: one line for each skipped test that says why.
skip_reasons() {
    python3 - "$1/meson-logs/${2:-testlog}.json" <<'PY'
import json, re, sys
for line in open(sys.argv[1]):
    test = json.loads(line)
    if test["result"] == "SKIP":
        text = test.get("stdout", "") + "\n" + test.get("stderr", "")
        why = re.findall(r"(?:skipped:? |# SKIP )['\"]?([^\n'\"]+)", text)
        print(f"skipped {test['name']}: {why[-1] if why else 'no reason given'}")
PY
}

debian_mirror=${CTRUN_DEBIAN_MIRROR:-http://deb.debian.org/debian}

# needs_roots TOOL: ends a tool that makes Debian roots where it cannot.
needs_roots() {
    if [ "$(id -u)" -ne 0 ] || ! command -v mmdebstrap >/dev/null; then
        echo "$1: this needs root and mmdebstrap (tools/setup --packages)" >&2
        exit 1
    fi
}

# alone_in DIR: waits until no other tool of ours works in this root.
alone_in() {
    mkdir -p "$(dirname "$1")"
    exec 9>"$1.lock"
    flock 9
}

# debian_root RELEASE DIR PACKAGES: a new root in DIR with these packages, in which apt works.
debian_root() {
    rm -rf --one-file-system "$2"
    mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --include="ca-certificates,$3" \
        "$1" "$2" "$debian_mirror"
    # Those of this machine, which may be behind a proxy that has its own.
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt "$2/etc/ssl/certs/"
}

# in_root DIR COMMAND...: runs it there; its mounts and processes are gone afterwards.
in_root() {
    unshare --mount --pid --fork sh -c \
        'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" && exec chroot "$@"' sh "$@"
}

# export_tree DIR: the tree as it was committed last, all of it as old as that commit.
export_tree() {
    mkdir -p "$1"
    git -C "$root" -c tar.umask=0022 archive HEAD | tar -x -C "$1"
    find "$1" -exec touch -h -d "@$(git -C "$root" log -1 --format=%ct)" {} +
}

# project_version: the only place of the version is meson.build.
project_version() {
    sed -n "s/^  version: '\(.*\)',$/\1/p" "$root/meson.build"
}

# snapshot_version [MARK]: the version if HEAD is the commit of that release, else MARK and the commit's date behind
# it. Debian sorts that before the release if MARK is ~git (the default), and Python if it is .dev.
snapshot_version() {
    local mark=${1:-'~git'} version
    version=$(project_version)
    if [ "$(git -C "$root" rev-parse --quiet --verify "v$version^{commit}")" = "$(git -C "$root" rev-parse HEAD)" ]; then
        echo "$version"
    else
        echo "$version$mark$(TZ=UTC git -C "$root" log -1 --date=format-local:%Y%m%d%H%M%S --format=%cd)"
    fi
}
