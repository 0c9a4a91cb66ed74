/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the facts about the machine. What cannot be read keeps the value that means unknown.
 */
#include "launcher/setup/machine.h"

#include "common/alloc.h"
#include "common/text.h"
#include "launcher/binding/gpus.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* More CPUs than any Linux has. The kernel refuses a mask that is shorter than its own. */
#define CPUS_MAX 65536

/* Counts the CPUs on which process `pid` may run; 0 means this process. */
static int count_cpus(pid_t pid)
{
    int count = 1;
    size_t size = CPU_ALLOC_SIZE(CPUS_MAX);
    cpu_set_t *mask = ct_calloc(1, size);
    if (mask != NULL && sched_getaffinity(pid, size, mask) == 0) {
        count = CPU_COUNT_S(size, mask);
    }
    ct_free(mask);
    return count > 0 ? count : 1;
}

void ct_machine_read(char *const *env, struct ct_machine *out)
{
    *out = (struct ct_machine){.cpus = count_cpus(0)};
    if (gethostname(out->host, sizeof(out->host) - 1) != 0) {
        (void)snprintf(out->host, sizeof(out->host), "localhost");
    }
    ct_text_clean(out->host); /* the kernel takes any bytes; messages and reports show the name */
    ssize_t len = readlink("/proc/self/exe", out->own_dir, sizeof(out->own_dir) - 1);
    out->own_dir[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(out->own_dir, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    ct_gpus_read(NULL, env, &out->gpu_facts);
    out->gpus = ct_gpus_workers(&out->gpu_facts);
}

/* A scheduler may have bound each task to CPUs of its own. The parent process has started all tasks
 * of this machine, so it may use the CPUs of all of them. */
int ct_machine_cpus_to_share(const struct ct_machine *machine, const struct ct_resolved *resolved)
{
    if (resolved->mode != CT_MODE_SHIM || resolved->local_size < 2) {
        return machine->cpus;
    }
    int all = count_cpus(getppid());
    all = all > machine->cpus ? all : machine->cpus;
    int64_t own = (int64_t)machine->cpus * resolved->local_size;
    return own < all ? (int)own : all;
}

int ct_machine_gpus(const struct ct_machine *machine, const struct ct_options *options,
                    const struct ct_resolved *resolved, struct ct_gpu_masks *out,
                    struct ct_err *err)
{
    const struct ct_gpu_request request = {
        .bind = options->gpu_bind,
        .share = options->share_gpu,
        .virtual_local_rank = options->virtual_local_rank,
        .wants_gpus = options->nproc_kind == CT_NPROC_GPU,
        .workers = resolved->workers,
        .ranks_here = resolved->mode == CT_MODE_SHIM ? resolved->local_size : resolved->workers,
    };
    return ct_gpu_masks_decide(&machine->gpu_facts, &request, out, err);
}

int ct_machine_uuid(char out[CT_UUID_TEXT], struct ct_err *err)
{
    unsigned char b[16];
    if (getentropy(b, sizeof(b)) != 0) {
        return ct_err_sys(err, CT_EIO, errno, "cannot draw a random id");
    }
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40); /* version 4 */
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80); /* RFC 4122 variant */
    (void)snprintf(out, CT_UUID_TEXT,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
    return 0;
}
