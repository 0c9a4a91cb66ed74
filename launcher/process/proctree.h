/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes in /proc at one moment: who is whose child, and in which group and session; and
 * signals that cannot hit a process other than the one seen.
 */
#ifndef CT_LAUNCHER_PROCESS_PROCTREE_H
#define CT_LAUNCHER_PROCESS_PROCTREE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A pid may belong to another process a moment later. A pid with its start time cannot. */
struct ct_proctree_entry {
    pid_t pid, ppid, pgrp, session;
    char state;         /* as in /proc/PID/stat: R, S, D, T, Z, ... */
    bool exiting;       /* it has called exit, or was killed, and the kernel clears it away */
    bool marked;        /* the caller's; false after reading */
    uint64_t start;     /* clock ticks since boot */
    uint64_t cpu_ticks; /* CPU time of all its threads, in user mode and in the kernel */
    uint64_t rss_pages; /* resident memory */
};

struct ct_proctree {
    struct ct_proctree_entry *entries; /* ascending by pid */
    size_t count;
    size_t cap;
};

/* Zeroed memory is an empty tree. */
void ct_proctree_fini(struct ct_proctree *tree); /* NULL is allowed */

/* Replaces the content, keeps the memory. Processes that come or go meanwhile may be missed.
 * CT_EUNSUPPORTED where /proc does not show our processes. On failure the tree is empty. */
CT_MUST_CHECK int ct_proctree_read(struct ct_proctree *tree, struct ct_err *err);

/* One process; false when it does not exist. */
bool ct_proctree_read_pid(pid_t pid, struct ct_proctree_entry *out);

/* Does the caller know this child of its own? */
typedef bool (*ct_proctree_known_fn)(const void *data, pid_t child);

/* Has this process no child, dead or alive, that is not known? A sub-reaper then has no descendants
 * either but those of the children that it knows, and ct_proctree_read(), which needs up to three
 * system calls for each process of the machine, would find nothing else. False when the kernel does
 * not say. */
bool ct_proctree_has_only(ct_proctree_known_fn known, const void *data);

/* Lists this process, and then its living and dead descendants, at most `max` of all of them.
 * Returns false if there are more. Where the kernel does not say who its children are, it is alone.
 */
bool ct_proctree_family(pid_t pid, pid_t *out, size_t max, size_t *count);

/* Reads the text of a /proc/PID/stat file. It may hold anything, because a process chooses its
 * name. */
bool ct_proctree_parse(const char *text, size_t len, struct ct_proctree_entry *out);

/* NULL when absent. */
struct ct_proctree_entry *ct_proctree_find(const struct ct_proctree *tree, pid_t pid);

/* Marks every child of a marked entry, and so on. */
void ct_proctree_mark_children(struct ct_proctree *tree);

/* Marks the living descendants of `root`, but not `root` itself, nor `except` and its descendants.
 * A zombie is not marked, its descendants are. Returns how many processes are marked. */
size_t ct_proctree_mark_descendants(struct ct_proctree *tree, pid_t root, pid_t except);

static inline bool ct_proctree_is_zombie(const struct ct_proctree_entry *entry)
{
    return entry->state == 'Z' || entry->state == 'X';
}

/* Sends the signal to exactly this process; false when it is gone or may not be signalled. Never
 * to pid 1 or below. */
bool ct_proctree_signal(const struct ct_proctree_entry *entry, int sig);

/* pidfd_send_signal(2), which glibc 2.36 has in no header that C99 programs may share with
 * <linux/...>; returns whether it was delivered. */
bool ct_proctree_signal_pidfd(int pidfd, int sig);

#endif
