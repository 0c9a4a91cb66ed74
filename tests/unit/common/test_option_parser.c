/* SPDX-License-Identifier: Apache-2.0
 *
 * One table of options, many command lines.
 */
#include "common/option_parser.h"
#include "tests/lib/ct_test.h"

#include <stdio.h>

static struct ct_option option_at(size_t index)
{
    static const struct ct_option table[] = {
        {.name = "verbose", .letter = 'v'},
        {.name = "number", .letter = 'n', .alias = "np", .value = CT_VALUE_NEEDED},
        {.name = "log-dir", .value = CT_VALUE_NEEDED},
        {.name = "log-level", .value = CT_VALUE_NEEDED},
        {.name = "log-line", .value = CT_VALUE_NEEDED},
        {.name = "nodes", .value = CT_VALUE_NEEDED, .yields = true},
        {.name = "numa", .value = CT_VALUE_NEEDED, .yields = true},
        {.name = "numb", .yields = true},
        {.name = "round", .value = CT_VALUE_AFTER_EQUALS},
        {.name = "help", .letter = 'h', .value = CT_VALUE_OPTIONAL},
        {.name = "secret", .hidden = true},
        {.name = NULL},
    };
    return table[index];
}

/* Reads all words, and writes what was read: "name=value name ... | rest". */
static const char *read_all(const char *const *words, bool dashed_no_values)
{
    static char text[256];
    struct ct_option_parser at = {
        .option_at = option_at, .argv = (char *const *)words, .dashed_no_values = dashed_no_values};
    enum ct_option_result result;
    size_t len = 0;
    text[0] = '\0';
    while ((result = ct_option_next(&at)) == CT_OPTION_FOUND) {
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s%s ", option_at(at.index).name,
                                at.value != NULL ? "=" : "", at.value != NULL ? at.value : "");
    }
    static const char *const wrong[] = {[CT_OPTION_UNKNOWN] = "unknown",
                                        [CT_OPTION_AMBIGUOUS] = "ambiguous",
                                        [CT_OPTION_NEEDS_VALUE] = "needs",
                                        [CT_OPTION_TAKES_NONE] = "takes-none"};
    if (result == CT_OPTION_AMBIGUOUS) {
        (void)snprintf(text + len, sizeof(text) - len, "ambiguous %s %s %zu", at.fits[0],
                       at.fits[1], at.fits_more);
    } else if (result != CT_OPTION_END) {
        (void)snprintf(text + len, sizeof(text) - len, "%s %s %s", wrong[result], at.word,
                       at.nearest != NULL ? at.nearest : "-");
    } else {
        (void)snprintf(text + len, sizeof(text) - len, "| %s %s", at.word != NULL ? at.word : "-",
                       at.argv[at.next] != NULL ? at.argv[at.next] : "-");
    }
    return text;
}

static void words_become_options_and_values(void **state)
{
    (void)state;
    static const struct {
        const char *words[5];
        bool dashed_no_values;
        const char *want;
    } rows[] = {
        {{NULL}, false, "| - -"},
        {{"--verbose", "x"}, false, "verbose | x x"},
        {{"--number", "3", "--log_dir=d"}, false, "number=3 log-dir=d | - -"},
        {{"--number="}, false, "number= | - -"},
        {{"--verb", "--", "--number"}, false, "verbose | -- --number"},
        {{"-", "-v"}, false, "| - -"},
        {{"-vn3", "-n", "4", "-n=5"}, false, "verbose number=3 number=4 number=5 | - -"},
        {{"-np", "4", "-np=5", "-np6"}, false, "number=4 number=5 number=p6 | - -"},
        {{"-vx"}, false, "verbose unknown -vx -"},
        {{"--verbos=1"}, false, "takes-none --verbos=1 -"},
        {{"--number"}, false, "needs --number -"},
        {{"--number", "--verbose"}, false, "number=--verbose | - -"},
        {{"--number", "--verbose"}, true, "needs --number -"},
        {{"--number", "-5", "-n", "-.5"}, true, "number=-5 number=-.5 | - -"},
        {{"--round", "4"}, false, "round | 4 4"},
        {{"--round=4"}, false, "round=4 | - -"},
        {{"--help", "x", "-h", "y"}, true, "help=x help=y | - -"},
        {{"--help", "-h=z"}, true, "help help=z | - -"},
        {{"--num", "1"}, false, "number=1 | - -"},
        {{"--numb"}, false, "numb | - -"},
        {{"--log-l"}, false, "ambiguous log-level log-line 0"},
        {{"--l"}, false, "ambiguous log-dir log-level 1"},
        {{"--nu=1", "--n=2", "--no=3"}, false, "number=1 number=2 nodes=3 | - -"},
        {{"--verbsoe=1"}, false, "unknown --verbsoe=1 verbose"},
        {{"-verbose"}, false, "verbose unknown -verbose verbose"},
        {{"--secrte"}, false, "unknown --secrte -"},
        {{"--=1"}, false, "unknown --=1 -"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(read_all(rows[i].words, rows[i].dashed_no_values), rows[i].want);
    }
}

static void a_refusal_names_the_option_and_suggests_one(void **state)
{
    (void)state;
    static const struct {
        const char *words[2], *want;
    } rows[] = {
        {{"--number"}, "option '--number' needs a value"},
        {{"--verbose=1"}, "unknown or malformed option '--verbose=1'"},
        {{"--nmuber"}, "unknown or malformed option '--nmuber' (did you mean --number?)"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_option_parser at = {.option_at = option_at, .argv = (char *const *)rows[i].words};
        struct ct_err err = {0};
        assert_int_equal(ct_option_refuse(&at, ct_option_next(&at), &err), CT_EINVAL);
        assert_string_equal(err.text, rows[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_options_and_values),
        cmocka_unit_test(a_refusal_names_the_option_and_suggests_one),
    };
    return cmocka_run_group_tests_name("option_parser", tests, NULL, NULL);
}
