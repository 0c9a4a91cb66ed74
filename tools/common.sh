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
