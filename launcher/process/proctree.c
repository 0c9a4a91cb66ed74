/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: read the stat file of every process in /proc into a table sorted by process id, then
 * mark descendants by walking it. Signals go through a pidfd, after a second look at the start time
 * shows that the number still means the same process.
 *
 * Failure modes: a process that ends while /proc is read is left out. Where /proc does not show our
 * own processes (another PID namespace), reading fails as a whole.
 */
#include "launcher/process/proctree.h"

#include "common/alloc.h"
#include "common/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The fields of a stat file: at most 52 numbers of 20 digits and a name of 64 bytes. */
#define STAT_MAX 1280

/* PF_EXITING in the kernel's include/linux/sched.h, which no header for programs has. */
#define FLAG_EXITING 0x4U

void ct_proctree_fini(struct ct_proctree *tree)
{
    if (tree != NULL) {
        ct_free(tree->entries);
        *tree = (struct ct_proctree){0};
    }
}

bool ct_proctree_parse(const char *text, size_t len, struct ct_proctree_entry *out)
{
    char copy[STAT_MAX];
    if (len >= sizeof(copy)) {
        len = sizeof(copy) - 1; /* the fields that are read stand in front */
    }
    memcpy(copy, text, len);
    copy[len] = '\0';

    /* "pid (name) S ppid pgrp session ...": the name may hold blanks and parentheses, the rest
     * cannot, so the last ')' ends the name. */
    const char *rest = strrchr(copy, ')');
    int pid, ppid, pgrp, session;
    unsigned flags;
    char state;
    uint64_t user, system, start, rss;
    if (rest == NULL || sscanf(copy, "%d (", &pid) != 1 ||
        sscanf(rest,
               ") %c %d %d %d %*d %*d %u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
               " %*d %*d %*d %*d %*d %*d %" SCNu64 " %*u %" SCNu64,
               &state, &ppid, &pgrp, &session, &flags, &user, &system, &start, &rss) != 9) {
        return false;
    }
    *out = (struct ct_proctree_entry){.pid = pid,
                                      .ppid = ppid,
                                      .pgrp = pgrp,
                                      .session = session,
                                      .state = state,
                                      .exiting = (flags & FLAG_EXITING) != 0,
                                      .start = start,
                                      .cpu_ticks = user + system,
                                      .rss_pages = rss};
    return true;
}

bool ct_proctree_read_pid(pid_t pid, struct ct_proctree_entry *out)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    char text[STAT_MAX];
    /* The kernel gives the whole file in one read, which no signal interrupts. */
    ssize_t n = read(fd, text, sizeof(text));
    close(fd);
    return n > 0 && ct_proctree_parse(text, (size_t)n, out);
}

/* Reads the children of one of our threads ("pid pid ... "). True when all are known. */
static bool thread_has_only(int task_dir, const char *tid, ct_proctree_known_fn known,
                            const void *data)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "%.10s/children", tid);
    int fd = openat(task_dir, path, O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (file == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    int child;
    bool only = true;
    while (only && fscanf(file, "%d", &child) == 1) {
        only = known(data, child);
    }
    only = only && !ferror(file);
    (void)fclose(file);
    return only;
}

/* `tasks` is the folder of the threads of a process. */
static bool process_has_only(const char *tasks, ct_proctree_known_fn known, const void *data)
{
    DIR *dir = opendir(tasks);
    if (dir == NULL) {
        return false;
    }
    bool only = true;
    const struct dirent *entry;
    while (only && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            only = thread_has_only(dirfd(dir), entry->d_name, known, data);
        }
    }
    closedir(dir);
    return only;
}

bool ct_proctree_has_only(ct_proctree_known_fn known, const void *data)
{
    return process_has_only("/proc/self/task", known, data);
}

struct family {
    pid_t *pids;
    size_t max;
    size_t *count;
};

/* Returns false if there is no room for the child. */
static bool join(const void *data, pid_t child)
{
    const struct family *family = data;
    if (*family->count == family->max) {
        return false;
    }
    family->pids[(*family->count)++] = child;
    return true;
}

bool ct_proctree_family(pid_t pid, pid_t *out, size_t max, size_t *count)
{
    const struct family family = {out, max, count};
    bool all = max > 0;
    *count = 0;
    (void)join(&family, pid);
    for (size_t i = 0; all && i < *count; i++) {
        char tasks[32];
        (void)snprintf(tasks, sizeof(tasks), "/proc/%d/task", (int)out[i]);
        all = process_has_only(tasks, join, &family) || *count < max;
    }
    return all;
}

