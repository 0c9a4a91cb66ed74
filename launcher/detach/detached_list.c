/* SPDX-License-Identifier: Apache-2.0
 *
 * A job runs if its ctrun does: the process with its number that began at the same moment, after
 * the same start of the same machine. A home folder may be shared by several machines and
 * containers, even by some that have one name, so a job may be another one's.
 *
 * Failure modes: a folder without a record that can be read is no job. It is removed like one that
 * has ended when nothing was written into it for as long.
 */
#include "launcher/detach/detached_list.h"

#include "common/alloc.h"
#include "common/text.h"
#include "launcher/detach/state_folder.h"
#include "launcher/process/proctree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Jobs that a message lists. */
#define SHOWN_MAX 10

/* Reads the first line of a file; "" if there is none. */
static void read_line(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    if (fd >= 0) {
        (void)close(fd);
    }
}

void ct_detached_list_here(const char *host, struct ct_detached_here *out)
{
    char boot[40], space[40], id[40];
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    ssize_t n = readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
    space[n > 0 ? n : 0] = '\0';
    *out = (struct ct_detached_here){.host = host};
    (void)snprintf(out->place, sizeof(out->place), "%s/%s", boot, space);
    read_line("/etc/machine-id", id, sizeof(id));
    if (strlen(id) == 32 && strspn(id, "0123456789abcdef") == 32) { /* else it has none yet */
        (void)snprintf(out->machine, sizeof(out->machine), "%.16s", id);
    }
}

static enum ct_detached_state state_of(const struct ct_detached_job *job,
                                       enum ct_detached_where where)
{
    struct ct_proctree_entry process;
    if (job->via[0] != '\0') {
        return CT_DETACHED_VIA;
    }
    if (where != CT_DETACHED_HERE) {
        return where == CT_DETACHED_BEFORE ? CT_DETACHED_LOST : CT_DETACHED_ELSEWHERE;
    }
    bool runs = ct_proctree_read_pid(job->pid, &process) && process.start == job->start &&
                !ct_proctree_is_zombie(&process);
    return runs ? CT_DETACHED_RUNS : CT_DETACHED_LOST;
}

static int64_t written_s(int job)
{
    struct stat st;
    bool found =
        fstatat(job, CT_STATE_CONSOLE, &st, AT_SYMLINK_NOFOLLOW) == 0 || fstat(job, &st) == 0;
    return found ? (int64_t)st.st_mtim.tv_sec : 0;
}

/* Returns false if the folder has no record. *written tells when something was written there. */
static bool read_entry(int root, const char *name, const struct ct_detached_here *here,
                       struct ct_detached_entry *out, int64_t *written)
{
    char text[CT_DETACHED_TEXT_MAX], end[CT_DETACHED_EXIT_SIZE + 1];
    *written = INT64_MAX;
    int job = ct_detached_job_is_name(name) ? ct_state_folder_open_job(root, name, NULL) : -1;
    if (job < 0) {
        return false;
    }
    *written = written_s(job);
    *out = (struct ct_detached_entry){0};
    bool found = ct_state_folder_read(job, CT_STATE_JOB, text, sizeof(text)) &&
                 ct_detached_job_parse(text, &out->job);
    if (found) {
        /* The process first: it writes its exit code before it ends. */
        out->where = ct_detached_job_where(&out->job, here);
        out->state = state_of(&out->job, out->where);
        out->ended_s = *written;
        if (ct_state_folder_read(job, CT_STATE_EXIT, end, sizeof(end)) &&
            ct_detached_job_exit_parse(end, &out->exit_code, &out->ended_s)) {
            out->state = CT_DETACHED_ENDED;
        }
        (void)snprintf(out->job.id, sizeof(out->job.id), "%s", name);
    }
    (void)close(job);
    return found;
}

static DIR *open_names(int root, struct ct_err *err)
{
    int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd >= 0 ? fdopendir(fd) : NULL;
    if (names == NULL) {
        int saved = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        (void)ct_err_sys(err, CT_EIO, saved, "cannot read the folder of detached jobs");
    }
    return names;
}

static int by_begin(const void *a, const void *b)
{
    const struct ct_detached_entry *x = a, *y = b;
    int order = (x->job.begun_s > y->job.begun_s) - (x->job.begun_s < y->job.begun_s);
    return order != 0 ? order : strcmp(x->job.id, y->job.id);
}

/* ---- the job that is meant ------------------------------------------------------------------- */

