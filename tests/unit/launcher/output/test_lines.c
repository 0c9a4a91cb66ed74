/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that workers' bytes become whole lines with a prefix, whatever the pieces in which they
 * arrive, and that the last lines are kept for the report, harmless for a terminal.
 */
#include "launcher/output/lines.h"

#include "tests/lib/ct_test.h"

#include <stdlib.h>

/* Feeds `in` in pieces of `step` bytes and finishes; the caller frees the text. */
static char *through(enum ct_lines_mode mode, const char *prefix, const char *in, size_t len,
                     size_t step)
{
    struct ct_lines lines;
    struct ct_buf out = CT_BUF_INIT;
    ct_lines_init(&lines, mode, prefix);
    for (size_t at = 0; at < len; at += step) {
        size_t n = len - at < step ? len - at : step;
        assert_int_equal(ct_lines_feed(&lines, in + at, n, &out), 0);
    }
    assert_int_equal(ct_lines_finish(&lines, &out), 0);
    char *text = strdup(ct_buf_cstr(&out));
    ct_buf_fini(&out);
    ct_lines_fini(&lines);
    return text;
}

static void expect(enum ct_lines_mode mode, const char *in, const char *want)
{
    /* Where the pieces of a stream are cut must never show. */
    for (size_t step = 1; step <= strlen(in) + 1; step++) {
        char *text = through(mode, "[3] ", in, strlen(in), step);
        assert_string_equal(text, want);
        free(text);
    }
}

static void test_whole_lines_get_the_prefix(void **state)
{
    (void)state;
    expect(CT_LINES_PLAIN, "one\ntwo\n\nlast", "[3] one\n[3] two\n[3] \n[3] last\n");
    expect(CT_LINES_PLAIN, "", "");
    expect(CT_LINES_PLAIN, "dos\r\nx\r\n", "[3] dos\n[3] x\n");
    expect(CT_LINES_RAW, "as\r\nit\ris", "as\r\nit\ris");
    expect(CT_LINES_TAIL_ONLY, "nothing\nleaves", "");
}

