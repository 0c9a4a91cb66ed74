/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that each screen of help is small, that every option stands in one topic, and that a word
 * leads to the options that are meant.
 */
#include "tests/lib/ct_test.h"

#include "common/exit_code.h"
#include "launcher/cli/help.h"
#include "launcher/cli/option_table.h"

#include <stdio.h>
#include <string.h>

static const char *const topics[] = {NULL,        "job",   "restart",  "hang", "output",
                                     "nodes",     "hosts", "binding",  "gpu",  "torchrun",
                                     "arguments", "codes", "programs", "all"};
#define TOPICS (sizeof(topics) / sizeof(topics[0]))

static int body(void *data)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_help_print(data, &text);
    ct_buf_fini(&text);
    return rc;
}

static bool stands_in(const char *help, const struct ct_option_spec *spec)
{
    char name[80];
    (void)snprintf(name, sizeof(name), "--%s%s", spec->name,
                   spec->after_equals      ? "["
                   : spec->metavar != NULL ? " "
                                           : "\n");
    return strstr(help, name) != NULL;
}

static void each_screen_is_no_bigger_than_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < TOPICS; i++) {
        struct ct_buf text = CT_BUF_INIT;
        size_t lines = 0;
        assert_int_equal(ct_help_print(topics[i], &text), 0);
        for (const char *line = ct_buf_cstr(&text); *line != '\0';
             line += strcspn(line, "\n") + 1, lines++) {
            assert_in_range(strcspn(line, "\n"), 0, 80);
        }
        if (i == 0) {
            assert_in_range(lines, 24, 40);
        } else if (i < TOPICS - 1) {
            assert_in_range(lines, 4, 50);
        }
        ct_buf_fini(&text);
        assert_true(ct_fault_sweep(body, (void *)topics[i], 0) > 0);
    }
}

static void every_option_stands_in_one_topic_and_in_all(void **state)
{
    (void)state;
    for (size_t k = 0; k < ct_option_count; k++) {
        const struct ct_option_spec *spec = &ct_option_table[k];
        size_t found = 0;
        for (size_t i = 1; i < TOPICS; i++) {
            struct ct_buf text = CT_BUF_INIT;
            assert_int_equal(ct_help_print(topics[i], &text), 0);
            found += stands_in(ct_buf_cstr(&text), spec);
            ct_buf_fini(&text);
        }
        if (found != (spec->help != NULL ? 2 : 0)) {
            fail_msg("--%s stands %zu times in the topics", spec->name, found);
        }
    }
}

static void the_overview_names_all_topics_and_the_usual_options(void **state)
{
    struct ct_buf text = CT_BUF_INIT, words = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_help_print(NULL, &text), 0);
    ct_help_topics(&words);
    for (size_t i = 1; i < TOPICS; i++) {
        char line[32], word[32];
        (void)snprintf(line, sizeof(line), "\n  %s ", topics[i]);
        (void)snprintf(word, sizeof(word), " %s", topics[i]);
        bool is_all = i == TOPICS - 1;
        assert_int_equal(strstr(ct_buf_cstr(&text), line) != NULL, !is_all);
        assert_int_equal(strstr(ct_buf_cstr(&words), word) != NULL, !is_all);
    }
    size_t count = 0;
    for (const char *p = ct_buf_cstr(&words); (p = strchr(p, ' ')) != NULL; p++) {
        count++;
    }
    assert_int_equal(count, TOPICS - 2); /* neither none nor all */
    for (size_t k = 0; k < ct_option_count; k++) {
        const char *brief = ct_option_table[k].brief;
        assert_true(brief == NULL || strstr(ct_buf_cstr(&text), brief) != NULL);
    }
    assert_non_null(strstr(ct_buf_cstr(&text), "\n  --detach "));
    assert_non_null(strstr(ct_buf_cstr(&text), "\n  --attach [JOB] "));
    ct_buf_fini(&text);
    ct_buf_fini(&words);
}

