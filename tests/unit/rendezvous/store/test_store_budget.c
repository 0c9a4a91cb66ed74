/* SPDX-License-Identifier: Apache-2.0
 *
 * The cap on memory: what is counted, what is refused, and that reads go on.
 */
#include "tests/lib/store_probe.h"

#include "common/alloc.h"
#include "rendezvous/store/session.h"
#include "rendezvous/wire/limits.h"

#include <stdio.h>
#include <stdlib.h>

#define Z7 "\0\0\0\0\0\0\0"
#define HELLO "\x00\xce\xf7\x85\x3c"
#define B(text) (text), sizeof(text) - 1

static size_t used(struct ct_store *store)
{
    return ct_store_budget(store)->used;
}

/* No more than now. */
static void close_the_lid(struct ct_store *store)
{
    ct_store_budget(store)->max = used(store);
}

/* ---- counting ------------------------------------------------------------------------------- */

static void test_everything_is_counted_and_given_back(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    size_t empty = used(store);
    assert_int_equal(empty, 0);
    set(store, "key", "value");
    size_t one = used(store);
    assert_true(one > 3 + 5 + 2 * sizeof(void *));
    set(store, "key", "longer value");
    assert_int_equal(used(store), one + 7);
    assert_int_equal(ct_store_push(store, b("key"), b("value")), 0);
    size_t with_queue = used(store);
    assert_true(with_queue >= one + 7 + 5 + sizeof(struct ct_blob));
    assert_int_equal(wait_for(store, &probe, "a b c"), CT_STORE_E_PENDING);
    assert_true(used(store) > with_queue + 3 * sizeof(struct ct_waiter_link));
    ct_store_cancel(store, &probe.waiter);
    assert_int_equal(used(store), with_queue);
    struct ct_blob *held = ct_blob_ref(ct_store_get(store, b("key")));
    ct_store_clear(store);
    /* A reply that is not sent yet holds it. */
    assert_int_equal(used(store), ct_blob_cost(12));
    ct_blob_unref(held);
    assert_int_equal(used(store), 0);
}

static void pop(struct ct_store *store, struct ct_waiter *waiter, const char *queue)
{
    struct ct_blob *got = NULL;
    size_t len;
    assert_int_equal(ct_store_pop(store, waiter, b(queue), &len, &got), 0);
    assert_int_equal(len, 1);
    ct_blob_unref(got);
}

static void test_an_emptied_queue_takes_nothing(void **state)
{
    struct ct_store *store = *state;
    struct ct_waiter nobody = {0};
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    assert_int_equal(ct_store_push(store, b("q"), b("x")), 0);
    pop(store, &nobody, "q");
    assert_int_equal(used(store), 0);

    /* The element that woke somebody goes to another, and then its claim ends. */
    assert_int_equal(wait_for(store, &probe, "q"), CT_STORE_E_PENDING);
    assert_int_equal(ct_store_push(store, b("q"), b("x")), 0);
    assert_int_equal(probe.woken, 1);
    pop(store, &nobody, "q");
    ct_store_cancel(store, &probe.waiter);
    assert_int_equal(used(store), 0);
}

static void test_names_that_are_there_take_nothing(void **state)
{
    struct ct_store *store = *state;
    static const unsigned char names[] = "\1" Z7 "q\1" Z7 "z";
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    set(store, "z", "");
    assert_int_equal(ct_store_wait(store, &probe.waiter, (struct ct_bytes){names, 9}, 1, true),
                     CT_STORE_E_PENDING);
    size_t before = used(store);
    assert_int_equal(ct_store_wait(store, &probe.waiter, (struct ct_bytes){names + 9, 9}, 1, false),
                     CT_STORE_E_PENDING);
    assert_int_equal(used(store), before);
    ct_store_cancel(store, &probe.waiter);
}

static void *counting_malloc(size_t size, void *data)
{
    *(size_t *)data += size;
    size_t *block = malloc(sizeof(size_t) + size);
    assert_non_null(block);
    *block = size;
    return block + 1;
}

static void counting_free(void *ptr, void *data)
{
    if (ptr != NULL) {
        size_t *block = (size_t *)ptr - 1;
        *(size_t *)data -= *block;
        free(block);
    }
}

static void *counting_realloc(void *ptr, size_t size, void *data)
{
    void *grown = counting_malloc(size, data);
    if (ptr != NULL) {
        size_t old = ((size_t *)ptr)[-1];
        memcpy(grown, ptr, old < size ? old : size);
        counting_free(ptr, data);
    }
    return grown;
}