static void test_part_of_a_line_waits(void **state)
{
    (void)state;
    struct ct_lines lines;
    struct ct_buf out = CT_BUF_INIT;
    ct_lines_init(&lines, CT_LINES_PLAIN, "[0] ");
    assert_int_equal(ct_lines_feed(&lines, "half", 4, &out), 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(ct_lines_feed(&lines, " done\nnext", 10, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), "[0] half done\n");
    ct_buf_fini(&out);
    ct_lines_fini(&lines);
}

static void test_a_progress_bar_replaces_itself_on_a_terminal(void **state)
{
    (void)state;
    expect(CT_LINES_PLAIN, "\r1%\r2%\ndone\n", "[3] \r1%\r2%\n[3] done\n");
    /* Each segment replaces the one before and erases what is longer. */
    expect(CT_LINES_TERMINAL, "\r10%\r20%\nend\n", "[3] 10%\x1b[K\r[3] 20%\x1b[K\n[3] end\n");
    expect(CT_LINES_TERMINAL, "a\r\nb\n", "[3] a\n[3] b\n");
    expect(CT_LINES_TERMINAL, "50%\r", "[3] 50%\n");
}

static void test_endless_line_leaves_in_pieces(void **state)
{
    (void)state;
    const size_t len = 2 * CT_LINES_MAX + 5;
    char *in = malloc(len);
    memset(in, 'x', len);
    for (size_t step = 1000; step < 3 * CT_LINES_MAX; step += 40000) {
        char *text = through(CT_LINES_PLAIN, "", in, len, step);
        assert_int_equal(strlen(text), len + 3);
        assert_int_equal(text[CT_LINES_MAX], '\n');
        assert_int_equal(text[2 * CT_LINES_MAX + 1], '\n');
        free(text);
    }
    /* The last piece ends where the line does. */
    memcpy(in + len - 3, "\nyy", 3);
    char *text = through(CT_LINES_PLAIN, "", in, len, len);
    assert_int_equal(strlen(text), len + 3);
    assert_string_equal(text + 2 * CT_LINES_MAX + 2, "xx\nyy\n");
    free(text);
    free(in);
}

static char *tail_of(const char *in, size_t len, size_t step)
{
    struct ct_lines lines;
    struct ct_buf out = CT_BUF_INIT;
    struct ct_buf tail = CT_BUF_INIT;
    ct_lines_init(&lines, CT_LINES_TAIL_ONLY, "");
    for (size_t at = 0; at < len; at += step) {
        size_t n = len - at < step ? len - at : step;
        assert_int_equal(ct_lines_feed(&lines, in + at, n, &out), 0);
    }
    assert_int_equal(ct_lines_tail(&lines, "| ", &tail), 0);
    assert_true(lines.tail.len <= 2 * CT_LINES_TAIL_BYTES);
    char *text = strdup(ct_buf_cstr(&tail));
    ct_buf_fini(&tail);
    ct_buf_fini(&out);
    ct_lines_fini(&lines);
    return text;
}

static void expect_tail(const char *in, const char *want)
{
    char *text = tail_of(in, strlen(in), 3);
    assert_string_equal(text, want);
    free(text);
}

static void test_tail_is_harmless(void **state)
{
    (void)state;
    expect_tail("", "");
    expect_tail("\n", "| \n");
    expect_tail("\na", "| \n| a\n");
    expect_tail("one\ntwo", "| one\n| two\n");
    expect_tail("1%\r2%\r\nx\r\n", "| 2%\n| x\n");
    expect_tail("\x1b[1;31mred\x1b[0m \x1b]0;title\x07ok\x1b(B", "| red okB\n");
    expect_tail("\x1b[2@two\x1b[~ ends\x1b[A.", "| two ends.\n");
    expect_tail("bell\x07 nul tab\t.", "| bell? nul tab\t.\n");
    expect_tail("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x9a\x80",
                "| gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x9a\x80\n");
    /* Overlong, surrogate, beyond the last plane, lone byte, cut short, C1 control. */
    expect_tail("\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\x80|\xe2\x82", "| ??|???|????|?|??\n");
    expect_tail("\xc2\x9b"
                "31m",
                "| ?31m\n");
}

static void test_tail_keeps_the_last_lines(void **state)
{
    (void)state;
    struct ct_buf in = CT_BUF_INIT;
    struct ct_buf want = CT_BUF_INIT;
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(ct_buf_printf(&in, "line %d\n", i), 0);
        if (i >= 5000 - CT_LINES_TAIL) {
            assert_int_equal(ct_buf_printf(&want, "| line %d\n", i), 0);
        }
    }
    for (size_t step = 1; step < 100000; step = step * 7 + 1) {
        char *text = tail_of((const char *)ct_buf_bytes(&in), in.len, step);
        assert_string_equal(text, ct_buf_cstr(&want));
        free(text);
    }
    ct_buf_fini(&in);
    ct_buf_fini(&want);
}

static void test_tail_of_a_long_line_is_its_end(void **state)
{
    (void)state;
    const size_t len = 100000;
    char *in = malloc(len);
    memset(in, 'x', len);
    memcpy(in + len - 8, "the end\n", 8);
    char *text = tail_of(in, len, 777);
    assert_memory_equal(text, "| ...xx", 7);
    assert_string_equal(text + strlen(text) - 8, "the end\n");
    assert_int_equal(strlen(text), 2 + 3 + CT_LINES_TAIL_LINE + 1);
    free(text);
    /* A character whose beginning was cut off is not shown as garbage. */
    memset(in, 'x', len);
    for (size_t i = 0; i + 1 < len; i += 2) {
        memcpy(in + i, "\xc3\xbc", 2);
    }
    in[0] = 'y';
    in[len - 1] = 'z';
    text = tail_of(in + 1, len - 1, 512);
    assert_null(strstr(text, "...?"));
    free(text);
    free(in);
}

static void test_line_whose_beginning_is_gone_says_so(void **state)
{
    (void)state;
    const size_t line = 1001;
    const size_t len = 40 * line;
    char *in = malloc(len);
    for (size_t i = 0; i < len; i++) {
        in[i] = i % line == line - 1 ? '\n' : 'x';
    }
    char *text = tail_of(in, len, len);
    assert_memory_equal(text, "| ...x", 6);
    assert_int_equal(strchr(text, '\n') - text, 2 + 3 + CT_LINES_TAIL_BYTES % line - 1);
    free(text);
    free(in);
}

