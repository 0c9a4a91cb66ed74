/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a buffer holds what was appended and not yet consumed, moves its bytes and grows only
 * when it must, and refuses sizes that would overflow.
 */
#include "common/buf.h"
#include "tests/lib/ct_test.h"

static void test_an_emptied_buffer_starts_at_its_front(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    assert_null(ct_buf_bytes(&buf));
    assert_int_equal(ct_buf_append(&buf, NULL, 0), 0);
    assert_int_equal(ct_buf_append(&buf, "hello world", 11), 0);
    assert_int_equal(buf.len, 11);
    ct_buf_consume(&buf, 6);
    assert_int_equal(buf.len, 5);
    assert_memory_equal(ct_buf_bytes(&buf), "world", 5);
    ct_buf_consume(&buf, 5);
    /* Emptied buffers start at the front again: no room is lost. */
    assert_int_equal(buf.off, 0);
    assert_int_equal(ct_buf_append(&buf, "x", 1), 0);
    size_t cap = buf.cap;
    ct_buf_reset(&buf);
    assert_int_equal(buf.len, 0);
    assert_int_equal(buf.cap, cap);
    ct_buf_fini(&buf);
    ct_buf_fini(&buf);
    ct_buf_fini(NULL);
    assert_int_equal(ct_buf_append(&buf, "again", 5), 0);
    ct_buf_fini(&buf);
}

static void test_zeroed_memory_is_an_empty_buffer(void **state)
{
    (void)state;
    struct ct_buf buf;
    memset(&buf, 0, sizeof(buf));
    assert_string_equal(ct_buf_cstr(&buf), "");
    assert_int_equal(buf.len, 0);
    ct_buf_fini(&buf);
}

static void test_formatted_text_ends_with_a_zero(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_buf_printf(&buf, "%s", ""), 0);
    assert_int_equal(buf.len, 0);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(ct_buf_printf(&buf, "%03d;", i), 0);
    }
    assert_int_equal(buf.len, 400);
    const char *text = ct_buf_cstr(&buf);
    assert_int_equal(strlen(text), 400);
    assert_memory_equal(text + 396, "099;", 4);
    assert_int_equal(buf.len, 400);

    /* The NUL also fits when the buffer is exactly full. */
    while (buf.len < buf.cap) {
        assert_int_equal(ct_buf_append(&buf, "f", 1), 0);
    }
    assert_int_equal(strlen(ct_buf_cstr(&buf)), buf.len);
    ct_buf_fini(&buf);
}

static void test_a_buffer_grows_only_when_it_must(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_buf_reserve(&buf, 64), 0);
    assert_int_equal(buf.cap, 64);
    for (int i = 0; i < 63; i++) {
        assert_int_equal(ct_buf_append(&buf, "x", 1), 0);
    }
    assert_int_equal(strlen(ct_buf_cstr(&buf)), 63); /* there is room for the NUL */
    assert_int_equal(buf.cap, 64);
    assert_int_equal(ct_buf_append(&buf, "x", 1), 0);
    assert_int_equal(buf.cap, 64);
    assert_int_equal(strlen(ct_buf_cstr(&buf)), 64);
    assert_int_equal(buf.cap, 128);
    ct_buf_fini(&buf);
}

static void test_hostile_sizes_are_refused(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_buf_append(&buf, "keep", 4), 0);
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 3, SIZE_MAX - 4, SIZE_MAX / 2 + 1,
                                   SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        assert_int_equal(ct_buf_reserve(&buf, sizes[i]), CT_ENOMEM);
    }
    assert_memory_equal(ct_buf_bytes(&buf), "keep", 4);
    assert_int_equal(buf.len, 4);
    ct_buf_fini(&buf);
}

static void test_slides_instead_of_growing(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_buf_reserve(&buf, 1), 0);
    size_t cap = buf.cap;
    for (size_t i = 0; i < cap; i++) {
        assert_int_equal(ct_buf_append(&buf, &(unsigned char){(unsigned char)i}, 1), 0);
    }
    ct_buf_consume(&buf, cap - 10);
    unsigned char *before = buf.data;
    assert_int_equal(ct_buf_reserve(&buf, cap - 10), 0);
    assert_ptr_equal(buf.data, before);
    assert_int_equal(buf.cap, cap);
    assert_int_equal(buf.off, 0);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(ct_buf_bytes(&buf)[i], cap - 10 + i);
    }
    ct_buf_fini(&buf);
}

