/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the entries of the driver's folders and applies CUDA_VISIBLE_DEVICES to them. A folder
 * that cannot be read counts as empty.
 */
#include "launcher/binding/gpus.h"

#include "common/buf.h"
#include "common/file.h"
#include "common/num.h"
#include "launcher/util/environ.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Directory entries that are `prefix` and a number, or all of them when prefix is NULL. */
static int count_entries(const char *path, const char *prefix)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return 0;
    }
    int count = 0;
    size_t skip = prefix != NULL ? strlen(prefix) : 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        int number;
        if (entry->d_name[0] == '.') {
            continue;
        }
        if (prefix == NULL || (strncmp(entry->d_name, prefix, skip) == 0 &&
                               ct_parse_int(entry->d_name + skip, 0, INT_MAX, &number) == 0)) {
            count++;
        }
    }
    (void)closedir(dir);
    return count;
}

/* No GPU works without this device. Then /dev, which has many entries, need not be read. */
static bool has_driver(const char *dev_dir)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/nvidiactl", dev_dir);
    return access(path, F_OK) == 0;
}

/* CUDA is not asked, because a CUDA context of the launcher would take memory on every GPU for the
 * whole job. A wrong guess only costs one worker too many or too few. */
int ct_gpus_count(const char *proc_dir, const char *dev_dir)
{
    int in_proc = count_entries(proc_dir, NULL);
    int in_dev = has_driver(dev_dir) ? count_entries(dev_dir, "nvidia") : 0;
    int less = in_proc < in_dev ? in_proc : in_dev;
    return less > 0 ? less : in_proc + in_dev;
}

/* ---- MIG, HAMi-core, MPS --------------------------------------------------------------------- */

/* What is read of /etc/ld.so.preload, in which HAMi-core's library is among the first entries. */
#define PRELOAD_MAX 4096

/* Returns `list` if it has MIG devices only, else NULL. Any other list is for the container
 * runtime, whose numbers of devices are not those of CUDA inside the container. */
static const char *mig_list(const char *list)
{
    const char *entry;
    size_t len;
    int count = 0;
    for (; list != NULL && ct_gpu_entry(list, count, &entry, &len); count++) {
        if (len <= 4 || strncmp(entry, "MIG-", 4) != 0) {
            return NULL;
        }
    }
    return count > 0 ? list : NULL;
}

/* Is a GPU cut into MIG devices? Each of them has a folder such as "<caps>/gpu0/mig/gi1". */
static bool is_cut(const char *caps)
{
    DIR *dir = opendir(caps);
    bool found = false;
    if (dir == NULL) {
        return false;
    }
    for (struct dirent *entry; !found && (entry = readdir(dir)) != NULL;) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof(path), "%s/%s/mig", caps, entry->d_name);
        found = strncmp(entry->d_name, "gpu", 3) == 0 && n > 0 && (size_t)n < sizeof(path) &&
                count_entries(path, "gi") > 0;
    }
    (void)closedir(dir);
    return found;
}

/* Looks for HAMi-core's library, because Volcano and KAI bring the same one. */
static bool has_hami(const char *preload, char *const *env)
{
    const char *cache = ct_environ_get(env, "CUDA_DEVICE_MEMORY_SHARED_CACHE");
    struct ct_buf text = CT_BUF_INIT;
    bool found = cache != NULL && cache[0] != '\0';
    if (!found && ct_file_read(preload, PRELOAD_MAX, &text, NULL) == 0) {
        const char *words = ct_buf_cstr(&text);
        found = words != NULL && strstr(words, "libvgpu") != NULL;
    }
    ct_buf_fini(&text);
    return found;
}

void ct_gpus_read(const struct ct_gpus_roots *roots, char *const *env, struct ct_gpu_facts *out)
{
    static const struct ct_gpus_roots real = {CT_GPUS_PROC_DIR, CT_GPUS_DEV_DIR,
                                              "/proc/driver/nvidia/capabilities",
                                              "/etc/ld.so.preload"};
    roots = roots != NULL ? roots : &real;
    *out = (struct ct_gpu_facts){
        .physical = ct_gpus_count(roots->proc_gpus, roots->dev),
        .visible = ct_environ_get(env, "CUDA_VISIBLE_DEVICES"),
        .mig = mig_list(ct_environ_get(env, "NVIDIA_VISIBLE_DEVICES")),
        .mig_on = is_cut(roots->caps),
        .hami = has_hami(roots->preload, env),
        .slurm_mps = ct_environ_get(env, "SLURM_JOB_ID") != NULL &&
                     ct_environ_get(env, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") != NULL,
    };
}

int ct_gpus_workers(const struct ct_gpu_facts *facts)
{
    const char *list = facts->visible != NULL ? facts->visible : facts->mig;
    return list == NULL || facts->physical == 0 ? facts->physical
                                                : ct_gpu_entries(list, facts->physical);
}
