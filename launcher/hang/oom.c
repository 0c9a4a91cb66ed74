/* SPDX-License-Identifier: Apache-2.0
 *
 * Machines have version 1 of cgroups, or version 2, or both at once. If a machine has both, the
 * memory controller is in version 1.
 */
#include "launcher/hang/oom.h"

#include "common/file.h"
#include "common/num.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX 8192
/* Documentation/ABI/testing/dev-kmsg: a record is at most this long. */
#define RECORD_MAX 8192
/* So many records are read: a flood of them must not delay the report of a failure. */
#define RECORDS_MAX 20000

const struct ct_oom_roots ct_oom_here = {
    "/proc/self/cgroup",
    "/sys/fs/cgroup",
    "/dev/kmsg",
};

/* ---- the cgroup ----------------------------------------------------------------------------- */

/* Reads the number of the line "name number". */
static bool read_counter(const char *path, const char *name, uint64_t *out)
{
    struct ct_buf buf = CT_BUF_INIT;
    bool found = false;
    const char *text = ct_file_read(path, FILE_MAX, &buf, NULL) == 0 ? ct_buf_cstr(&buf) : NULL;
    size_t len = strlen(name);
    for (const char *line = text; !found && line != NULL && *line != '\0';) {
        size_t whole = strcspn(line, "\n");
        char number[24];
        int64_t value;
        if (strncmp(line, name, len) == 0 && line[len] == ' ' && whole - len - 1 < sizeof(number)) {
            (void)snprintf(number, sizeof(number), "%.*s", (int)(whole - len - 1), line + len + 1);
            found = ct_parse_i64(number, 0, INT64_MAX, &value) == 0;
            *out = found ? (uint64_t)value : *out;
        }
        line += whole + (line[whole] == '\n');
    }
    ct_buf_fini(&buf);
    return found;
}

/* Finds the path of our cgroup in the hierarchy with these controllers. Its line is "4:memory:/a/b"
 * or, in version 2, "0::/a/b". */
static bool find_path(const char *text, const char *controllers, char *out, size_t cap)
{
    for (const char *line = text; *line != '\0';) {
        size_t whole = strcspn(line, "\n");
        const char *first = memchr(line, ':', whole);
        const char *second =
            first != NULL ? memchr(first + 1, ':', whole - (size_t)(first + 1 - line)) : NULL;
        if (second != NULL && (size_t)(second - first - 1) == strlen(controllers) &&
            strncmp(first + 1, controllers, strlen(controllers)) == 0) {
            size_t len = whole - (size_t)(second + 1 - line);
            if (len < cap) {
                memcpy(out, second + 1, len);
                out[len] = '\0';
                return true;
            }
        }
        line += whole + (line[whole] == '\n');
    }
    return false;
}

/* Looks for the files at the path of our cgroup and at the top of the mount. In a container, the
 * path may be that of the host, and then the files are at the top. */
static bool try_place(struct ct_oom *oom, const char *mount, const char *path, const char *events,
                      const char *limit)
{
    const char *const paths[] = {strcmp(path, "/") == 0 ? "" : path, ""};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        (void)snprintf(oom->events, sizeof(oom->events), "%.160s%.256s/%s", mount, paths[i],
                       events);
        (void)snprintf(oom->limit, sizeof(oom->limit), "%.160s%.256s/%s", mount, paths[i], limit);
        if (read_counter(oom->events, "oom_kill", &oom->kills)) {
            return true;
        }
    }
    return false;
}

static void find_counter(struct ct_oom *oom, const struct ct_oom_roots *roots)
{
    static const struct {
        const char *controllers, *mount, *events, *limit;
    } places[] = {
        {"", "", "memory.events", "memory.max"},
        {"memory", "/memory", "memory.oom_control", "memory.limit_in_bytes"},
        {"", "/unified", "memory.events", "memory.max"},
    };
    struct ct_buf buf = CT_BUF_INIT;
    const char *text =
        ct_file_read(roots->membership, FILE_MAX, &buf, NULL) == 0 ? ct_buf_cstr(&buf) : NULL;
    for (size_t i = 0; text != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        char path[256], mount[192];
        (void)snprintf(mount, sizeof(mount), "%.160s%s", roots->cgroups, places[i].mount);
        if (find_path(text, places[i].controllers, path, sizeof(path)) &&
            try_place(oom, mount, path, places[i].events, places[i].limit)) {
            oom->has_kills = true;
            oom->latest = oom->kills;
            break;
        }
    }
    ct_buf_fini(&buf);
}

