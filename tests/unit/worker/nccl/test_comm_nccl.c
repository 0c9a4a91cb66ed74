/* SPDX-License-Identifier: Apache-2.0
 *
 * The control flow of the NCCL back end against a stand-in that keeps NCCL's rules of order.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fake_gpu/fake_gpu.h"

#include "worker/comm/comm.h"

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>

extern const struct comm_nccl_module ctworker_nccl_module;

/* A store of one key. */
struct store {
    char key[32];
    unsigned char value[256];
    size_t len;
    int get_code; /* what get() fails with */
};

static int store_set(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    (void)err;
    struct store *store = data;
    (void)snprintf(store->key, sizeof(store->key), "%s", key);
    assert_true(len <= sizeof(store->value));
    memcpy(store->value, value, len);
    store->len = len;
    return 0;
}

static int store_get(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                     struct ct_err *err)
{
    struct store *store = data;
    assert_true(timeout_ms > 0);
    assert_string_equal(key, "nccl");
    if (store->get_code != 0) {
        return ct_err_set(err, store->get_code, "no key");
    }
    return ct_buf_append(out, store->value, store->len);
}

static struct store store;

/* What the launcher says; nothing unless a test lets it. */
static struct ct_handover_slot orders;
static struct order_reader handover;
static uint32_t told; /* when things go wrong */

static int open_rank(int rank, int size, int64_t timeout_ms, struct ctw_comm **out,
                     struct ct_err *err)
{
    const struct comm_setup setup = {
        .rank = rank,
        .size = size,
        .local_size = size,
        .device = 3,
        .handover = &handover,
        .timeout_ms = timeout_ms,
        .set = store_set,
        .get = store_get,
        .data = &store,
    };
    return ctworker_nccl_module.open(&setup, out, err);
}

/* Long enough that only a broken loop reaches it, short enough to wait for. */
#define LONG_MS (20 * 1000)
#define SHORT_MS 200

/* Only a wait for the deadline itself is short: on a busy machine the rest may take longer. */
static int64_t deadline_of(int code)
{
    return code == CT_ETIMEDOUT ? SHORT_MS : LONG_MS;
}

static struct ctw_comm *open_well(const struct fake_gpu *script, int64_t timeout_ms)
{
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    fake_gpu_begin(script);
    int rc = open_rank(0, 4, timeout_ms, &comm, &err);
    if (rc != 0) {
        fail_msg("open: %s", err.text);
    }
    return comm;
}

/* After closing, whatever happened: nothing is left, no rule was broken. */
static void check_clean(void)
{
    if (fake.violations != 0) {
        fail_msg("%d violations, first: %s", fake.violations, fake.first_violation);
    }
    assert_int_equal(fake.comms, 0);
    assert_int_equal(fake.memory, 0);
    assert_int_equal(fake.registrations, 0);
}

static int reset(void **state)
{
    (void)state;
    memset(&store, 0, sizeof(store));
    handover = (struct order_reader){0};
    told = CT_ORDER_NONE;
    return 0;
}

/* ---- all is well ----------------------------------------------------------------------------- */

static void a_slow_but_healthy_life(void **state)
{
    (void)state;
    const struct fake_gpu script = {
        .init_turns = 3000, .call_turns = 5, .stream_turns = 7, .finalize_turns = 4};
    struct ctw_comm *comm = open_well(&script, LONG_MS);
    assert_int_equal(fake.device, 3);
    assert_string_equal(store.key, "nccl");
    assert_int_equal(store.len, NCCL_UNIQUE_ID_BYTES);
    assert_int_equal(ctw_comm_size(comm), 4);
    assert_int_equal(ctw_comm_backend(comm), CTW_BACKEND_NCCL);

    void *block = NULL;
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 4 * sizeof(float), &block, NULL), 0);
    assert_int_equal(fake.registrations, 1);
    float *x = block;
    for (int i = 0; i < 4; i++) {
        assert_true(x[i] == 0);
        x[i] = (float)i;
    }
    assert_int_equal(ctw_comm_all_reduce(comm, x, x, 4, NULL), 0);
    assert_int_equal(ctw_comm_sync(comm, NULL), 0);
    assert_true(x[3] == 12);
    size_t begin = 9, end = 9;
    assert_int_equal(ctw_comm_reduce_scatter(comm, x, 4, &begin, &end, NULL), 0);
    assert_int_equal(begin, 0);
    assert_int_equal(end, 4);
    assert_int_equal(ctw_comm_broadcast(comm, x, sizeof(float), 3, NULL), 0);
    assert_int_equal(ctw_comm_barrier(comm, NULL), 0);
    assert_int_equal(ctw_comm_poll(comm, NULL), 0);
    ctw_comm_free(comm);
    assert_int_equal(fake.destroys, 1);
    assert_int_equal(fake.aborts, 0);
    check_clean();
}