/* What was really asked of malloc is below what is counted, and not far below. */
static void test_count_is_near_the_truth(void **state)
{
    (void)state;
    size_t asked = 0;
    const struct ct_allocator table = {counting_malloc, counting_realloc, counting_free, &asked};
    ct_alloc_install(&table);
    struct ct_store *store = NULL;
    assert_int_equal(ct_store_new(&store), 0);
    size_t before = asked, blocks = 0;
    for (int i = 0; i < 2000; i++, blocks += 2) {
        char name[32];
        (void)snprintf(name, sizeof(name), "key number %d", i);
        set(store, name, "some value");
        if (i % 4 == 0) {
            assert_int_equal(ct_store_push(store, b(name), b("element")), 0);
            blocks += 3;
        }
    }
    size_t real = asked - before + blocks * CT_BLOCK_COST;
    assert_in_range(used(store), real * 95 / 100, real * 110 / 100);
    ct_store_free(store);
    assert_int_equal(asked, 0);
    ct_alloc_install(NULL);
}

/* ---- the engine at its cap ------------------------------------------------------------------ */

static void test_full_store_refuses_growth_alone(void **state)
{
    struct ct_store *store = *state;
    int64_t n = 0;
    struct ct_blob *held = NULL;
    set(store, "k", "1");
    assert_int_equal(ct_store_push(store, b("q"), b("x")), 0);
    close_the_lid(store);
    size_t full = used(store);
    assert_int_equal(ct_store_set(store, b("new"), b("")), CT_ENOMEM);
    assert_int_equal(ct_store_set(store, b("k"), b("12")), CT_ENOMEM);
    assert_int_equal(ct_store_append(store, b("k"), b("2")), CT_ENOMEM);
    assert_int_equal(ct_store_compare_set(store, b("k"), b("1"), b("12"), &held), CT_ENOMEM);
    assert_int_equal(ct_store_push(store, b("q"), b("")), CT_ENOMEM);
    assert_int_equal(ct_store_budget(store)->refused, 5);
    assert_int_equal(used(store), full);
    assert_memory_equal(ct_store_get(store, b("k"))->bytes, "1", 1);
    assert_int_equal(ct_store_num_keys(store), 1);
    assert_int_equal(ct_store_queue_len(store, b("q")), 1);
    /* A counter of as many digits goes on, and so does what takes no more than it gives. */
    assert_int_equal(ct_store_add(store, b("k"), 1, &n), 0);
    assert_int_equal(ct_store_set(store, b("k"), b("x")), 0);
    assert_int_equal(ct_store_set(store, b("k"), b("")), 0);
    assert_int_equal(ct_store_delete(store, b("k")), 0);
    assert_int_equal(ct_store_set(store, b("k"), b("1")), 0);
    assert_int_equal(used(store), full);
}

static void test_multi_set_over_the_cap_sets_nothing(void **state)
{
    struct ct_store *store = *state;
    set(store, "a", "1");
    static const unsigned char pairs[] = "\1" Z7 "a\1" Z7 "2\1" Z7 "b\1" Z7 "2\1" Z7 "c\1" Z7 "2";
    size_t full = used(store);
    /* Room for one more of the two. */
    ct_store_budget(store)->max = full + full * 3 / 2;
    assert_int_equal(ct_store_multi_set(store, (struct ct_bytes){pairs, 54}, 3), CT_ENOMEM);
    assert_int_equal(ct_store_num_keys(store), 1);
    assert_memory_equal(ct_store_get(store, b("a"))->bytes, "1", 1);
    assert_int_equal(used(store), full);
}

static void test_small_waits_are_granted(void **state)
{
    struct ct_store *store = *state;
    int clock = 0;
    struct probe probe;
    probe_init(&probe, &clock);
    close_the_lid(store);
    assert_int_equal(wait_for(store, &probe, "a b"), CT_STORE_E_PENDING);
    ct_store_cancel(store, &probe.waiter);
    enum { KEYS = 2000 };
    unsigned char *keys = calloc(KEYS, 12);
    assert_non_null(keys);
    for (int i = 0; i < KEYS; i++) {
        char name[5];
        (void)snprintf(name, sizeof(name), "%04d", i);
        keys[12 * i] = 4;
        memcpy(keys + 12 * i + 8, name, 4);
    }
    const struct ct_bytes list = {keys, KEYS * 12};
    assert_int_equal(ct_store_wait(store, &probe.waiter, list, KEYS, false), CT_ENOMEM);
    assert_int_equal(used(store), 0);
    ct_store_budget(store)->max = SIZE_MAX;
    assert_int_equal(ct_store_wait(store, &probe.waiter, list, KEYS, false), CT_STORE_E_PENDING);
    ct_store_cancel(store, &probe.waiter);
    free(keys);
}

/* ---- sessions at the cap -------------------------------------------------------------------- */

static void on_woken(struct ct_session *session)
{
    (void)session;
}

static int feed(struct ct_session *s, const void *bytes, size_t len, struct ct_err *err)
{
    int rc = ct_session_feed(s, bytes, len, err);
    while (rc == CT_SESSION_E_STALLED) {
        ct_outq_consume(&s->out, s->out.total);
        rc = ct_session_feed(s, NULL, 0, err);
    }
    ct_outq_consume(&s->out, s->out.total);
    return rc;
}

