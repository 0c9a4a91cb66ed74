/* SPDX-License-Identifier: Apache-2.0
 *
 * With the real NCCL and a real store, without a GPU: the unique id reaches every rank, a new one
 * in each generation; the module loads, and says so in words where it cannot.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tmpdir.h"

#include "worker/comm/comm.h"
#include "worker/job/job.h"

#include <stdlib.h>

#define SIZE 3
#define GENERATIONS 2

struct board {
    unsigned char ids[GENERATIONS][SIZE][COMM_NCCL_ID_BYTES];
};

static int job_set(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    return ctw_job_set(data, key, value, len, err);
}

static int job_get(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err)
{
    return ctw_job_get_within(data, key, timeout_ms, out, err);
}

static void exchange(int rank, void *data)
{
    struct board *board = data;
    struct ctw_job *job = rank_open_job();
    const struct comm_setup setup = {
        .rank = rank,
        .size = SIZE,
        .timeout_ms = LONG_MS,
        .set = job_set,
        .get = job_get,
        .data = job,
    };
    struct ct_err err = {0};
    int generation = ctw_job_env(job)->generation;
    int rc = comm_nccl_exchange_id(&setup, board->ids[generation][rank], &err);
    if (rc != 0) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    ctw_job_free(job);
}

static void the_id_reaches_every_rank(void **state)
{
    (void)state;
    struct board *board = ranks_share(sizeof(*board));
    for (ranks.generation = 0; ranks.generation < GENERATIONS; ranks.generation++) {
        ranks_start(SIZE, exchange, board);
        ranks_join();
    }
    const unsigned char none[COMM_NCCL_ID_BYTES] = {0};
    for (int g = 0; g < GENERATIONS; g++) {
        assert_memory_not_equal(board->ids[g][0], none, sizeof(none));
        for (int r = 1; r < SIZE; r++) {
            assert_memory_equal(board->ids[g][0], board->ids[g][r], sizeof(none));
        }
    }
    assert_memory_not_equal(board->ids[0][0], board->ids[1][0], sizeof(none));
    ranks_unshare(board, sizeof(*board));
}

static void the_module_loads(void **state)
{
    (void)state;
    const struct comm_nccl_module *module = NULL;
    struct ct_err err = {0};
    if (comm_nccl_load(NCCL_MODULE_PATH, &module, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(module->version, COMM_NCCL_VERSION);
    assert_non_null(module->open);
}

static void what_is_no_module_is_refused(void **state)
{
    (void)state;
    const char *const paths[] = {"/nonexistent/ctworker-nccl.so", "/etc/passwd", "libc.so.6"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        const struct comm_nccl_module *module = NULL;
        struct ct_err err = {0};
        assert_int_equal(comm_nccl_load(paths[i], &module, &err), CT_EUNSUPPORTED);
        assert_non_null(strstr(err.text, paths[i]));
        assert_null(module);
    }
}

/* Through the public interface: no module beside this test, or no GPU, or (on a machine with both)
 * a communicator of one. */
static void asking_for_nccl_works_or_says_why(void **state)
{
    (void)state;
    struct ctw_job *job;
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    assert_int_equal(ctw_job_open(NULL, &job, NULL), 0);
    const struct ctw_comm_options options = {.backend = CTW_BACKEND_NCCL};
    int rc = ctw_comm_open(job, &options, &comm, &err);
    if (rc != 0) {
        assert_int_equal(rc, CT_EUNSUPPORTED);
        assert_non_null(strstr(err.text, "rank 0 cannot open a communicator: "));
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

/* Who names a folder must not get what lies elsewhere. */
static void a_named_folder_is_the_only_one(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    struct ct_err err = {0};
    struct ctw_comm *comm;
    const struct comm_setup setup = {.size = 1};
    assert_int_equal(setenv("CTRUN_PLUGIN_DIR", dir, 1), 0);
    assert_int_equal(comm_nccl_open(&setup, &comm, &err), CT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, dir));
    assert_int_equal(unsetenv("CTRUN_PLUGIN_DIR"), 0);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(the_id_reaches_every_rank),
        cmocka_unit_test(the_module_loads),
        cmocka_unit_test(what_is_no_module_is_refused),
        cmocka_unit_test(a_named_folder_is_the_only_one),
        cmocka_unit_test(asking_for_nccl_works_or_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