/* After an abort other streams may still compute with NCCL's memory, which is unmapped at once. */
static void memory_outlives_what_uses_it(void **state)
{
    (void)state;
    struct ctw_comm *comm = open_well(NULL, LONG_MS);
    void *block;
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, NULL), 0);
    ctw_comm_abort(comm);
    assert_int_equal(cudaMemsetAsync(block, 1, 100, NULL), cudaSuccess);
    ctw_comm_free(comm);
    check_clean();
}

static void memory_is_found_without_ncclmemalloc(void **state)
{
    (void)state;
    const struct fake_gpu script = {.no_mem_alloc = true};
    struct ctw_comm *comm = open_well(&script, LONG_MS);
    void *block;
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, NULL), 0);
    assert_int_equal(fake.registrations, 1);
    ctw_comm_free(comm);
    check_clean();
}

static void memory_is_registered_on_all_ranks_or_none(void **state)
{
    (void)state;
    const struct fake_gpu theirs = {.refusing_peers = 1};
    struct ctw_comm *comm = open_well(&theirs, LONG_MS);
    void *block;
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, NULL), 0);
    assert_int_equal(fake.registrations, 0);
    ctw_comm_free(comm);
    check_clean();

    const struct fake_gpu ours = {.no_register = true};
    comm = open_well(&ours, LONG_MS);
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, NULL), 0);
    ctw_comm_free(comm);
    check_clean();
}

static void no_shared_memory_on_gpus(void **state)
{
    (void)state;
    struct ctw_comm *comm = open_well(NULL, LONG_MS);
    void *block;
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_SHARED, 100, &block, NULL), CT_EUNSUPPORTED);
    ctw_comm_free(comm);
    assert_int_equal(fake.aborts, 1);
    check_clean();
}

/* ---- opening fails --------------------------------------------------------------------------- */

static void check_open_fails(const struct fake_gpu *script, int code, const char *text)
{
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    fake_gpu_begin(script);
    assert_int_equal(open_rank(1, 4, deadline_of(code), &comm, &err), code);
    assert_null(comm);
    if (strstr(err.text, text) == NULL || strchr(err.text, '\n') != NULL) {
        fail_msg("\"%s\" is not one line with \"%s\"", err.text, text);
    }
    check_clean();
}

static void opening_fails_in_words(void **state)
{
    (void)state;
    store.len = NCCL_UNIQUE_ID_BYTES;
    check_open_fails(&(struct fake_gpu){.init_turns = FAKE_NEVER}, CT_ETIMEDOUT, "has not come");
    assert_int_equal(fake.aborts, 1);
    check_open_fails(
        &(struct fake_gpu){.init_turns = 5, .fail_after = 3, .async_error = ncclRemoteError},
        CT_EPEER, "remote process exited: two");
    assert_int_equal(fake.aborts, 1);
    check_open_fails(&(struct fake_gpu){.init_error = ncclInvalidArgument}, CT_EINVAL,
                     "ncclCommInitRankConfig");
    assert_int_equal(fake.aborts, 0);
    check_open_fails(&(struct fake_gpu){.nccl_version = 22105}, CT_EUNSUPPORTED,
                     "this NCCL has the version 2.21.5; 2.22 or later is needed");
    check_open_fails(&(struct fake_gpu){.set_device_error = cudaErrorNoDevice}, CT_EUNSUPPORTED,
                     "CUDA device 3: cudaSetDevice: no CUDA-capable device");
    check_open_fails(&(struct fake_gpu){.set_device_error = cudaErrorInvalidDevice}, CT_EINVAL,
                     "CUDA device 3");
}

