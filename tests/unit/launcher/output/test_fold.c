/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that equal lines of workers become one, that no line waits too long, and that no line is
 * lost or leaves before an older one of its worker.
 */
#include "tests/lib/ct_test.h"

#include "launcher/output/fold.h"

#include <stdio.h>
#include <stdlib.h>

#define WORKERS 8
#define MS INT64_C(1000000)

static struct ct_fold fold;
static struct ct_buf seen;

static int setup(void **state)
{
    (void)state;
    ct_fold_init(&fold);
    seen = (struct ct_buf)CT_BUF_INIT;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ct_fold_fini(&fold);
    ct_buf_fini(&seen);
    return 0;
}

static int add(int rank, const char *text, int64_t now_ns, void *owner)
{
    char line[64];
    int prefix_len = snprintf(line, sizeof(line), "[%d] ", rank);
    int len = snprintf(line, sizeof(line), "[%d] %s\n", rank, text);
    const struct ct_fold_line added = {
        .rank = rank,
        .first_rank = 0,
        .workers = WORKERS,
        .bytes = line,
        .len = (size_t)len,
        .prefix_len = (size_t)prefix_len,
        .owner = owner,
    };
    return ct_fold_add(&fold, &added, now_ns);
}

static void write_line(int rank, const char *text, int64_t now_ns)
{
    assert_int_equal(add(rank, text, now_ns, NULL), 0);
}

/* Appends what is due to `seen`; returns how many lines. */
static int collect(int64_t now_ns)
{
    int count = 0;
    void *owner;
    while (ct_fold_next(&fold, now_ns, &seen, &owner) == 0) {
        count++;
    }
    return count;
}

static void assert_seen(const char *text)
{
    assert_string_equal(ct_buf_cstr(&seen), text);
    ct_buf_reset(&seen);
}

static void a_line_of_all_leaves_at_once(void **state)
{
    (void)state;
    for (int rank = WORKERS - 1; rank > 0; rank--) {
        write_line(rank, "hello", rank);
        assert_int_equal(collect(10), 0);
    }
    write_line(0, "hello", 9);
    assert_int_equal(collect(10), 1);
    assert_seen("[0-7] hello\n");
    assert_int_equal(ct_fold_due_ns(&fold), INT64_MAX);
}

static void a_line_of_one_waits_for_the_window_and_keeps_its_prefix(void **state)
{
    (void)state;
    write_line(3, "alone", 5);
    assert_int_equal(ct_fold_due_ns(&fold), 5 + CT_FOLD_WINDOW_NS);
    assert_int_equal(collect(4 + CT_FOLD_WINDOW_NS), 0);
    assert_int_equal(collect(5 + CT_FOLD_WINDOW_NS), 1);
    assert_seen("[3] alone\n");
}

static void ranks_are_listed_or_counted(void **state)
{
    (void)state;
    const int some[] = {0, 1, 2, 5, 7};
    for (size_t i = 0; i < 5; i++) {
        write_line(some[i], "some", 0);
    }
    assert_int_equal(collect(INT64_MAX), 1);
    assert_seen("[0-2,5,7] some\n");

    const struct ct_fold_line base = {
        .first_rank = 1000, .bytes = "> x\n", .len = 4, .prefix_len = 2, .host = "gpu-1.lan"};
    for (int i = 0; i < 14; i += 2) {
        struct ct_fold_line line = base;
        line.rank = 1000 + i;
        assert_int_equal(ct_fold_add(&fold, &line, 0), 0);
    }
    struct ct_fold_line coloured = base;
    coloured.bytes = "> yy\n";
    coloured.len = 5; /* odd, so that a bit behind the last rank's would be set */
    coloured.colour = true;
    coloured.rank = 1000;
    assert_int_equal(ct_fold_add(&fold, &coloured, 0), 0);
    coloured.rank = 1000 + CT_FOLD_RANKS_MAX - 1;
    assert_int_equal(ct_fold_add(&fold, &coloured, 0), 0);
    assert_int_equal(collect(INT64_MAX), 2);
    assert_seen("[gpu-1:x7] x\n\x1b[0;1m[gpu-1:1000,5095]\x1b[0m yy\n");
}

static void lines_of_one_worker_never_change_places(void **state)
{
    (void)state;
    write_line(0, "a", 0);
    write_line(0, "b", 0);
    write_line(1, "b", 0); /* joins 0's */
    write_line(1, "a", 0); /* must not join 0's, which stands before */
    assert_int_equal(collect(INT64_MAX), 3);
    assert_seen("[0] a\n[0-1] b\n[1] a\n");

    write_line(0, "a", 0); /* one worker repeats itself: nothing to fold */
    write_line(0, "a", 0);
    write_line(1, "a", 0);
    write_line(1, "a", 0);
    assert_int_equal(collect(INT64_MAX), 2);
    assert_seen("[0-1] a\n[0-1] a\n");
}

