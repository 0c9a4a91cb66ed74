/* SPDX-License-Identifier: Apache-2.0
 *
 * The drawing of --plot, and files that it cannot draw.
 */
#include "tests/lib/ct_test.h"
#include "trainer/show/plot.h"

#include <stdlib.h>

#define EPOCH(number, loss)                                                          \
    "{\"event\":\"epoch\",\"epoch\":" #number ",\"loss\":" #loss ",\"test_loss\":1," \
    "\"test_accuracy\":0.5,\"samples_per_s\":1000}\n"

static size_t count(const char *text, const char *what)
{
    size_t found = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p++) {
        found++;
    }
    return found;
}

static char *draw(const char *metrics, int code)
{
    char *text = strdup(metrics);
    struct ct_buf out = CT_BUF_INIT;
    struct ct_err err = {0};
    int rc = ct_plot_draw(text, &out, &err);
    if (rc != code) {
        fail_msg("%d %s", rc, err.text);
    }
    char *drawing = strdup(rc == 0 ? ct_buf_cstr(&out) : err.text);
    ct_buf_fini(&out);
    free(text);
    return drawing;
}

static void test_draws_a_line_for_each_series(void **state)
{
    (void)state;
    char *svg = draw(EPOCH(1, 2) EPOCH(2, 1) EPOCH(3, 0.5), 0);
    assert_int_equal(count(svg, "<polyline"), 4);
    assert_int_equal(count(svg, "nan") + count(svg, "inf"), 0);
    /* The first and the last epoch stand at the edges. */
    assert_int_equal(count(svg, "points=\"80.0,"), 4);
    assert_int_equal(count(svg, " 700.0,"), 4);
    free(svg);
}

static void test_every_point_lies_within_the_picture(void **state)
{
    (void)state;
    static const char *const metrics[] = {EPOCH(1, 9) EPOCH(2, 1) EPOCH(3, 0.5),
                                          EPOCH(1, 1) EPOCH(2, 9) EPOCH(3, -0.5),
                                          EPOCH(1, 1) EPOCH(2, 2) EPOCH(3, 9)};
    for (size_t m = 0; m < 3; m++) {
        char *svg = draw(metrics[m], 0);
        const char *size = strstr(svg, "viewBox=\"0 0 ");
        assert_non_null(size);
        char *end;
        double width = strtod(size + strlen("viewBox=\"0 0 "), &end), height = strtod(end, NULL);
        for (char *p = svg; (p = strstr(p, "points=\"")) != NULL;) {
            p += strlen("points=\"");
            while (*p != '"') {
                double x = strtod(p, &p);
                double y = strtod(p + 1, &p);
                assert_true(x >= 0 && x <= width && y >= 0 && y <= height);
                p += *p == ' ';
            }
        }
        free(svg);
    }
}

static void test_a_restart_draws_over(void **state)
{
    (void)state;
    char *once = draw(EPOCH(1, 2) EPOCH(2, 1) EPOCH(3, 0.5), 0);
    char *again =
        draw(EPOCH(1, 2) EPOCH(2, 7) EPOCH(3, 9) "{\"event\":\"done\"}\nno JSON\n\n" EPOCH(
                 2, 1) "[]\n" EPOCH(3, 0.5) "{\"event\":\"epo",
             0);
    assert_string_equal(once, again);
    free(once);
    free(again);
}

static void test_one_epoch_and_none(void **state)
{
    (void)state;
    char *one = draw(EPOCH(4, 0), 0);
    assert_int_equal(count(one, "nan") + count(one, "inf"), 0);
    free(one);
    char *none = draw("{\"event\":\"epoch\",\"epoch\":1}\n", CT_ENOENT);
    assert_int_equal(count(none, "no lines of epochs"), 1);
    free(none);
    free(draw("", CT_ENOENT));
}

/* Numbers that are too close for what lies between them: once ticks without end. */
static void test_hardly_any_difference(void **state)
{
    (void)state;
    char *flat = draw(EPOCH(1, 2.3025850929940455) EPOCH(2, 2.302585092994046), 0);
    assert_in_range(count(flat, "class=\"grid\""), 3, 60);
    free(flat);
    free(draw(EPOCH(1e17, 2) EPOCH(2e17, 1), CT_ENOENT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_a_line_for_each_series),
        cmocka_unit_test(test_every_point_lies_within_the_picture),
        cmocka_unit_test(test_a_restart_draws_over),
        cmocka_unit_test(test_one_epoch_and_none),
        cmocka_unit_test(test_hardly_any_difference),
    };
    return cmocka_run_group_tests_name("plot", tests, NULL, NULL);
}
