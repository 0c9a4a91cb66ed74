/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/gpus.h"

#include "common/num.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Longer entries of CUDA_VISIBLE_DEVICES than any UUID name no device. */
#define ENTRY_MAX 128

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

/* An index below `physical`, or the start of a UUID as nvidia-smi -L prints it. */
static bool names_device(const char *entry, int physical)
{
    int index;
    if (strncmp(entry, "GPU-", 4) == 0 || strncmp(entry, "MIG-", 4) == 0) {
        return true;
    }
    return ct_parse_int(entry, 0, physical - 1, &index) == 0;
}

static int count_visible(const char *visible, int physical)
{
    int count = 0;
    for (const char *p = visible;;) {
        char entry[ENTRY_MAX];
        p += strspn(p, " ");
        size_t len = strcspn(p, ", ");
        if (len == 0 || len >= sizeof(entry)) {
            return count;
        }
        memcpy(entry, p, len);
        entry[len] = '\0';
        if (!names_device(entry, physical)) {
            return count;
        }
        count++;
        p += len;
        p += strspn(p, " ");
        if (*p != ',') {
            return count;
        }
        p++;
    }
}

/* CUDA is asked nothing: a wrong guess costs one worker too many or too few, a CUDA context in the
 * launcher would cost memory on every GPU for the whole job. */
int ct_gpus_count(const char *proc_dir, const char *dev_dir, const char *visible)
{
    int in_proc = count_entries(proc_dir, NULL);
    int in_dev = count_entries(dev_dir, "nvidia");
    int physical = in_proc < in_dev ? in_proc : in_dev;
    if (physical == 0) {
        physical = in_proc > in_dev ? in_proc : in_dev;
    }
    if (visible == NULL || physical == 0) {
        return physical;
    }
    return count_visible(visible, physical);
}

int ct_gpus_entry(const char *visible, int index, const char **at, size_t *len)
{
    const char *p = visible;
    for (; index > 0; index--) {
        p = strchr(p, ',');
        if (p == NULL) {
            return -1;
        }
        p++;
    }
    size_t end = strcspn(p, ",");
    size_t skip = strspn(p, " \t");
    while (end > skip && (p[end - 1] == ' ' || p[end - 1] == '\t')) {
        end--;
    }
    if (end <= skip) {
        return -1;
    }
    *at = p + skip;
    *len = end - skip;
    return 0;
}
