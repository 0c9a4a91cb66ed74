/* SPDX-License-Identifier: Apache-2.0
 *
 * The known name that a mistyped one is nearest to.
 */
#include "common/suggest.h"
#include "tests/lib/ct_test.h"

#include <string.h>

static const char *suggested(const char *typed)
{
    static const char *const names[] = {
        "nproc-per-node", "nnodes",      "max-restarts", "min-restarts",
        "batch-size",     "base-batch",  "lr",           "tee",
        "role",           "master-addr", "master-port",  "rdzv-id"};
    struct ct_suggestion s = ct_suggestion_for(typed, strlen(typed));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ct_suggestion_offer(&s, names[i]);
    }
    return s.name;
}

static void a_typing_error_finds_the_name(void **state)
{
    static const struct {
        const char *typed, *name;
    } rows[] = {
        {"max-restart", "max-restarts"},
        {"max-retsarts", "max-restarts"},
        {"maxrestarts", "max-restarts"},
        {"MAX_RESTARTZ", "max-restarts"},
        {"batchsize", "batch-size"},
        {"batch-zise", "batch-size"},
        {"nproc-pernode", "nproc-per-node"},
        {"npoc-per-nod", "nproc-per-node"},
        {"nnode", "nnodes"},
        {"rloe", "role"},
        {"tea", "tee"},
        {"master-adr", "master-addr"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(suggested(rows[i].typed), rows[i].name);
    }
}

static void what_is_far_from_all_names_gets_no_suggestion(void **state)
{
    static const char *const words[] = {"",           "x",      "l", "zz", "learning-rate",
                                        "frobnicate", "verbose"};
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        assert_null(suggested(words[i]));
    }
}

static void the_first_of_equally_near_names_stays(void **state)
{
    (void)state;
    assert_string_equal(suggested("mim-restarts"), "min-restarts");
    assert_string_equal(suggested("mmx-restarts"), "max-restarts");
    assert_string_equal(suggested("m-restarts"), "max-restarts");
}

static void only_the_given_length_of_the_word_counts(void **state)
{
    (void)state;
    struct ct_suggestion s = ct_suggestion_for("nnode=4", strlen("nnode"));
    ct_suggestion_offer(&s, "nnodes");
    assert_string_equal(s.name, "nnodes");
}

static void overlong_words_are_left_alone(void **state)
{
    (void)state;
    char word[CT_SUGGEST_MAX_LEN + 2];
    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    struct ct_suggestion s = ct_suggestion_for(word, strlen(word));
    ct_suggestion_offer(&s, word + 1);
    assert_null(s.name);
    s = ct_suggestion_for(word + 1, strlen(word + 1));
    ct_suggestion_offer(&s, word);
    assert_null(s.name);
    ct_suggestion_offer(&s, word + 2);
    assert_ptr_equal(s.name, word + 2);
    ct_suggestion_offer(&s, word + 1); /* exactly the limit */
    assert_ptr_equal(s.name, word + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_typing_error_finds_the_name),
        cmocka_unit_test(what_is_far_from_all_names_gets_no_suggestion),
        cmocka_unit_test(the_first_of_equally_near_names_stays),
        cmocka_unit_test(only_the_given_length_of_the_word_counts),
        cmocka_unit_test(overlong_words_are_left_alone),
    };
    return cmocka_run_group_tests_name("suggest", tests, NULL, NULL);
}