static bool begins(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* How well a word fits a job: 0 = not, 4 = it is its id or its address. */
static int fit_of(const struct ct_detached_entry *entry, const char *word)
{
    bool runs = entry->state == CT_DETACHED_RUNS, via = entry->state == CT_DETACHED_VIA;
    int weight = runs ? 3 : via ? 2 : 1;
    if (word == NULL) {
        return weight > 1 ? weight : 0;
    }
    /* A home may be shared, so a job that was started from another machine may run here. */
    if ((!via && strcmp(entry->job.id, word) == 0) ||
        (runs && strcmp(entry->job.address, word) == 0)) {
        return 4;
    }
    bool fits = word[0] != '\0' && (begins(entry->job.id, word) || begins(entry->job.run_id, word));
    return fits ? weight : 0;
}

/* Those that fit the word best come first, of these the newest. */
static int by_fit(const void *a, const void *b, void *of)
{
    const char *const *word = of;
    int order = fit_of(b, *word) - fit_of(a, *word);
    return order != 0 ? order : by_begin(b, a);
}

/* A job that runs must not be lost among many that have ended. */
static int keep_best(struct ct_detached_entry *list, int count, const char *word)
{
    if (count <= CT_DETACHED_JOBS_MAX) {
        return count;
    }
    qsort_r(list, (size_t)count, sizeof(*list), by_fit, &word);
    return CT_DETACHED_JOBS_MAX;
}

int ct_detached_list_read(int root, const char *word, const char *host,
                          struct ct_detached_entry **out, struct ct_err *err)
{
    struct ct_detached_here here;
    struct ct_detached_entry *list = ct_calloc((size_t)2 * CT_DETACHED_JOBS_MAX, sizeof(*list));
    if (list == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for the list of detached jobs");
    }
    DIR *names = open_names(root, err);
    if (names == NULL) {
        ct_free(list);
        return CT_EIO;
    }
    int count = 0;
    ct_detached_list_here(host, &here);
    for (const struct dirent *name; (name = readdir(names)) != NULL;) {
        int64_t written;
        count += read_entry(root, name->d_name, &here, &list[count], &written);
        if (count == 2 * CT_DETACHED_JOBS_MAX) {
            count = keep_best(list, count, word);
        }
    }
    (void)closedir(names);
    count = keep_best(list, count, word);
    qsort(list, (size_t)count, sizeof(*list), by_begin);
    *out = list;
    return count;
}

static void add_entry(const struct ct_detached_entry *entry, struct ct_buf *why)
{
    char state[32 + CT_HOST_MAX] = "runs";
    switch (entry->state) {
    case CT_DETACHED_RUNS:
        break;
    case CT_DETACHED_ENDED:
        (void)snprintf(state, sizeof(state), "ended with %d", entry->exit_code);
        break;
    case CT_DETACHED_LOST:
        (void)snprintf(state, sizeof(state), "was killed");
        break;
    case CT_DETACHED_VIA:
        (void)snprintf(state, sizeof(state), "is on %s", entry->job.via);
        break;
    case CT_DETACHED_ELSEWHERE:
        (void)snprintf(state, sizeof(state), "is %s%s",
                       entry->where == CT_DETACHED_CONTAINER  ? "in another container, "
                       : entry->where == CT_DETACHED_NAMESAKE ? "on another machine, "
                                                              : "on ",
                       entry->job.host);
        break;
    }
    ct_buf_addf(why, "  %s  %s  %s\n", entry->job.id, state, entry->job.program);
}

/* Lists the jobs that fit as well as the best one, the newest first. */
static void add_list(const struct ct_detached_entry *entries, int count, const char *word, int fit,
                     struct ct_buf *why)
{
    int shown = 0, left = 0;
    for (int i = count - 1; i >= 0; i--) {
        if (fit > 0 && fit_of(&entries[i], word) != fit) {
            continue;
        }
        if (shown == SHOWN_MAX) {
            left++;
            continue;
        }
        add_entry(&entries[i], why);
        shown++;
    }
    if (left > 0) {
        ct_buf_addf(why, "  and %d more\n", left);
    }
}

static void say_none(const struct ct_detached_entry *entries, int count, const char *word,
                     const char *host, struct ct_buf *why)
{
    char named[CT_TEXT_EXCERPT_MAX];
    const char *start = " (start one with ctrun --detach)";
    if (word == NULL) {
        ct_buf_addf(why, "--attach: no detached job of yours runs on %s%s\n", host,
                    count > 0 ? "; name one of these" : start);
    } else {
        ct_buf_addf(why, "--attach %s: no detached job of yours on %s has this id or address%s\n",
                    ct_text_excerpt(word, named), host, count > 0 ? "; there are" : start);
    }
    add_list(entries, count, NULL, 0, why);
}

int ct_detached_list_choose(const struct ct_detached_entry *entries, int count, const char *word,
                            const char *host, struct ct_buf *why)
{
    int best = 0, found = -1, same = 0;
    for (int i = 0; i < count; i++) {
        int fit = fit_of(&entries[i], word);
        if (fit > best) {
            best = fit;
            found = i;
            same = 1;
        } else if (fit == best && fit > 0) {
            same++;
        }
    }
    if (same == 1) {
        return found;
    }
    if (same == 0) {
        say_none(entries, count, word, host, why);
    } else if (word == NULL) {
        ct_buf_addf(why, "--attach: %d detached jobs of yours %s %s; name one of these\n", same,
                    best == 3 ? "run on" : "were started from", host);
        add_list(entries, count, word, best, why);
    } else {
        char named[CT_TEXT_EXCERPT_MAX];
        ct_buf_addf(why, "--attach %s: %d jobs begin with this; name one of these\n",
                    ct_text_excerpt(word, named), same);
        add_list(entries, count, word, best, why);
    }
    return CT_EINVAL;
}

/* ---- the end --------------------------------------------------------------------------------- */

void ct_detached_list_prune(int root, const char *host, int64_t now_s)
{
    struct ct_detached_here here;
    DIR *names = open_names(root, NULL);
    ct_detached_list_here(host, &here);
    for (const struct dirent *name; names != NULL && (name = readdir(names)) != NULL;) {
        struct ct_detached_entry entry;
        int64_t written;
        bool found = read_entry(root, name->d_name, &here, &entry, &written);
        bool via = found && entry.state == CT_DETACHED_VIA;
        bool over =
            !found || via || entry.state == CT_DETACHED_ENDED || entry.state == CT_DETACHED_LOST;
        int64_t since_s = found ? entry.ended_s : written;
        if (over && since_s < now_s - (via ? CT_DETACHED_KEEP_VIA_S : CT_DETACHED_KEEP_S)) {
            ct_state_folder_remove_job(root, name->d_name);
        }
    }
    if (names != NULL) {
        (void)closedir(names);
    }
}
