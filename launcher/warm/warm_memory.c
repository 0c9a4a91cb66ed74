/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads /proc/meminfo and, in each cgroup with a limit from ours up, memory.max or memory.high, and
 * memory.current. A scheduler sets its limit far above the cgroup in which it starts programs. The
 * page cache counts in memory.current, although it can be freed, so inactive_file of memory.stat is
 * taken off.
 *
 * Of a process it counts the pages that are free when the process ends: its anonymous ones, and
 * files in memory (tmpfs, memfd, shared memory without a name) that have no name any more. A file
 * with a name, such as a data set in /dev/shm, stays. No question goes to the file system of such
 * a file: a file server that does not answer would stop ctrun. /proc/PID/smaps takes milliseconds,
 * so it is read only if any file in memory is mapped.
 *
 * Not seen: pages of such a file that are mapped by nobody, or by a mapping alone in which they are
 * not resident; descriptors of a thread that has a table of its own; a process that has left its
 * parents. What is available on the machine counts them all, and ends spares, too.
 */
#include "launcher/warm/warm_memory.h"

#include "common/file.h"
#include "common/num.h"
#include "launcher/process/proctree.h"
#include "launcher/warm/spare.h"

#include <dirent.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define FILE_MAX 65536
#define PATH_LEN 512
#define LINE_LEN 64

/* A spare has a dozen descriptors and some thousand mappings of 25 lines. One with more descriptors
 * cannot be counted. One with more mappings is taken to have nothing but files without a name. */
#define DESCRIPTORS_MAX 1024
#define SMAPS_LINES_MAX 200000
#define SMAPS_LINE_LEN 4400 /* a path and what is before it */

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

/* A number in a file of a cgroup. 0 stands for "max" and for a file that is not there. */
static uint64_t read_of(const char *folder, const char *file, const char *name)
{
    char path[PATH_LEN + LINE_LEN];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, file);
    return read_number(path, name);
}

/* How far it is from having less than a tenth left. */
static int64_t room(uint64_t total, uint64_t available)
{
    return (int64_t)available - (int64_t)(total / 10);
}

static void read_cgroup(const char *folder, uint64_t machine, struct ct_warm_memory *out)
{
    uint64_t limit = read_of(folder, "memory.max", "");
    uint64_t high = read_of(folder, "memory.high", ""); /* beyond it everything slows down */
    limit = high > 0 && (limit == 0 || high < limit) ? high : limit;
    if (limit == 0 || (machine > 0 && limit >= machine)) {
        return;
    }
    uint64_t used = read_of(folder, "memory.current", "");
    uint64_t cache = read_of(folder, "memory.stat", "inactive_file ");
    used -= cache < used ? cache : used;
    uint64_t left = used < limit ? limit - used : 0;
    if (out->total == 0 || room(limit, left) < room(out->total, out->available)) {
        out->total = limit;
        out->available = left;
    }
}

void ct_warm_memory_read(const struct ct_warm_roots *roots, struct ct_warm_memory *out)
{
    out->total = read_number(roots->meminfo, "MemTotal:") * 1024;
    out->available = read_number(roots->meminfo, "MemAvailable:") * 1024;
    uint64_t machine = out->total;
    char folder[PATH_LEN];
    size_t top = strlen(roots->cgroups);
    if (!cgroup_folder(roots, folder)) {
        return;
    }
    for (;;) { /* ours, and each above it up to that of the mount */
        read_cgroup(folder, machine, out);
        char *last = strrchr(folder, '/');
        if (last == NULL || (size_t)(last - folder) < top) {
            return;
        }
        *last = '\0';
    }
}

/* ---- of a process ---------------------------------------------------------------------------- */

/* Longer than the device and the inode of a file, as smaps shows them: "00:01 1035". */
#define KEY_LEN 40

/* Files in memory without a name that a process has open. */
struct nameless {
    char keys[DESCRIPTORS_MAX][KEY_LEN];
    int count;
    uint64_t bytes;
};

static bool is_known(const struct nameless *files, const char *key)
{
    int i = 0;
    while (i < files->count && strcmp(files->keys[i], key) != 0) {
        i++;
    }
    return i < files->count;
}

/* Has the open file lost its name? The kernel knows that without its file system. */
static bool is_gone(const char *path)
{
    static const char gone[] = " (deleted)"; /* also at the end of "/memfd:name (deleted)" */
    char target[PATH_MAX];
    ssize_t len = readlink(path, target, sizeof(target));
    size_t tail = sizeof(gone) - 1;
    return len > (ssize_t)tail && memcmp(target + len - tail, gone, tail) == 0;
}