static void test_half_requests_count(void **state)
{
    struct ct_store *store = *state;
    struct ct_service service = {.store = store, .on_woken = on_woken};
    struct ct_session s;
    ct_session_init(&s, &service);
    struct ct_err err = {0};
    static char chunk[65536];
    assert_int_equal(feed(&s, B(HELLO "\x01\x01" Z7 "k\x00\x00\x80\0\0\0\0\0"), &err), 0);
    assert_true(used(store) > 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(feed(&s, chunk, sizeof(chunk), &err), 0);
    }
    assert_true(used(store) > 4 * sizeof(chunk));
    close_the_lid(store);
    int rc = 0;
    for (int i = 0; i < 8 && rc == 0; i++) {
        rc = feed(&s, chunk, sizeof(chunk), &err);
    }
    assert_int_equal(rc, CT_ENOMEM);
    assert_non_null(strstr(err.text, "--max-memory"));
    ct_session_fini(&s);
    assert_int_equal(used(store), 0);
}

static void test_reads_go_on(void **state)
{
    struct ct_store *store = *state;
    struct ct_service service = {.store = store, .on_woken = on_woken};
    struct ct_session s;
    ct_session_init(&s, &service);
    struct ct_err err = {0};
    static char value[CT_OUT_COPY_MAX];
    const struct ct_bytes bytes = {(const unsigned char *)value, sizeof(value)};
    assert_int_equal(ct_store_set(store, b("k"), bytes), 0);
    close_the_lid(store);
    struct ct_buf many = CT_BUF_INIT;
    assert_int_equal(ct_buf_append(&many, B(HELLO)), 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(ct_buf_append(&many, B("\x03\x01" Z7 "k")), 0);
    }
    /* In pieces, so that there are half requests too. */
    for (size_t at = 0; at < many.len; at += 777) {
        size_t n = many.len - at < 777 ? many.len - at : 777;
        assert_int_equal(feed(&s, ct_buf_bytes(&many) + at, n, &err), 0);
    }
    assert_int_equal(service.by_op[CT_OP_GET], 1000);
    assert_int_equal(feed(&s, B("\x11\x07\x0a\x01" Z7 "\x01" Z7 "k"), &err), 0);
    /* The writer alone ends. */
    assert_int_equal(feed(&s, B("\x01\x01" Z7 "n\x01" Z7 "v"), &err), CT_ENOMEM);
    ct_session_fini(&s);
    ct_buf_fini(&many);
}

/* A reply that must be copied whole is memory as well. */
static void test_large_copied_replies_are_refused(void **state)
{
    struct ct_store *store = *state;
    for (int i = 0; i < 3000; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "a key of some length, the number of it is %d", i);
        set(store, name, "");
    }
    static const char list[] = HELLO "\x11";
    static const unsigned char head[] = HELLO "\x0a\xb8\x0b\0\0\0\0\0\0"; /* 3000 keys */
    static char value[1000];
    const struct ct_bytes bytes = {(const unsigned char *)value, sizeof(value)};
    assert_int_equal(ct_store_set(store, b("v"), bytes), 0);
    struct ct_buf get = CT_BUF_INIT;
    assert_int_equal(ct_buf_append(&get, head, sizeof(head) - 1), 0);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(ct_put_bytes(&get, "v", 1), 0);
    }
    struct ct_err err = {0};
    for (int full = 0; full < 2; full++) {
        struct ct_service service = {.store = store, .on_woken = on_woken};
        struct ct_session one, two;
        ct_session_init(&one, &service);
        ct_session_init(&two, &service);
        int want = full ? CT_ENOMEM : 0;
        assert_int_equal(feed(&one, list, sizeof(list) - 1, &err), want);
        assert_int_equal(feed(&two, ct_buf_bytes(&get), get.len, &err), want);
        ct_session_fini(&one);
        ct_session_fini(&two);
        close_the_lid(store);
    }
    ct_buf_fini(&get);
}

#define WITH_STORE(test) cmocka_unit_test_setup_teardown(test, ct_probe_set_up, ct_probe_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_everything_is_counted_and_given_back),
        WITH_STORE(test_an_emptied_queue_takes_nothing),
        WITH_STORE(test_names_that_are_there_take_nothing),
        cmocka_unit_test(test_count_is_near_the_truth),
        WITH_STORE(test_full_store_refuses_growth_alone),
        WITH_STORE(test_multi_set_over_the_cap_sets_nothing),
        WITH_STORE(test_small_waits_are_granted),
        WITH_STORE(test_half_requests_count),
        WITH_STORE(test_reads_go_on),
        WITH_STORE(test_large_copied_replies_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