static void an_id_of_another_size_is_refused(void **state)
{
    (void)state;
    for (size_t len = 0; len <= 256; len += 127) {
        store.len = len;
        check_open_fails(NULL, CT_EPROTO, "NCCL id has");
    }
    store.get_code = CT_ETIMEDOUT;
    check_open_fails(NULL, CT_ETIMEDOUT, "no key");
}

/* ---- a peer dies ----------------------------------------------------------------------------- */

static void check_call_fails(const struct fake_gpu *script, int code)
{
    struct ctw_comm *comm = open_well(NULL, deadline_of(code));
    struct ct_err err = {0};
    void *block;
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, NULL), 0);
    /* From now on things go wrong. */
    int memory = fake.memory, registrations = fake.registrations;
    fake = *script;
    fake.comms = 1;
    fake.memory = memory;
    fake.registrations = registrations;
    __atomic_store_n(&orders.order, told, __ATOMIC_RELAXED);

    float x = 1;
    int rc = ctw_comm_all_reduce(comm, &x, &x, 1, &err);
    if (rc == 0) {
        rc = ctw_comm_sync(comm, &err);
    }
    assert_int_equal(rc, code);
    assert_int_equal(fake.aborts, 1);
    assert_int_equal(ctw_comm_barrier(comm, NULL), code);
    assert_int_equal(ctw_comm_poll(comm, NULL), code);
    ctw_comm_abort(comm);
    ctw_comm_free(comm);
    assert_int_equal(fake.aborts, 1);
    assert_int_equal(fake.destroys, 0);
    check_clean();
    orders.order = CT_ORDER_NONE;
}

static void a_dead_peer_ends_the_wait(void **state)
{
    (void)state;
    /* The kernel never ends and nobody tells: the deadline. */
    check_call_fails(&(struct fake_gpu){.stream_turns = FAKE_NEVER}, CT_ETIMEDOUT);
    /* NCCL notices while the kernel runs. */
    check_call_fails(&(struct fake_gpu){.stream_turns = FAKE_NEVER,
                                        .fail_after = 4,
                                        .async_error = ncclRemoteError},
                     CT_EPEER);
    /* While the call is being queued. */
    check_call_fails(&(struct fake_gpu){.call_turns = FAKE_NEVER}, CT_ETIMEDOUT);
    check_call_fails(
        &(struct fake_gpu){.call_turns = 9, .fail_after = 2, .async_error = ncclSystemError},
        CT_EPEER);
    /* At once. */
    check_call_fails(&(struct fake_gpu){.call_error = ncclInternalError}, CT_EIO);
    /* The GPU itself. */
    check_call_fails(&(struct fake_gpu){.stream_error = cudaErrorIllegalAddress}, CT_EIO);
}

/* Where a peer dies on another machine NCCL may not hear of it. */
static void the_launcher_ends_the_wait(void **state)
{
    (void)state;
    const struct fake_gpu never = {.stream_turns = FAKE_NEVER};
    handover = (struct order_reader){.slot = &orders, .generation = 7, .able = true};
    told = ct_generation_word(6, CT_ORDER_PARK);
    check_call_fails(&never, CT_ETIMEDOUT);
    told = ct_generation_word(7, CT_ORDER_PARK);
    check_call_fails(&never, CT_EPEER);
    handover.able = false;
    check_call_fails(&never, CT_ETIMEDOUT);
}

static void poll_tells_of_an_error(void **state)
{
    (void)state;
    struct ctw_comm *comm = open_well(NULL, LONG_MS);
    fake.fail_after = 1;
    fake.async_error = ncclRemoteError;
    struct ct_err err = {0};
    assert_int_equal(ctw_comm_poll(comm, &err), CT_EPEER);
    ctw_comm_free(comm);
    check_clean();
}