static void test_a_prefix_has_the_rank_and_its_colour(void **state)
{
    (void)state;
    char prefix[CT_LINES_PREFIX_MAX];
    ct_lines_prefix(NULL, 12, false, prefix);
    assert_string_equal(prefix, "[12] ");
    ct_lines_prefix(NULL, 0, true, prefix);
    assert_string_equal(prefix, "\x1b[0;36m[0]\x1b[0m ");
    ct_lines_prefix(NULL, 11, true, prefix); /* after ten ranks the colours come again */
    assert_string_equal(prefix, "\x1b[0;33m[11]\x1b[0m ");
    ct_lines_prefix("gpu-4.cluster.example", 7, false, prefix);
    assert_string_equal(prefix, "[gpu-4:7] ");
    ct_lines_prefix("gpu-4", 7, true, prefix);
    assert_string_equal(prefix, "\x1b[0;92m[gpu-4:7]\x1b[0m ");
    ct_lines_prefix(NULL, 2147483647, true, prefix);
    assert_non_null(strstr(prefix, "[2147483647]\x1b[0m "));
    int rank = -1;
    size_t len = 0;
    assert_true(ct_lines_read_prefix("[gpu-4:7] a]: b", 15, &rank, &len));
    assert_int_equal(rank, 7);
    assert_int_equal(len, 10);
    assert_true(ct_lines_read_prefix("[12] ", 5, &rank, &len));
    assert_int_equal(rank, 12);
    assert_int_equal(len, 5);
    assert_true(ct_lines_read_prefix("[fe80::1:0] x", 13, &rank, &len));
    assert_int_equal(rank, 0);
    static const char *const none[] = {
        "",
        "[",
        "[12]",
        "[12]x",
        "[] ",
        "[a:] ",
        "[a] ",
        "x[1] ",
        "[-1] ",
        "[1 ] ",
        "[1:x] ",
        "[99999999999999999999] ",
        "[2147483648] ",
    };
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        assert_false(ct_lines_read_prefix(none[i], strlen(none[i]), &rank, &len));
    }
    assert_false(ct_lines_read_prefix("[12] ", 4, &rank, &len)); /* cut */
    assert_true(ct_lines_colour(true, "xterm", NULL));
    assert_true(ct_lines_colour(true, "xterm", ""));
    assert_false(ct_lines_colour(true, "xterm", "1"));
    assert_false(ct_lines_colour(true, "dumb", NULL));
    assert_false(ct_lines_colour(true, NULL, NULL));
    assert_false(ct_lines_colour(false, "xterm", NULL));
}

static int feed_all(void *data)
{
    (void)data;
    struct ct_lines lines;
    struct ct_buf out = CT_BUF_INIT;
    struct ct_buf tail = CT_BUF_INIT;
    static char big[CT_LINES_MAX + 10];
    memset(big, 'b', sizeof(big));
    ct_lines_init(&lines, CT_LINES_TERMINAL, "[1] ");
    int rc = ct_lines_feed(&lines, "half\rof", 7, &out);
    rc = rc != 0 ? rc : ct_lines_feed(&lines, big, sizeof(big), &out);
    rc = rc != 0 ? rc : ct_lines_finish(&lines, &out);
    rc = rc != 0 ? rc : ct_lines_tail(&lines, "  ", &tail);
    /* Whatever failed, the object still works. */
    if (rc != 0) {
        assert_true(ct_lines_feed(&lines, "x\n", 2, &out) == 0);
    }
    ct_buf_fini(&tail);
    ct_buf_fini(&out);
    ct_lines_fini(&lines);
    return rc;
}

static void test_lines_survive_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(feed_all, NULL, 0) >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_lines_get_the_prefix),
        cmocka_unit_test(test_part_of_a_line_waits),
        cmocka_unit_test(test_a_progress_bar_replaces_itself_on_a_terminal),
        cmocka_unit_test(test_endless_line_leaves_in_pieces),
        cmocka_unit_test(test_tail_is_harmless),
        cmocka_unit_test(test_tail_keeps_the_last_lines),
        cmocka_unit_test(test_tail_of_a_long_line_is_its_end),
        cmocka_unit_test(test_line_whose_beginning_is_gone_says_so),
        cmocka_unit_test(test_a_prefix_has_the_rank_and_its_colour),
        cmocka_unit_test(test_lines_survive_lack_of_memory),
    };
    return cmocka_run_group_tests_name("lines", tests, NULL, NULL);
}