/* A reader that is always nearly full: 1000 bytes held, few pass at a time. Each move (slide or
 * growth) must buy room for many bytes, or the total work is quadratic. */
static void test_nearly_full_stream_moves_rarely(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    unsigned char next_in = 0, next_out = 0;
    for (int i = 0; i < 1000; i++, next_in++) {
        assert_int_equal(ct_buf_append(&buf, &next_in, 1), 0);
    }
    int moves = 0;
    for (int i = 0; i < 100000; i++) {
        assert_int_equal(*ct_buf_bytes(&buf), next_out++);
        ct_buf_consume(&buf, 1);
        size_t off = buf.off;
        assert_int_equal(ct_buf_append(&buf, &next_in, 1), 0);
        next_in++;
        moves += buf.off < off;
    }
    assert_true(moves <= 100000 / 500);
    assert_true(buf.cap <= 4096);
    ct_buf_fini(&buf);
}

/* Random operations against a plain array. */
static void test_random_appends_and_consumes_match_an_array(void **state)
{
    (void)state;
    static unsigned char model[1 << 16];
    size_t first = 0, last = 0;
    struct ct_buf buf = CT_BUF_INIT;
    uint32_t seed = 12345;
    while (last < sizeof(model) - 300) {
        seed = seed * 1664525u + 1013904223u;
        size_t n = (seed >> 8) % 300;
        if (seed >> 31 != 0) {
            for (size_t i = 0; i < n; i++) {
                model[last + i] = (unsigned char)(seed + i * 7);
            }
            assert_int_equal(ct_buf_append(&buf, model + last, n), 0);
            last += n;
        } else {
            n = n < last - first ? n : last - first;
            ct_buf_consume(&buf, n);
            first += n;
        }
        assert_int_equal(buf.len, last - first);
        assert_true(buf.off + buf.len <= buf.cap);
        if (buf.len > 0) {
            assert_memory_equal(ct_buf_bytes(&buf), model + first, buf.len);
        }
    }
    ct_buf_fini(&buf);
}

static int fill(void *data)
{
    (void)data;
    struct ct_buf buf = CT_BUF_INIT;
    int rc = ct_buf_append(&buf, "head", 4);
    for (int i = 0; rc == 0 && i < 100; i++) {
        size_t len = buf.len;
        rc = ct_buf_printf(&buf, "%d;", i);
        if (rc != 0) {
            /* A failed append leaves what was there. */
            assert_int_equal(buf.len, len);
            assert_memory_equal(ct_buf_bytes(&buf), "head", 4);
        }
    }
    if (rc == 0 && ct_buf_cstr(&buf) == NULL) {
        rc = CT_ENOMEM;
    }
    ct_buf_fini(&buf);
    return rc;
}

static void test_a_buffer_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(fill, NULL, 0) >= 3);
}

static int add_pieces(void *data)
{
    struct ct_buf buf = CT_BUF_INIT;
    (void)data;
    for (int i = 0; i < 40; i++) {
        ct_buf_addf(&buf, "%d,", i % 10);
        ct_buf_add(&buf, "abc", 3);
    }
    int rc = ct_buf_status(&buf);
    assert_true(rc == 0 ? buf.len == 200 : buf.len % 5 == 0 || buf.len % 5 == 2);
    size_t len = buf.len;
    ct_buf_addf(&buf, "more");
    assert_int_equal(buf.len, rc == 0 ? len + 4 : len); /* nothing follows a piece that was lost */
    ct_buf_reset(&buf);
    assert_int_equal(ct_buf_status(&buf), 0);
    ct_buf_fini(&buf);
    return rc;
}

static void test_a_lost_piece_is_remembered(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(add_pieces, NULL, 0) >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_emptied_buffer_starts_at_its_front),
        cmocka_unit_test(test_zeroed_memory_is_an_empty_buffer),
        cmocka_unit_test(test_formatted_text_ends_with_a_zero),
        cmocka_unit_test(test_a_buffer_grows_only_when_it_must),
        cmocka_unit_test(test_hostile_sizes_are_refused),
        cmocka_unit_test(test_slides_instead_of_growing),
        cmocka_unit_test(test_nearly_full_stream_moves_rarely),
        cmocka_unit_test(test_random_appends_and_consumes_match_an_array),
        cmocka_unit_test(test_a_buffer_survives_lack_of_memory),
        cmocka_unit_test(test_a_lost_piece_is_remembered),
    };
    return cmocka_run_group_tests_name("buf", tests, NULL, NULL);
}