static void abort_is_local_and_final(void **state)
{
    (void)state;
    struct ctw_comm *comm = open_well(NULL, LONG_MS);
    ctw_comm_abort(comm);
    ctw_comm_abort(comm);
    assert_int_equal(ctw_comm_sync(comm, NULL), CT_EABORTED);
    ctw_comm_free(comm);
    assert_int_equal(fake.aborts, 1);
    check_clean();
}

static void closing_aborts_when_it_cannot_finish(void **state)
{
    (void)state;
    const struct fake_gpu script = {.finalize_turns = 9};
    struct ctw_comm *comm = open_well(&script, LONG_MS);
    fake.fail_after = 2;
    fake.async_error = ncclSystemError;
    ctw_comm_free(comm);
    assert_int_equal(fake.aborts, 1);
    check_clean();
}

/* Nobody has asked for the result of the collective, so no call has failed. Closing waited for the
 * device without a deadline, and the process stayed when its peers were gone. */
static void check_stuck_close(const struct fake_gpu *script, int64_t timeout_ms)
{
    struct ctw_comm *comm = open_well(NULL, timeout_ms);
    void *block;
    float x = 1;
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, NULL), 0);
    assert_int_equal(ctw_comm_all_reduce(comm, &x, &x, 1, NULL), 0);
    fake.stream_turns = script->stream_turns;
    fake.fail_after = script->fail_after;
    fake.async_error = script->async_error;
    __atomic_store_n(&orders.order, told, __ATOMIC_RELAXED);
    ctw_comm_free(comm);
    assert_int_equal(fake.aborts, 1);
    assert_int_equal(fake.destroys, 0);
    check_clean();
    orders.order = CT_ORDER_NONE;
}

static void closing_does_not_wait_for_lost_peers(void **state)
{
    (void)state;
    check_stuck_close(&(struct fake_gpu){.stream_turns = FAKE_NEVER}, SHORT_MS);
    check_stuck_close(&(struct fake_gpu){.stream_turns = FAKE_NEVER,
                                         .fail_after = 4,
                                         .async_error = ncclRemoteError},
                      LONG_MS);
    handover = (struct order_reader){.slot = &orders, .generation = 7, .able = true};
    told = ct_generation_word(7, CT_ORDER_PARK);
    check_stuck_close(&(struct fake_gpu){.stream_turns = FAKE_NEVER}, LONG_MS);
}

/* ---- memory runs out ------------------------------------------------------------------------- */

static int life(void *data)
{
    (void)data;
    struct ctw_comm *comm = NULL;
    void *block;
    fake_gpu_begin(NULL);
    store.len = NCCL_UNIQUE_ID_BYTES;
    int rc = open_rank(1, 2, LONG_MS, &comm, NULL);
    if (rc == 0) {
        rc = ctw_comm_alloc(comm, CTW_MEMORY_OWN, 10, &block, NULL);
    }
    ctw_comm_free(comm);
    check_clean();
    return rc;
}

static void survives_allocation_failures(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(life, NULL, 0) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_slow_but_healthy_life, reset),
        cmocka_unit_test_setup(memory_outlives_what_uses_it, reset),
        cmocka_unit_test_setup(memory_is_found_without_ncclmemalloc, reset),
        cmocka_unit_test_setup(memory_is_registered_on_all_ranks_or_none, reset),
        cmocka_unit_test_setup(no_shared_memory_on_gpus, reset),
        cmocka_unit_test_setup(opening_fails_in_words, reset),
        cmocka_unit_test_setup(an_id_of_another_size_is_refused, reset),
        cmocka_unit_test_setup(a_dead_peer_ends_the_wait, reset),
        cmocka_unit_test_setup(the_launcher_ends_the_wait, reset),
        cmocka_unit_test_setup(poll_tells_of_an_error, reset),
        cmocka_unit_test_setup(abort_is_local_and_final, reset),
        cmocka_unit_test_setup(closing_aborts_when_it_cannot_finish, reset),
        cmocka_unit_test_setup(closing_does_not_wait_for_lost_peers, reset),
        cmocka_unit_test_setup(survives_allocation_failures, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