static int compare_pid(const void *a, const void *b)
{
    const struct ct_proctree_entry *x = a;
    const struct ct_proctree_entry *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static int tree_add(struct ct_proctree *tree, const struct ct_proctree_entry *entry)
{
    if (tree->count == tree->cap) {
        size_t cap = tree->cap != 0 ? tree->cap * 2 : 256;
        void *grown = ct_realloc(tree->entries, cap * sizeof(*tree->entries));
        if (grown == NULL) {
            return CT_ENOMEM;
        }
        tree->entries = grown;
        tree->cap = cap;
    }
    tree->entries[tree->count++] = *entry;
    return 0;
}

/* Fails when /proc is that of another PID namespace, where our pids mean other processes. */
static int check_ours(int proc, struct ct_err *err)
{
    char self[16] = "";
    int pid;
    if (readlinkat(proc, "self", self, sizeof(self) - 1) < 0) {
        return ct_err_set(err, CT_EUNSUPPORTED, "/proc is not mounted");
    }
    if (ct_parse_int(self, 1, INT32_MAX, &pid) != 0 || pid != getpid()) {
        return ct_err_set(err, CT_EUNSUPPORTED, "/proc is that of another PID namespace");
    }
    return 0;
}

int ct_proctree_read(struct ct_proctree *tree, struct ct_err *err)
{
    tree->count = 0;
    DIR *dir = opendir("/proc");
    if (dir == NULL) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot list /proc");
    }
    int rc = check_ours(dirfd(dir), err);
    if (rc != 0) {
        closedir(dir);
        return rc;
    }
    const struct dirent *entry;
    while (rc == 0 && (entry = readdir(dir)) != NULL) {
        int pid;
        struct ct_proctree_entry process;
        if (ct_parse_int(entry->d_name, 1, INT32_MAX, &pid) == 0 &&
            ct_proctree_read_pid(pid, &process)) {
            rc = tree_add(tree, &process);
        }
    }
    closedir(dir);
    if (rc != 0) {
        tree->count = 0;
        return ct_err_set(err, rc, "out of memory while listing /proc");
    }
    /* The kernel lists by pid already, other implementations of /proc need not. */
    if (tree->count > 0) { /* else the array may be NULL, which qsort() does not allow */
        qsort(tree->entries, tree->count, sizeof(*tree->entries), compare_pid);
    }
    return 0;
}

struct ct_proctree_entry *ct_proctree_find(const struct ct_proctree *tree, pid_t pid)
{
    const struct ct_proctree_entry key = {.pid = pid};
    return tree->count == 0 ? NULL
                            : bsearch(&key, tree->entries, tree->count, sizeof(key), compare_pid);
}

void ct_proctree_mark_children(struct ct_proctree *tree)
{
    /* A child usually has a higher pid than its parent, so one pass finds nearly all; after the
     * pids have wrapped around it takes a few more. */
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < tree->count; i++) {
            struct ct_proctree_entry *entry = &tree->entries[i];
            const struct ct_proctree_entry *parent =
                entry->marked ? NULL : ct_proctree_find(tree, entry->ppid);
            if (parent != NULL && parent->marked) {
                entry->marked = true;
                changed = true;
            }
        }
    }
}

size_t ct_proctree_mark_descendants(struct ct_proctree *tree, pid_t root, pid_t except)
{
    struct ct_proctree_entry *top = ct_proctree_find(tree, root);
    if (top == NULL) {
        return 0;
    }
    struct ct_proctree_entry *spared = ct_proctree_find(tree, except);
    if (spared != NULL) {
        spared->ppid = 0; /* cut off: what is below it is not reached either */
    }
    top->marked = true;
    ct_proctree_mark_children(tree);
    top->marked = false;

    size_t count = 0;
    for (size_t i = 0; i < tree->count; i++) {
        struct ct_proctree_entry *entry = &tree->entries[i];
        entry->marked = entry->marked && !ct_proctree_is_zombie(entry);
        count += entry->marked;
    }
    return count;
}

/* A pidfd of exactly this process, or -1 when it is gone. The caller closes it. */
static int open_pidfd(const struct ct_proctree_entry *entry)
{
    if (entry->pid <= 1) {
        return -1;
    }
    /* The pid may have been reused. So the process that has it now is opened first, and then its
     * start time is compared with that of the process that was seen. */
    int pidfd = (int)syscall(SYS_pidfd_open, entry->pid, 0);
    struct ct_proctree_entry now;
    if (pidfd >= 0 && (!ct_proctree_read_pid(entry->pid, &now) || now.start != entry->start)) {
        close(pidfd);
        return -1;
    }
    return pidfd;
}

bool ct_proctree_signal(const struct ct_proctree_entry *entry, int sig)
{
    int pidfd = open_pidfd(entry);
    if (pidfd < 0) {
        return false;
    }
    bool sent = ct_proctree_signal_pidfd(pidfd, sig);
    close(pidfd);
    return sent;
}

bool ct_proctree_signal_pidfd(int pidfd, int sig)
{
    return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) == 0;
}