static void one_option_by_its_name(void **state)
{
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    assert_true(ct_help_knows("log-dir") && ct_help_knows("log_dir") && ct_help_knows("gpu"));
    assert_false(ct_help_knows("log-dirs") || ct_help_knows("") || ct_help_knows("x"));
    assert_false(ct_help_knows("run-path")); /* refused */
    assert_true(ct_help_knows("${rank}") && ct_help_knows("$local_rank"));
    assert_int_equal(ct_help_print("${rank}", &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), "${port:NAME}"));
    ct_buf_reset(&text);
    assert_int_equal(ct_help_print("log_dir", &text), 0);
    assert_memory_equal(ct_buf_cstr(&text), "  --log-dir DIR\n        folder", 30);
    ct_buf_fini(&text);
}

static void an_option_may_be_typed_as_on_the_command_line(void **state)
{
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    assert_true(ct_help_knows("--warm") && ct_help_knows("--log_dir") && ct_help_knows("-n"));
    assert_false(ct_help_knows("--gpu") || ct_help_knows("-warm") || ct_help_knows("-nn") ||
                 ct_help_knows("-") || ct_help_knows("--") || ct_help_knows("-~"));
    assert_int_equal(ct_help_print("--warm", &text), 0);
    assert_memory_equal(ct_buf_cstr(&text), "  --warm[=N]\n", 13);
    ct_buf_reset(&text);
    assert_int_equal(ct_help_print("-n", &text), 0);
    assert_memory_equal(ct_buf_cstr(&text), "  -n, --nproc-per-node", 22);
    ct_buf_fini(&text);
}

static void a_word_without_help_leads_to_the_nearest(void **state)
{
    static const char *const rows[][2] = {
        {"arm", "warm"},       {"ouput", "output"},     {"max-restrats", "max-restarts"},
        {"gpux", "gpu"},       {"failovr", "failover"}, /* about the option --rdzv-conf */
        {"prempt", "preempt"},                          /* a word of one option's name */
        {"timout", "timeout"},                          /* of several */
    };
    char kept[CT_HELP_WORD_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *nearest = ct_help_nearest(rows[i][0], kept);
        if (nearest == NULL || strcmp(nearest, rows[i][1]) != 0) {
            fail_msg("%s: %s", rows[i][0], nearest != NULL ? nearest : "none");
        }
        assert_false(ct_help_knows(rows[i][0]));
        assert_true(ct_help_knows(nearest));
    }
    assert_null(ct_help_nearest("yoghurt", kept));
    assert_null(ct_help_nearest("", kept));
    assert_false(ct_help_knows("yoghurt") || ct_help_knows(""));
}

static void check_found(const char *word, const char *const *there, const char *const *not_there)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_true(ct_help_knows(word));
    assert_int_equal(ct_help_print(word, &text), 0);
    for (; *there != NULL; there++) {
        if (strstr(ct_buf_cstr(&text), *there) == NULL) {
            fail_msg("%s: '%s' is not in '%s'", word, *there, ct_buf_cstr(&text));
        }
    }
    for (; *not_there != NULL; not_there++) {
        if (strstr(ct_buf_cstr(&text), *not_there) != NULL) {
            fail_msg("%s: '%s' is in '%s'", word, *not_there, ct_buf_cstr(&text));
        }
    }
    ct_buf_fini(&text);
    assert_true(ct_fault_sweep(body, (void *)word, 0) > 0);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static const char *const nothing[] = {NULL};