static void prefixes_do_not_count_and_lengths_do(void **state)
{
    (void)state;
    write_line(0, "a", 0);
    write_line(1, "aa", 0);
    write_line(2, "", 0);
    write_line(3, "", 0);
    assert_int_equal(collect(INT64_MAX), 3);
    assert_seen("[0] a\n[1] aa\n[2-3] \n");
}

static void what_waits_is_bounded(void **state)
{
    char text[16];
    (void)state;
    for (int i = 0; i < CT_FOLD_LINES_MAX + 10; i++) {
        (void)snprintf(text, sizeof(text), "%d", i);
        write_line(0, text, 0);
    }
    assert_int_equal(collect(0), 10);
    assert_int_equal(fold.count, CT_FOLD_LINES_MAX);
    assert_int_equal(collect(INT64_MAX), CT_FOLD_LINES_MAX);

    static char big[CT_FOLD_BYTES_MAX];
    const struct ct_fold_line line = {.bytes = big, .len = sizeof(big)};
    assert_int_equal(ct_fold_add(&fold, &line, 0), 0);
    assert_int_equal(collect(0), 0);
    write_line(1, "one more", 0);
    assert_int_equal(collect(0), 1);
}

static void a_folded_line_is_the_first_ones(void **state)
{
    int a, b;
    void *owner = NULL;
    (void)state;
    assert_int_equal(add(4, "x", 0, &a), 0);
    assert_int_equal(add(5, "x", 0, &b), 0);
    assert_int_equal(ct_fold_next(&fold, INT64_MAX, &seen, &owner), 0);
    assert_ptr_equal(owner, &a);
    assert_int_equal(ct_fold_next(&fold, INT64_MAX, &seen, &owner), CT_FOLD_NONE_DUE);
}

/* Adds one line to what each of these ranks has been seen to write. */
static void expand(char *line, struct ct_buf said[WORKERS])
{
    char *text = strchr(line, ']'), *p = line + 1;
    assert_non_null(text);
    while (p < text) {
        long from = strtol(p, &p, 10), to = *p == '-' ? strtol(p + 1, &p, 10) : from;
        for (long rank = from; rank <= to; rank++) {
            assert_int_equal(ct_buf_append(&said[rank], text + 2, 1), 0);
        }
        p++;
    }
}

/* Workers write lines of few kinds at random times: each is seen once, in its order, in time. */
static void nothing_is_lost_or_late_or_out_of_order(void **state)
{
    struct ct_buf wrote[WORKERS] = {{0}}, said[WORKERS] = {{0}};
    unsigned seed = 1;
    int lines = 0;
    int64_t now_ns = 0;
    (void)state;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1103515245u + 12345u;
        int rank = (int)(seed >> 16) % WORKERS;
        char text[2] = {(char)('a' + (seed >> 24) % 3), '\0'};
        now_ns += (int64_t)(seed >> 8 & 0xff) * MS / 20;
        write_line(rank, text, now_ns);
        assert_int_equal(ct_buf_append(&wrote[rank], text, 1), 0);
        lines += collect(now_ns);
        assert_true(ct_fold_due_ns(&fold) > now_ns);
        assert_true(fold.count == 0 || ct_fold_due_ns(&fold) <= now_ns + CT_FOLD_WINDOW_NS);
    }
    lines += collect(INT64_MAX);
    assert_in_range(lines, 1, 15000); /* it does fold */
    char *copy = strdup(ct_buf_cstr(&seen)), *rest = copy, *line;
    assert_non_null(copy);
    while ((line = strsep(&rest, "\n")) != NULL && line[0] != '\0') {
        expand(line, said);
    }
    free(copy);
    for (int rank = 0; rank < WORKERS; rank++) {
        assert_string_equal(ct_buf_cstr(&said[rank]), ct_buf_cstr(&wrote[rank]));
        ct_buf_fini(&said[rank]);
        ct_buf_fini(&wrote[rank]);
    }
}

static int body(void *data)
{
    struct ct_fold own;
    struct ct_buf out = CT_BUF_INIT;
    void *owner;
    const struct ct_fold_line line = {.bytes = "> x\n", .len = 4, .prefix_len = 2};
    struct ct_fold_line other = line;
    (void)data;
    other.rank = 1;
    ct_fold_init(&own);
    int rc = ct_fold_add(&own, &line, 0);
    rc = rc != 0 ? rc : ct_fold_add(&own, &other, 0);
    rc = rc != 0 ? rc : ct_fold_next(&own, INT64_MAX, &out, &owner);
    ct_fold_fini(&own);
    ct_buf_fini(&out);
    return rc;
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(body, NULL, 0) > 0);
    ct_fold_fini(NULL);
    struct ct_fold zero = {0};
    ct_fold_fini(&zero);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_line_of_all_leaves_at_once),
        TEST(a_line_of_one_waits_for_the_window_and_keeps_its_prefix),
        TEST(ranks_are_listed_or_counted),
        TEST(lines_of_one_worker_never_change_places),
        TEST(prefixes_do_not_count_and_lengths_do),
        TEST(what_waits_is_bounded),
        TEST(a_folded_line_is_the_first_ones),
        TEST(nothing_is_lost_or_late_or_out_of_order),
        TEST(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