static void add_limit(const struct ct_oom *oom, struct ct_buf *out)
{
    struct ct_buf buf = CT_BUF_INIT;
    int64_t bytes = 0;
    char number[24] = "";
    if (ct_file_read(oom->limit, sizeof(number) - 1, &buf, NULL) == 0 && buf.len > 0) {
        (void)snprintf(number, sizeof(number), "%.*s", (int)buf.len, ct_buf_bytes(&buf));
        number[strcspn(number, "\n")] = '\0';
    }
    ct_buf_fini(&buf);
    /* "max", or in version 1 a number next to 2^63, means that there is none. */
    if (ct_parse_i64(number, 1, INT64_MAX / 2, &bytes) == 0) {
        ct_buf_addf(out, ", whose limit is %" PRId64 " MiB", bytes >> 20);
    }
}

/* ---- the kernel's log ----------------------------------------------------------------------- */

/* Returns the words of a record "priority,sequence,time,flags;words\n..." if they report that the
 * kernel killed `pid` for memory, else NULL. */
static const char *death_of(char *record, pid_t pid)
{
    char needle[48];
    char *words = strchr(record, ';');
    if (words == NULL) {
        return NULL;
    }
    words++;
    words[strcspn(words, "\n")] = '\0';
    (void)snprintf(needle, sizeof(needle), "Killed process %ld ", (long)pid);
    bool memory = strcasestr(words, "out of memory") != NULL || strstr(words, "oom") != NULL;
    return memory && strstr(words, needle) != NULL ? words : NULL;
}

static void add_log(struct ct_oom *oom, pid_t pid, struct ct_buf *out)
{
    char record[RECORD_MAX + 1];
    for (int i = 0; oom->kmsg_fd >= 0 && i < RECORDS_MAX; i++) {
        ssize_t n = read(oom->kmsg_fd, record, RECORD_MAX);
        if (n < 0 && (errno == EPIPE || errno == EINTR)) {
            continue; /* records were overwritten before they were read; the next read goes on
                         behind them */
        }
        if (n <= 0) {
            break;
        }
        record[n] = '\0';
        const char *words = death_of(record, pid);
        if (words != NULL) {
            ct_buf_addf(out, "the kernel log says \"%.200s\"", words);
        }
    }
}

/* ---- both ----------------------------------------------------------------------------------- */

void ct_oom_open(struct ct_oom *oom, const struct ct_oom_roots *roots)
{
    *oom = (struct ct_oom)CT_OOM_INIT;
    find_counter(oom, roots);
}

void ct_oom_follow_log(struct ct_oom *oom, const struct ct_oom_roots *roots)
{
    CT_ASSERT(oom->kmsg_fd < 0);
    oom->kmsg_fd = open(roots->kmsg, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (oom->kmsg_fd >= 0) {
        (void)lseek(oom->kmsg_fd, 0, SEEK_END);
    }
}

void ct_oom_fini(struct ct_oom *oom)
{
    if (oom->kmsg_fd >= 0) {
        (void)close(oom->kmsg_fd);
    }
    *oom = (struct ct_oom)CT_OOM_INIT;
}

void ct_oom_look(struct ct_oom *oom)
{
    uint64_t kills;
    if (oom->has_kills && read_counter(oom->events, "oom_kill", &kills)) {
        oom->kills = oom->latest;
        oom->latest = kills;
    }
}

int ct_oom_find(struct ct_oom *oom, pid_t pid, struct ct_buf *out)
{
    size_t before = out->len;
    uint64_t kills = 0;
    add_log(oom, pid, out);
    if (oom->has_kills && read_counter(oom->events, "oom_kill", &kills) && kills > oom->kills) {
        uint64_t more = kills - oom->kills;
        oom->kills = oom->latest = kills;
        if (out->len == before) {
            ct_buf_addf(out, "the kernel has just killed %" PRIu64 " process%s of our cgroup", more,
                        more == 1 ? "" : "es");
            add_limit(oom, out);
        }
    }
    return ct_buf_status(out);
}