static void take_file(struct nameless *files, const char *path)
{
    struct stat file;
    struct statfs system;
    if (!is_gone(path) || stat(path, &file) != 0 || !S_ISREG(file.st_mode) || file.st_nlink != 0 ||
        statfs(path, &system) != 0 || system.f_type != TMPFS_MAGIC) {
        return;
    }
    char *key = files->keys[files->count];
    (void)snprintf(key, KEY_LEN, "%02x:%02x %lu", major(file.st_dev), minor(file.st_dev),
                   (unsigned long)file.st_ino);
    if (!is_known(files, key)) { /* it can be open several times */
        files->count++;
        files->bytes += (uint64_t)file.st_blocks * 512;
    }
}

/* Returns false if there are more descriptors than can be counted: memory could hide in the rest.
 */
static bool take_open(pid_t pid, struct nameless *files)
{
    char path[LINE_LEN];
    int descriptors = 0;
    (void)snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    DIR *dir = opendir(path);
    const struct dirent *entry;
    while (dir != NULL && descriptors <= DESCRIPTORS_MAX && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        if (descriptors++ < DESCRIPTORS_MAX) {
            (void)snprintf(path, sizeof(path), "/proc/%ld/fd/%.16s", (long)pid, entry->d_name);
            take_file(files, path);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return descriptors <= DESCRIPTORS_MAX;
}

/* Copies the key of a mapped file from the first line about it: "addresses rights offset device
 * inode". */
static bool read_key(const char *line, char out[KEY_LEN])
{
    for (int i = 0; i < 3 && line != NULL; i++) {
        line = strchr(line, ' ');
        line = line != NULL ? line + 1 : NULL;
    }
    const char *inode = line != NULL ? strchr(line, ' ') : NULL;
    if (inode == NULL) {
        return false;
    }
    int len = (int)(inode - line + 1) + (int)strcspn(inode + 1, " ");
    return snprintf(out, KEY_LEN, "%.*s", len, line) < KEY_LEN;
}

/* Bytes of mapped files that have no name and are not open. UINT64_MAX = there are too many. */
static uint64_t mapped(pid_t pid, const struct nameless *open)
{
    static const char gone[] = " (deleted)\n";
    char line[SMAPS_LINE_LEN];
    uint64_t bytes = 0;
    bool counts = false;
    int left = SMAPS_LINES_MAX;
    (void)snprintf(line, sizeof(line), "/proc/%ld/smaps", (long)pid);
    FILE *smaps = fopen(line, "re");
    while (smaps != NULL && left > 0 && fgets(line, sizeof(line), smaps) != NULL) {
        size_t len = strlen(line);
        left--;
        if (strchr("0123456789abcdef", line[0]) != NULL) { /* the names of values are capitals */
            char key[KEY_LEN];
            counts = len > sizeof(gone) && strcmp(line + len - strlen(gone), gone) == 0 &&
                     read_key(line, key) && !is_known(open, key);
        } else if (counts) {
            bytes += number_after(line, "Rss:") * 1024;
        }
    }
    if (smaps != NULL) {
        (void)fclose(smaps);
    }
    return left > 0 ? bytes : UINT64_MAX;
}

/* Adds what one process has. As ct_warm_memory_of(). */
static bool add_process(pid_t pid, uint64_t *bytes)
{
    char path[LINE_LEN];
    struct nameless open = {.count = 0};
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)pid);
    uint64_t anonymous = read_number(path, "RssAnon:") * 1024;
    uint64_t shared = read_number(path, "RssShmem:") * 1024;
    uint64_t huge = read_number(path, "HugetlbPages:") * 1024;
    bool all = take_open(pid, &open);
    if (shared > 0) {
        /* A file on a disk that was replaced has no name, either. */
        uint64_t found = mapped(pid, &open);
        shared = found < shared ? found : shared;
    }
    *bytes += anonymous + huge + open.bytes + shared;
    return all;
}

bool ct_warm_memory_of(pid_t pid, uint64_t *bytes)
{
    pid_t family[CT_SPARE_PROCESSES_MAX];
    size_t count;
    bool all = ct_proctree_family(pid, family, CT_SPARE_PROCESSES_MAX, &count);
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        all = add_process(family[i], bytes) && all;
    }
    return all;
}
