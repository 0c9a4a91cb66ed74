/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads /proc/meminfo and, in a cgroup with a limit, memory.max and memory.current. The page cache
 * counts in memory.current, although it can be freed, so inactive_file of memory.stat is taken off.
 */
#include "launcher/warm/warm_memory.h"

#include "common/file.h"
#include "common/num.h"

#include <stdio.h>
#include <string.h>

#define FILE_MAX 65536
#define PATH_LEN 512
#define LINE_LEN 64

const struct ct_warm_roots ct_warm_here = {"/proc/meminfo", "/proc/self/cgroup", "/sys/fs/cgroup"};

/* The number behind `name` at the beginning of a line; 0 = there is none. */
static uint64_t number_after(const char *text, const char *name)
{
    size_t len = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, len) == 0) {
            char word[LINE_LEN];
            int64_t number;
            const char *begin = line + len + strspn(line + len, " \t");
            (void)snprintf(word, sizeof(word), "%.*s", (int)strspn(begin, "0123456789"), begin);
            return ct_parse_i64(word, 0, INT64_MAX / 1024, &number) == 0 ? (uint64_t)number : 0;
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return 0;
}

static uint64_t read_number(const char *path, const char *name)
{
    struct ct_buf text = CT_BUF_INIT;
    uint64_t number = 0;
    if (ct_file_read(path, FILE_MAX, &text, NULL) == 0 && ct_buf_cstr(&text) != NULL) {
        number = number_after(ct_buf_cstr(&text), name);
    }
    ct_buf_fini(&text);
    return number;
}

/* The folder of our cgroup of version 2: the line "0::/path". */
static bool cgroup_folder(const struct ct_warm_roots *roots, char out[PATH_LEN])
{
    struct ct_buf text = CT_BUF_INIT;
    bool found = false;
    if (ct_file_read(roots->membership, FILE_MAX, &text, NULL) == 0 && ct_buf_cstr(&text) != NULL) {
        const char *line = ct_buf_cstr(&text);
        const char *at = strncmp(line, "0::", 3) == 0 ? line : strstr(line, "\n0::");
        if (at != NULL) {
            at += *at == '\n' ? 4 : 3;
            found = snprintf(out, PATH_LEN, "%s%.*s", roots->cgroups, (int)strcspn(at, "\n"), at) <
                    PATH_LEN;
        }
    }
    ct_buf_fini(&text);
    return found;
}

static void read_cgroup(const struct ct_warm_roots *roots, struct ct_warm_memory *out)
{
    char folder[PATH_LEN], path[PATH_LEN + LINE_LEN];
    if (!cgroup_folder(roots, folder)) {
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/memory.max", folder);
    uint64_t limit = read_number(path, "");
    if (limit == 0 || (out->total > 0 && limit >= out->total)) {
        return; /* "max", or more than the machine has */
    }
    (void)snprintf(path, sizeof(path), "%s/memory.current", folder);
    uint64_t used = read_number(path, "");
    (void)snprintf(path, sizeof(path), "%s/memory.stat", folder);
    uint64_t cache = read_number(path, "inactive_file ");
    used -= cache < used ? cache : used;
    uint64_t left = used < limit ? limit - used : 0;
    out->total = limit;
    out->available = left < out->available ? left : out->available;
}

void ct_warm_memory_read(const struct ct_warm_roots *roots, struct ct_warm_memory *out)
{
    out->total = read_number(roots->meminfo, "MemTotal:") * 1024;
    out->available = read_number(roots->meminfo, "MemAvailable:") * 1024;
    read_cgroup(roots, out);
}

uint64_t ct_warm_memory_of(pid_t pid)
{
    char path[LINE_LEN];
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
    return read_number(path, "RssAnon:") * 1024;
}