static void a_word_finds_the_options_that_have_it(void **state)
{
    (void)state;
    check_found("timeout", WORDS("  --hang-timeout SEC", "  --shutdown-timeout SEC"),
                WORDS("--nproc-per-node N"));
    check_found("TIMEOUT", WORDS("  --hang-timeout SEC"), WORDS("--nproc-per-node N"));
    /* "port" is no word of "report". The value ${port:NAME} is a text and no option. */
    check_found("port", WORDS("  --master-port PORT", "\nSee also: ctrun --help arguments, "),
                WORDS("--report FILE"));
    check_found("max_rest", WORDS("  --max-restarts N"), WORDS("--nproc-per-node N"));
    /* A line break in a text is a blank. */
    check_found("spans and counters", WORDS("  --trace FILE"), WORDS("--report FILE"));
    /* What no text has, but people look for. */
    check_found("failover", WORDS("  --rdzv-conf "), WORDS("--nproc-per-node N"));
    check_found("etcd", WORDS("  --rdzv-backend static|c10d|etcd", "  --rdzv-endpoint "),
                WORDS("--nproc-per-node N"));
    check_found("nohup", WORDS("  --detach\n"), WORDS("--nproc-per-node N"));
    /* No option has it: what the texts have is shown, below the title. */
    check_found(
        "status",
        WORDS("programs: ctrun-stat and the other programs\n\n  ctrun-stat  shows the status",
              "yours on this machine", "\n\nSee also: ctrun --help codes\n"),
        WORDS("ctrdzvd", "118", "manual page"));
    check_found("queue", WORDS("codes: ", "  119 ", "(--no-restart-on, --max-no-progress)\n"),
                WORDS("  118 ", "  120 ", "See also"));
    check_found("quotes", WORDS("arguments: ", "Other names stay as they are"),
                WORDS("${port:NAME}"));
    /* Nothing has it, but a topic is about it. */
    check_found("retry", WORDS("restart: ", "  --max-restarts N"), WORDS("See also"));
    check_found("ctrdzvd", WORDS("programs: ctrun-stat"), WORDS("See also"));
}

static void exit_codes_have_a_topic(void **state)
{
    static const char *const words[] = {"codes", "code", "exit", "exit-code", "exit codes"};
    static const int codes[] = {
        CT_EXIT_OK,         CT_EXIT_SETUP,          CT_EXIT_USAGE,     CT_EXIT_UNFIT,
        CT_EXIT_NO_REQUEUE, CT_EXIT_RDZV_TIMEOUT,   CT_EXIT_NODE_LOST, CT_EXIT_HUNG,
        CT_EXIT_PREEMPTED,  CT_EXIT_NOT_EXECUTABLE, CT_EXIT_NOT_FOUND, CT_EXIT_SIGNAL_BASE,
    };
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        check_found(words[i], WORDS("codes: "), WORDS("See also"));
    }
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        char line[16];
        (void)snprintf(line, sizeof(line), "\n  %d ", codes[i]);
        check_found("codes", WORDS(line), nothing);
    }
}

/* Whoever adds a word to the list must not lead people to help that there is not. */
static void each_word_leads_to_help(void **state)
{
    static const char *const words[] = {
        "failover", "elastic", "spare",   "ssh",    "retry",      "retries", "signal",
        "stop",     "log",     "logs",    "files",  "page",       "stacks",  "slow",
        "numa",     "cpu",     "cpus",    "cuda",   "port",       "ports",   "rank",
        "store",    "workers", "program", "status", "ctrun-stat",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        struct ct_buf text = CT_BUF_INIT;
        assert_true(ct_help_knows(words[i]));
        assert_int_equal(ct_help_print(words[i], &text), 0);
        assert_true(text.len > 0);
        ct_buf_fini(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_screen_is_no_bigger_than_one),
        cmocka_unit_test(every_option_stands_in_one_topic_and_in_all),
        cmocka_unit_test(the_overview_names_all_topics_and_the_usual_options),
        cmocka_unit_test(one_option_by_its_name),
        cmocka_unit_test(an_option_may_be_typed_as_on_the_command_line),
        cmocka_unit_test(a_word_without_help_leads_to_the_nearest),
        cmocka_unit_test(a_word_finds_the_options_that_have_it),
        cmocka_unit_test(exit_codes_have_a_topic),
        cmocka_unit_test(each_word_leads_to_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
