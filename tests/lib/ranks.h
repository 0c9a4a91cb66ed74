/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers without a launcher: a real store in a process of its own, and ranks as forked processes
 * with the environment a launcher would give them.
 *
 *     static void body(int rank, void *data) { ... CHECK(...); }
 *
 *     static void a_test(void **state)
 *     {
 *         ranks_run(4, body, data);    // fails the test unless every rank ends with 0
 *     }
 *
 *     RANKS_TEST(a_test)               // in the array of tests
 */
#ifndef CT_TESTS_LIB_RANKS_H
#define CT_TESTS_LIB_RANKS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RANKS_MAX 8

/* What the running test has started. */
extern struct ranks {
    pid_t store;
    uint16_t port;
    pid_t pids[RANKS_MAX];
    int count;
    int generation; /* what the ranks find in their environment; 0 at first */
    int world_size; /* as they find it; 0 = as many as are started */
    /* Ranks of each host, ended by 0, to pretend that this machine is several; NULL: it is one. */
    const int *hosts;
} ranks;

/* In a rank, where cmocka's assertions must not be used: prints and ends the process. */
#define CHECK(cond)                                        \
    do {                                                   \
        if (!(cond)) {                                     \
            ranks_check_failed(__FILE__, __LINE__, #cond); \
        }                                                  \
    } while (0)
void ranks_check_failed(const char *file, int line, const char *what) __attribute__((noreturn));

typedef void (*ranks_fn)(int rank, void *data);

/* A test with a store of its own. */
#define RANKS_TEST(name) cmocka_unit_test_setup_teardown(name, ranks_setup, ranks_teardown)

/* The same with zeroed memory that the test and its ranks share. `pointer` is a static variable,
 * which points to it during the test. */
#define RANKS_TEST_SHARING(name, pointer)     \
    cmocka_unit_test_prestate_setup_teardown( \
        name, ranks_setup, ranks_teardown,    \
        (&(struct ranks_shared){(void **)&(pointer), sizeof *(pointer)}))
struct ranks_shared {
    void **pointer;
    size_t bytes;
};
int ranks_setup(void **state); /* *state is NULL or a struct ranks_shared, which is borrowed */
int ranks_teardown(void **state);

/* Starts the store; everything below fails the calling cmocka test instead of returning. */
void ranks_begin(void);
void ranks_end(void); /* kills what is left */

/* Forks `count` more ranks; each runs fn and exits with 0. */
void ranks_start(int count, ranks_fn fn, void *data);

/* The same in a generation of its own and with the shared memory zeroed, with as many ranks as
 * `hosts` has on all. */
void ranks_start_hosts(const int *hosts, ranks_fn fn, void *data);

/* One more process, with this rank number. */
void ranks_start_one(int rank, ranks_fn fn, void *data);

/* Waits for all; each must exit with 0, or by `signal` where pid is `killed` (0: none). */
void ranks_join(void);
void ranks_join_killed(pid_t killed, int signal);

/* Starts and joins, in a generation of its own and with the shared memory zeroed. */
void ranks_run(int count, ranks_fn fn, void *data);
void ranks_run_hosts(const int *hosts, ranks_fn fn, void *data);

/* Zeroed memory that the ranks and the test share; ranks_unshare() it. */
void *ranks_share(size_t bytes);
void ranks_unshare(void *memory, size_t bytes);

/* Polls until *counter >= value; fails the test, or ends the rank, after 80 s. */
void ranks_await(const _Atomic int *counter, int value);

#endif
