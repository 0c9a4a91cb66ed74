/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which names of a list are signals that a program can handle, and how it is warned of the
 * others.
 */
#include "tests/lib/ct_test.h"

#include "launcher/util/signals.h"

#include <signal.h>
#include <stdio.h>

static void gather(void *data, enum ct_log_level level, const char *line)
{
    char *text = data;
    size_t used = strlen(text);
    assert_int_equal(level, CT_LOG_WARNING);
    (void)snprintf(text + used, 1024 - used, "%s\n", line);
}

static void names_become_numbers(void **state)
{
    static const struct {
        const char *text;
        int signo[5];
        size_t count;
        const char *warning; /* "" = none */
    } rows[] = {
        {CT_SIGNALS_DEFAULT, {SIGTERM, SIGINT, SIGHUP, SIGQUIT}, 4, ""},
        {" SIGUSR1 ,SIGTERM,SIGUSR1", {SIGUSR1, SIGTERM}, 2, ""},
        {"", {0}, 0, ""},
        {", ,", {0}, 0, ""},
        {"SIGNOPE,SIGTERM", {SIGTERM}, 1, "SIGNOPE is no signal"},
        {"TERM", {0}, 0, "TERM is no signal and is skipped; did you mean SIGTERM?"},
        {"SIG", {0}, 0, "SIG is no signal"},
        {"sigterm,SIGINT",
         {SIGINT},
         1,
         "sigterm is no signal and is skipped; did you mean SIGTERM?"},
        {"VTALRMVTALRMVTALRM", {0}, 0, "VTALRMVTALRMVTAL is no signal; it is skipped"},
        {"s", {0}, 0, "s is no signal; it is skipped"},
        {"SIGTER", {0}, 0, "SIGTER is no signal"},
        {"SIGKILL,SIGSTOP", {0}, 0, "SIGSTOP cannot be handled"},
        {"SIGCHLD", {0}, 0, "SIGCHLD cannot be handled"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char warnings[1024] = "";
        struct ct_signals signals;
        const struct ct_log log = {gather, warnings, CT_LOG_WARNING};
        ct_signals_parse(rows[i].text, &log, &signals);
        assert_int_equal(signals.count, rows[i].count);
        assert_memory_equal(signals.signo, rows[i].signo, rows[i].count * sizeof(int));
        if (strstr(warnings, rows[i].warning) == NULL ||
            (warnings[0] == '\0') != (rows[i].warning[0] == '\0')) {
            fail_msg("'%s' warns '%s'", rows[i].text, warnings);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
