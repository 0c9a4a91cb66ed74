/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers without a launcher: a real store in a process of its own, and ranks as forked processes
 * with the environment a launcher would give them.
 *
 *     static void body(int rank, void *data) { ... CHECK(...); }
 *
 *     struct ranks ranks;
 *     ranks_begin(&ranks);
 *     ranks_start(&ranks, 4, body, data);
 *     ranks_join(&ranks);          // fails the test unless every rank ended with 0
 *     ranks_end(&ranks);
 */
#ifndef CT_TESTS_LIB_RANKS_H
#define CT_TESTS_LIB_RANKS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_MAX 8

struct ranks {
    pid_t store;
    uint16_t port;
    pid_t pids[RANKS_MAX];
    int count;
    int generation; /* what the ranks find in their environment; 0 at first */
    int world_size; /* as they find it; 0 = as many as are started */
    /* Ranks of each host, ended by 0, to pretend that this machine is several; NULL: it is one. */
    const int *hosts;
};

/* In a rank, where cmocka's assertions must not be used: prints and ends the process. */
#define CHECK(cond)                                        \
    do {                                                   \
        if (!(cond)) {                                     \
            ranks_check_failed(__FILE__, __LINE__, #cond); \
        }                                                  \
    } while (0)
void ranks_check_failed(const char *file, int line, const char *what) __attribute__((noreturn));

typedef void (*ranks_fn)(int rank, void *data);

/* Starts the store; everything below fails the calling cmocka test instead of returning. */
void ranks_begin(struct ranks *ranks);
void ranks_end(struct ranks *ranks); /* kills what is left */

/* Forks `count` more ranks; each runs fn and exits with 0. */
void ranks_start(struct ranks *ranks, int count, ranks_fn fn, void *data);

/* The same in a generation of its own, with as many ranks as `hosts` has on all. */
void ranks_start_hosts(struct ranks *ranks, const int *hosts, ranks_fn fn, void *data);

/* One more process, with this rank number. */
void ranks_start_one(struct ranks *ranks, int rank, ranks_fn fn, void *data);

/* Waits for all; each must exit with 0, or by `signal` where pid is `killed` (0: none). */
void ranks_join(struct ranks *ranks);
void ranks_join_killed(struct ranks *ranks, pid_t killed, int signal);

/* Zeroed memory that the ranks and the test share; ranks_unshare() it. */
void *ranks_share(size_t bytes);
void ranks_unshare(void *shared, size_t bytes);

/* Polls until *counter >= value; fails the test, or ends the rank, after 20 s. */
void ranks_await(const _Atomic int *counter, int value);

#endif
