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

static char *draw_runs(const char *const *metrics, size_t runs, int code)
{
    struct ct_plot_source sources[CT_PLOT_RUNS_MAX];
    struct ct_buf out = CT_BUF_INIT;
    struct ct_err err = {0};
    for (size_t r = 0; r < runs; r++) {
        sources[r] = (struct ct_plot_source){r == 0 ? "first" : "<second>", strdup(metrics[r])};
    }
    int rc = ct_plot_draw(sources, runs, &out, &err);
    if (rc != code) {
        fail_msg("%d %s", rc, err.text);
    }
    char *drawing = strdup(rc == 0 ? ct_buf_cstr(&out) : err.text);
    ct_buf_fini(&out);
    for (size_t r = 0; r < runs; r++) {
        free(sources[r].text);
    }
    return drawing;
}

static char *draw(const char *metrics, int code)
{
    return draw_runs(&metrics, 1, code);
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
static void test_close_numbers_get_few_ticks(void **state)
{
    (void)state;
    char *flat = draw(EPOCH(1, 2.3025850929940455) EPOCH(2, 2.302585092994046), 0);
    assert_in_range(count(flat, "class=\"grid\""), 3, 60);
    free(flat);
    free(draw(EPOCH(1e17, 2) EPOCH(2e17, 1), CT_ENOENT));
}

#define STEP(number, loss) \
    "{\"event\":\"step\",\"step\":" #number ",\"loss\":" #loss ",\"samples_per_s\":900}\n"
#define EPOCH_AT(number, at, loss)                                                \
    "{\"event\":\"epoch\",\"epoch\":" #number ",\"step\":" #at ",\"loss\":" #loss \
    ",\"test_loss\":1,\"test_accuracy\":0.5,\"samples_per_s\":1000}\n"

static size_t points_of_line(const char *svg, int line)
{
    for (int i = 0; i <= line; i++) {
        svg = strstr(svg, "points=\"");
        assert_non_null(svg);
        svg += strlen("points=\"");
    }
    size_t commas = 0;
    for (; *svg != '"'; svg++) {
        commas += *svg == ',';
    }
    return commas;
}

static void test_the_test_loss_has_its_place_in_the_panel(void **state)
{
    (void)state;
    static const char at_70[] = "{\"event\":\"epoch\",\"epoch\":1,\"loss\":1,\"test_loss\":70,"
                                "\"test_accuracy\":0.5,\"samples_per_s\":1000}\n";
    char *svg = draw(at_70, 0), *line = svg;
    for (int i = 0; i < 2; i++) {
        line = strstr(line + 1, "points=\"");
        assert_non_null(line);
    }
    assert_true(strtod(strchr(line, ',') + 1, NULL) >= 0);
    free(svg);
}

static void test_speed_begins_at_zero(void **state)
{
    (void)state;
    char *svg = draw(EPOCH(1, 2) EPOCH(2, 1), 0);
    /* The third panel is 190 pixels high from 380 on, with 30 below its zero. */
    assert_int_equal(count(svg, "y=\"544.0\" class=\"left\">0</text>"), 1);
    free(svg);
}

static void test_steps_are_drawn_where_epochs_name_theirs(void **state)
{
    (void)state;
    char *svg =
        draw(STEP(50, 2) EPOCH_AT(1, 100, 1.5) STEP(150, 1) STEP(200, 0.9) EPOCH_AT(2, 200, 1), 0);
    assert_int_equal(points_of_line(svg, 0), 3); /* loss, of the lines of steps */
    assert_int_equal(points_of_line(svg, 1), 2); /* test loss */
    assert_int_equal(points_of_line(svg, 2), 2); /* test accuracy */
    assert_int_equal(points_of_line(svg, 3), 3); /* speed */
    assert_int_equal(count(svg, ">step</text>"), 1);
    free(svg);
    svg = draw(STEP(50, 2) EPOCH(1, 1.5) STEP(150, 1) EPOCH(2, 1), 0);
    assert_int_equal(points_of_line(svg, 0), 2);
    assert_int_equal(count(svg, ">epoch</text>"), 1);
    free(svg);
}

static void test_a_restart_draws_over_steps(void **state)
{
    (void)state;
    char *once = draw(STEP(50, 2) STEP(100, 1) EPOCH_AT(1, 100, 1.5), 0);
    char *again = draw(STEP(50, 2) STEP(100, 7) STEP(150, 8) STEP(100, 1) EPOCH_AT(1, 100, 1.5), 0);
    assert_string_equal(once, again);
    free(once);
    free(again);
}

static void test_several_runs_in_one_picture(void **state)
{
    (void)state;
    const char *const runs[2] = {EPOCH_AT(1, 100, 2) EPOCH_AT(2, 200, 1),
                                 EPOCH_AT(1, 100, 9) EPOCH_AT(2, 200, 8) EPOCH_AT(3, 300, 7)};
    char *svg = draw_runs(runs, 2, 0);
    assert_int_equal(count(svg, "<polyline"), 8);
    assert_int_equal(points_of_line(svg, 0), 2);         /* no lines of steps: the loss of epochs */
    assert_int_equal(count(svg, "stroke-dasharray"), 2); /* the test loss of each */
    assert_int_equal(count(svg, ">first</text>"), 1);
    assert_int_equal(count(svg, "&#60;second&#62;</text>"), 1);
    free(svg);
    const char *const empty[2] = {EPOCH(1, 2), "{}\n"};
    char *none = draw_runs(empty, 2, CT_ENOENT);
    assert_int_equal(count(none, "<second>: holds no lines of epochs"), 1);
    free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_a_line_for_each_series),
        cmocka_unit_test(test_every_point_lies_within_the_picture),
        cmocka_unit_test(test_a_restart_draws_over),
        cmocka_unit_test(test_one_epoch_and_none),
        cmocka_unit_test(test_close_numbers_get_few_ticks),
        cmocka_unit_test(test_the_test_loss_has_its_place_in_the_panel),
        cmocka_unit_test(test_speed_begins_at_zero),
        cmocka_unit_test(test_steps_are_drawn_where_epochs_name_theirs),
        cmocka_unit_test(test_a_restart_draws_over_steps),
        cmocka_unit_test(test_several_runs_in_one_picture),
    };
    return cmocka_run_group_tests_name("plot", tests, NULL, NULL);
}
