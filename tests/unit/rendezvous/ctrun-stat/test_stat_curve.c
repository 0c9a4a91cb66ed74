/* SPDX-License-Identifier: Apache-2.0
 *
 * The curve of the loss: which losses count, how they are drawn, and that it fits.
 */
#include "tests/lib/ct_test.h"

#include "common/text.h"
#include "rendezvous/ctrun-stat/stat_curve.h"
#include "rendezvous/http/page_history.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>

static struct ct_page_history losses;
static char line[CT_STAT_CURVE_MAX];

static int setup(void **state)
{
    (void)state;
    losses = (struct ct_page_history){0};
    return 0;
}

static void add_text(const char *document)
{
    cJSON *status = cJSON_Parse(document);
    assert_non_null(status);
    ct_stat_curve_add(&losses, status);
    cJSON_Delete(status);
}

static void add(double loss)
{
    char document[256];
    (void)snprintf(document, sizeof(document),
                   "{\"job\":{\"workers\":[{\"rank\":0,\"progress\":{\"loss\":%.17g}}]}}", loss);
    add_text(document);
}

static void the_largest_block_is_the_highest_loss(void **state)
{
    (void)state;
    ct_stat_curve_print(&losses, 80, line);
    assert_string_equal(line, "");
    add(8);
    ct_stat_curve_print(&losses, 80, line);
    assert_string_equal(line, "");
    for (int loss = 7; loss > 0; loss--) {
        add(loss);
    }
    ct_stat_curve_print(&losses, 80, line);
    assert_string_equal(line, "loss 8 █▇▆▅▄▃▂▁ 1");
}

static void equal_losses_are_a_line(void **state)
{
    (void)state;
    add(-0.25);
    add(-0.25);
    add(-0.25);
    ct_stat_curve_print(&losses, 80, line);
    assert_string_equal(line, "loss -0.25 ▁▁▁ -0.25");
}

/* All that came before is still in it, but in fewer columns. */
static void a_long_watch_fits(void **state)
{
    (void)state;
    for (int i = 0; i < 3000; i++) {
        add(-1.234e+96 * i);
    }
    for (size_t columns = 0; columns < 200; columns++) {
        char fitted[CT_STAT_CURVE_MAX];
        ct_stat_curve_print(&losses, columns, line);
        assert_true(ct_text_fit(line, SIZE_MAX, fitted, sizeof(fitted)) <= columns);
        assert_string_equal(line, fitted);
        assert_true(columns < 40 || strstr(line, " █") != NULL);
    }
}

static void the_lowest_rank_that_tells_a_loss_counts(void **state)
{
    static const char document[] =
        "{\"job\":{\"workers\":[{\"rank\":3,\"progress\":{\"loss\":3}},{\"rank\":0},"
        "{\"rank\":1,\"progress\":{\"loss\":null}},{\"rank\":2,\"progress\":{\"loss\":2}}]}}";
    (void)state;
    add_text(document);
    add_text(document);
    ct_stat_curve_print(&losses, 80, line);
    assert_string_equal(line, "loss 2 ▁▁ 2");
}

static void strange_documents_add_nothing(void **state)
{
    static const char *const documents[] = {
        "7",
        "{\"job\":[]}",
        "{\"job\":{\"workers\":7}}",
        "{\"job\":{\"workers\":[7,{\"progress\":{\"loss\":1}}]}}",
        "{\"job\":{\"workers\":[{\"rank\":0,\"progress\":{\"loss\":1e999}}]}}",
        "{\"job\":{\"workers\":[{\"rank\":0,\"progress\":{\"loss\":-1e300}}]}}",
        "{\"jobs\":[{\"workers\":[{\"rank\":0,\"progress\":{\"loss\":1}}]},{}]}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        add_text(documents[i]);
        assert_int_equal(losses.count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_largest_block_is_the_highest_loss, setup),
        cmocka_unit_test_setup(equal_losses_are_a_line, setup),
        cmocka_unit_test_setup(a_long_watch_fits, setup),
        cmocka_unit_test_setup(the_lowest_rank_that_tells_a_loss_counts, setup),
        cmocka_unit_test_setup(strange_documents_add_nothing, setup),
    };
    return cmocka_run_group_tests_name("stat_curve", tests, NULL, NULL);
}
