/* SPDX-License-Identifier: Apache-2.0
 *
 * The table that stands for the store is shared by all threads under a lock. A failed check jumps
 * out of the body, aborts the rank's communicator, and fails the test when all threads have been
 * joined.
 */
#include "tests/lib/nccl_ranks.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/clock.h"

#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const struct comm_nccl_module ctworker_nccl_module;

#define LONG_MS (20 * 1000)
#define KEYS_MAX 64

/* ---- the store ------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    struct key {
        char name[96];
        char value[512];
        size_t len;
    } keys[KEYS_MAX];
    int count;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int store_set(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    const struct comm_origin *origin = data;
    (void)pthread_mutex_lock(&store.lock);
    bool fits = store.count < KEYS_MAX && len <= sizeof store.keys[0].value;
    if (fits) {
        struct key *k = &store.keys[store.count++];
        (void)snprintf(k->name, sizeof k->name, "%s/%s", origin->name, key);
        memcpy(k->value, value, len);
        k->len = len;
    }
    (void)pthread_mutex_unlock(&store.lock);
    return fits ? 0 : ct_err_set(err, CT_ELIMIT, "the table is full");
}

static int store_get(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                     struct ct_err *err)
{
    const struct comm_origin *origin = data;
    char name[96];
    int64_t deadline = ct_deadline_in(NULL, timeout_ms);
    (void)snprintf(name, sizeof name, "%s/%s", origin->name, key);
    while (ct_clock_now(NULL) < deadline) {
        (void)pthread_mutex_lock(&store.lock);
        const struct key *found = NULL;
        for (int i = 0; i < store.count; i++) {
            found = strcmp(store.keys[i].name, name) == 0 ? &store.keys[i] : found;
        }
        int rc = found != NULL ? ct_buf_append(out, found->value, found->len) : 0;
        (void)pthread_mutex_unlock(&store.lock);
        if (found != NULL) {
            return rc;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = 200 * 1000}, NULL);
    }
    return ct_err_set(err, CT_ETIMEDOUT, "no key %s", name);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static _Thread_local jmp_buf out_of_body;
static nccl_rank_fn body;

void nccl_rank_check_failed(struct nccl_rank *r, const char *file, int line, const char *what)
{
    if (!r->all->may_fail) {
        (void)snprintf(r->failure, sizeof r->failure, "%s:%d: rank %d: %s", file, line, r->rank,
                       what);
    }
    longjmp(out_of_body, 1);
}

static void open_comm(struct nccl_rank *r)
{
    struct comm_origin origin = {.name = "comm/0", .timeout_ms = LONG_MS};
    const struct comm_setup setup = {
        .rank = r->rank,
        .size = r->all->size,
        .local_size = r->all->size,
        .device = r->rank,
        .stream = r->stream,
        .handover = r->all->handover,
        .timeout_ms = r->all->timeout_ms > 0 ? r->all->timeout_ms : LONG_MS,
        .tree_sum = r->all->tree_sum,
        .tree_sum_data = r->stream,
        .set = store_set,
        .get = store_get,
        .data = &origin,
    };
    struct ct_err err = {0};
    int rc = ctworker_nccl_module.open(&setup, &r->comm, &err);
    if (rc != 0) {
        nccl_rank_check_failed(r, __FILE__, __LINE__, err.text);
    }
    r->comm->origin = origin;
}

static void *run_rank(void *data)
{
    struct nccl_rank *r = data;
    (void)cudaSetDevice(r->rank);
    if (setjmp(out_of_body) == 0) {
        if (r->all->stream_of != NULL) {
            r->stream = r->all->stream_of(r);
        } else {
            RANK_CHECK(r,
                       cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess);
        }
        open_comm(r);
        body(r);
    } else {
        ctw_comm_abort(r->comm);
    }
    ctw_comm_free(r->comm);
    if (r->stream != NULL && r->all->stream_of == NULL) {
        (void)cudaStreamDestroy(r->stream);
    }
    return NULL;
}

void nccl_ranks_run(const struct nccl_ranks *all, nccl_rank_fn fn)
{
    struct nccl_rank ranks[CTW_CREW_MAX] = {{0}};
    struct fake_gpu script = all->script;
    const char *base = getenv("TMPDIR");
    char *was = base != NULL ? strdup(base) : NULL;
    char *dir = ct_tmpdir_new(); /* of what an id that nobody takes leaves behind */
    assert_int_equal(setenv("TMPDIR", dir, 1), 0);
    script.processes = true;
    fake_gpu_begin(&script);
    store.count = 0;
    body = fn;
    for (int r = 0; r < all->size; r++) {
        ranks[r].all = all;
        ranks[r].rank = r;
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < all->size; r++) {
        (void)pthread_join(ranks[r].thread, NULL);
    }
    assert_int_equal(was != NULL ? setenv("TMPDIR", was, 1) : unsetenv("TMPDIR"), 0);
    ct_tmpdir_free(dir);
    free(was);
    for (int r = 0; r < all->size; r++) {
        if (ranks[r].failure[0] != '\0') {
            fail_msg("%s (seed %u)", ranks[r].failure, all->script.seed);
        }
    }
    if (fake.violations > 0) {
        fail_msg("broken rule: %s (seed %u)", fake.first_violation, all->script.seed);
    }
    assert_int_equal(fake.comms, 0);
    assert_int_equal(fake.cliques, 0);
    assert_int_equal(fake.memory + fake.registrations, 0);
    assert_int_equal(fake.streams + fake.events, 0);
}

void nccl_ranks_await(const atomic_int *counter, int value)
{
    while (atomic_load(counter) < value) {
        (void)sched_yield();
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

struct kernel {
    float *at;
    size_t count;
    float value;
    int *bad; /* NULL: fills */
};

static void run_kernel(const void *data)
{
    const struct kernel *k = data;
    for (size_t i = 0; i < k->count; i++) {
        if (k->bad == NULL) {
            k->at[i] = k->value;
        } else if (k->at[i] != k->value) {
            *k->bad = 1;
        }
    }
}

void nccl_rank_fill(const struct nccl_rank *r, float *at, size_t count, float value)
{
    const struct kernel k = {at, count, value, NULL};
    FAKE_ALONE;
    fake_queue(r->stream, run_kernel, &k, sizeof k);
}

void nccl_rank_expect(const struct nccl_rank *r, const float *at, size_t count, float value,
                      int *bad)
{
    const struct kernel k = {(float *)(uintptr_t)at, count, value, bad};
    FAKE_ALONE;
    fake_queue(r->stream, run_kernel, &k, sizeof k);
}

float *nccl_rank_floats(struct nccl_rank *r, size_t count)
{
    void *floats = NULL;
    RANK_CHECK(r, cudaMalloc(&floats, count * sizeof(float)) == cudaSuccess);
    return floats;
}
