/* SPDX-License-Identifier: Apache-2.0
 *
 * What reaches standard output and standard error, for which each test puts a file, a pipe, a
 * terminal or a full device in their place.
 */
#include "tests/lib/ct_test.h"

#include "common/job_registry.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/ctrun-stat/stat_print.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/listen.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const char healthy[] =
    "{\"version\":\"1\",\"uptime_s\":7,\"health\":\"healthy\",\"problems\":[],\"store\":{},"
    "\"job\":{\"run_id\":\"night\",\"state\":\"running\",\"world_size\":2}}";

/* ---- in place of standard output or standard error --------------------------------------------
 */

static char written[4096];

struct swap {
    int fd, before;
};

/* Takes over `with`. */
static struct swap put_in_place_of(int fd, int with)
{
    (void)fflush(NULL);
    struct swap swap = {fd, dup(fd)};
    assert_true(with >= 0 && swap.before >= 0);
    assert_int_equal(dup2(with, fd), fd);
    (void)close(with);
    return swap;
}

static void put_back(struct swap swap)
{
    assert_int_equal(dup2(swap.before, swap.fd), swap.fd);
    (void)close(swap.before);
}

static struct swap capture(int fd)
{
    return put_in_place_of(fd, memfd_create("output", 0));
}

/* Gives what was written. */
static const char *captured(struct swap swap)
{
    ssize_t n = pread(swap.fd, written, sizeof(written) - 1, 0);
    put_back(swap);
    assert_true(n >= 0);
    written[n] = '\0';
    return written;
}

/* A terminal with so many columns. */
static int open_terminal(int *controller, unsigned short columns)
{
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    char name[64];
    *controller = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(*controller >= 0 && grantpt(*controller) == 0 && unlockpt(*controller) == 0);
    assert_int_equal(ptsname_r(*controller, name, sizeof(name)), 0);
    int fd = open(name, O_RDWR | O_NOCTTY);
    assert_true(fd >= 0);
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
    return fd;
}

static struct ct_stat_options option(enum ct_stat_action action, bool watch)
{
    return (struct ct_stat_options){.action = action, .watch = watch, .timeout_s = 60};
}

/* What the answer of a store looks like, `rc` as ct_stat_print() returns it. */
static const char *printed(struct ct_stat_options options, const char *document, int rc,
                           struct ct_err *err)
{
    cJSON *status = cJSON_Parse(document);
    assert_non_null(status);
    struct swap swap = capture(STDOUT_FILENO);
    int got = ct_stat_print(&options, "h:1", status, err);
    (void)captured(swap);
    cJSON_Delete(status);
    assert_int_equal(got, rc);
    return written;
}

/* ---- columns -----------------------------------------------------------------------------------
 */

static void a_terminal_says_how_wide_it_is(void **state)
{
    static const struct {
        unsigned short columns;
        size_t line, table;
    } cases[] = {{132, 132, 132}, {80, 80, 80}, {40, 40, 80}, {0, 7, 80}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int controller, fd = open_terminal(&controller, cases[i].columns);
        assert_int_equal(ct_stat_print_columns(fd, 7), cases[i].line);
        assert_int_equal(ct_stat_print_table_columns(fd, 7), cases[i].table);
        (void)close(fd);
        (void)close(controller);
    }
    int file = memfd_create("no terminal", 0);
    assert_int_equal(ct_stat_print_columns(file, SIZE_MAX), SIZE_MAX);
    assert_int_equal(ct_stat_print_table_columns(file, SIZE_MAX), SIZE_MAX);
    assert_int_equal(ct_stat_print_table_columns(file, 7), CT_STAT_COLUMNS);
    (void)close(file);
}

#define LONG \
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567"

static void lines_are_cut_for_a_terminal_only(void **state)
{
    static const char document[] = "{\"health\":\"degraded\",\"problems\":[\"" LONG "\"]}";
    cJSON *status = cJSON_Parse(document);
    struct ct_stat_options options = option(CT_STAT_HEALTH, false);
    char line[128] = "";
    int controller;
    (void)state;
    assert_string_equal(printed(options, document, 0, NULL), "degraded: " LONG "\n");
    struct swap swap = put_in_place_of(STDOUT_FILENO, open_terminal(&controller, 30));
    int rc = ct_stat_print(&options, "h:1", status, NULL);
    put_back(swap);
    assert_int_equal(rc, 0);
    assert_true(read(controller, line, sizeof(line) - 1) > 0);
    assert_string_equal(line, "degraded: 01234567890123456...\r\n");
    (void)close(controller);
    cJSON_Delete(status);
}

/* ---- texts -------------------------------------------------------------------------------------
 */

static void a_text_is_written_as_it_is(void **state)
{
    (void)state;
    struct swap swap = capture(STDOUT_FILENO);
    int rc = ct_stat_print_text("100 %s\nmore", NULL);
    assert_string_equal(captured(swap), "100 %s\nmore");
    assert_int_equal(rc, 0);
}

static void it_is_told_if_nothing_can_be_written(void **state)
{
    int ends[2];
    struct ct_err err = {0};
    (void)state;
    struct swap swap = put_in_place_of(STDOUT_FILENO, open("/dev/full", O_WRONLY));
    int rc = ct_stat_print_text("x", &err);
    put_back(swap);
    assert_int_equal(rc, CT_EIO);
    assert_string_equal(err.text, "cannot write to standard output");

    /* Nobody reads the pipe. */
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(ends), 0);
    (void)close(ends[0]);
    swap = put_in_place_of(STDOUT_FILENO, ends[1]);
    rc = ct_stat_print_text("x", &err);
    put_back(swap);
    (void)signal(SIGPIPE, before);
    assert_int_equal(rc, CT_EIO);
}

static void the_read_key_is_a_line(void **state)
{
    struct ct_token token, key;
    struct ct_err err = {0};
    char want[CT_TOKEN_MAX + 2];
    (void)state;
    assert_int_equal(ct_token_parse("0123456789abcdef0123456789abcdef", "test", &token, NULL), 0);
    ct_token_read_key(&token, &key);
    (void)snprintf(want, sizeof(want), "%.*s\n", (int)key.len, key.text);
    struct swap swap = capture(STDOUT_FILENO);
    int rc = ct_stat_print_read_key(&token, &err);
    assert_string_equal(captured(swap), want);
    assert_int_equal(rc, 0);
    assert_int_equal(strlen(written), 65);
    assert_null(strstr(written, "0123456789abcdef0123456789abcdef"));

    swap = capture(STDOUT_FILENO);
    rc = ct_stat_print_read_key(NULL, &err);
    assert_string_equal(captured(swap), "");
    assert_int_equal(rc, CT_EINVAL);
    assert_string_equal(err.text, "--read-key needs the job's token: name its file with "
                                  "--token-file, or set CTRUN_TOKEN");
}

static void jobs_to_choose_from_go_to_standard_error(void **state)
{
    static const struct ct_job_entry entries[] = {
        {.pid = 11, .address = "127.0.0.1:1", .name = "day", .program = "a.py", .age_s = 3},
        {.pid = 12, .address = "127.0.0.1:2", .name = "night", .program = "b.py", .age_s = 4},
    };
    (void)state;
    struct swap out = capture(STDOUT_FILENO), error = capture(STDERR_FILENO);
    ct_stat_print_choices(entries, 2);
    (void)captured(error);
    char text[sizeof(written)];
    memcpy(text, written, sizeof(text));
    assert_string_equal(captured(out), "");
    assert_string_equal(text,
                        "ctrun-stat: 2 jobs run here: add the id of one of them, or as much of its "
                        "beginning as no other has\n"
                        "ID    AGE PID ADDRESS     PROGRAM\n"
                        "day    3s  11 127.0.0.1:1 a.py\n"
                        "night  4s  12 127.0.0.1:2 b.py\n");
}

/* ---- answers -----------------------------------------------------------------------------------
 */

static void an_answer_has_the_form_that_was_asked_for(void **state)
{
    static const char table[] = "h:1: healthy, up 7 s, version 1\n"
                                "job night: running, 2 workers, generation 0\n"
                                "store: 0 keys, 0 B, 0 connections, 0 waiters, 0 requests\n";
    char spaced[sizeof(table) + 1], json[sizeof(healthy) + 1];
    (void)state;
    (void)snprintf(spaced, sizeof(spaced), "%s\n", table);
    (void)snprintf(json, sizeof(json), "%s\n", healthy);
    for (int watch = 0; watch < 2; watch++) {
        assert_string_equal(printed(option(CT_STAT_TABLE, watch), healthy, 0, NULL),
                            watch ? spaced : table);
        assert_string_equal(printed(option(CT_STAT_JSON, watch), healthy, 0, NULL), json);
        assert_string_equal(printed(option(CT_STAT_HEALTH, watch), healthy, 0, NULL), "healthy\n");
    }
}

/* At whose port nobody listens any more. */
static struct ct_endpoint nobody(void)
{
    struct ct_listeners listeners;
    struct ct_endpoint where = {.host = "127.0.0.1"};
    assert_int_equal(ct_listen((const char *const[]){"127.0.0.1"}, 1, 0, &listeners, NULL), 0);
    where.port = listeners.port;
    ct_listeners_fini(&listeners);
    return where;
}

static void without_any_stack_it_fails_and_shows_what_came(void **state)
{
    static const char document[] = "{\"job\":{\"workers\":[{\"rank\":0,\"local_rank\":0,"
                                   "\"host\":\"gpu-1\"}]}}";
    struct ct_stat_options options = option(CT_STAT_STACKS, false);
    struct ct_err err = {0};
    (void)state;
    assert_string_equal(printed(options, healthy, CT_ENOENT, &err), "");
    assert_string_equal(err.text, "no workers run there");
    options.where = nobody();
    (void)printed(options, document, CT_ENOENT, &err);
    assert_memory_equal(written, "gpu-1:\n  ", 9);
    assert_memory_equal(err.text, "no machine gave a stack; gpu-1: ", 32);
}

/* The next answer may have some. */
static void a_watch_goes_on_without_stacks_and_says_when_it_asked(void **state)
{
    char date[11];
    struct ct_err err = {0};
    time_t now = time(NULL);
    struct tm local;
    (void)state;
    assert_non_null(localtime_r(&now, &local));
    const char *text = printed(option(CT_STAT_STACKS, true), healthy, 0, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(strftime(date, sizeof(date), "%Y-%m-%d", &local), 10);
    assert_memory_equal(text, "h:1 at 20", 9);
    time_t after = time(NULL);
    struct tm local_after;
    assert_non_null(localtime_r(&after, &local_after));
    if (local.tm_mday == local_after.tm_mday) { /* else it was midnight */
        assert_memory_equal(text + strlen("h:1 at "), date, 10);
    }
    assert_string_equal(text + strlen("h:1 at 2026-12-31 23:59:59"), "\nno workers run there\n\n");
}

static const char *printed_end(enum ct_stat_action action, const char *verdict)
{
    struct ct_stat_options options = option(action, true);
    cJSON *last = cJSON_Parse(healthy), *json = verdict != NULL ? cJSON_Parse(verdict) : NULL;
    struct swap swap = capture(STDOUT_FILENO);
    int rc = ct_stat_print_end(&options, "h:1", last, json, NULL);
    (void)captured(swap);
    assert_int_equal(rc, 0);
    cJSON_Delete(last);
    cJSON_Delete(json);
    return written;
}

static void the_end_has_the_form_that_was_asked_for(void **state)
{
    static const char verdict[] = "{\"run_id\":\"night\",\"text\":\"has succeeded\"}";
    (void)state;
    assert_string_equal(printed_end(CT_STAT_JSON, verdict),
                        "{\"run_id\":\"night\",\"text\":\"has succeeded\"}\n");
    assert_string_equal(printed_end(CT_STAT_JSON, NULL), "");
    assert_string_equal(printed_end(CT_STAT_TABLE, verdict), "job night has succeeded\n");
    assert_string_equal(printed_end(CT_STAT_HEALTH, NULL),
                        "job night has ended; last seen running, generation 0\n");
}

/* ---- memory ------------------------------------------------------------------------------------
 */

/* Nothing is written if memory is out. */
static int sweep_answer(void *data)
{
    struct ct_stat_options options = *(const struct ct_stat_options *)data;
    struct ct_err err = {0};
    cJSON *status = cJSON_Parse(healthy);
    if (status == NULL) {
        return CT_ENOMEM;
    }
    struct swap swap = capture(STDOUT_FILENO);
    int rc = ct_stat_print(&options, "h:1", status, &err);
    (void)captured(swap);
    assert_true(rc == 0 || written[0] == '\0');
    assert_string_equal(err.text, rc == 0 ? "" : "out of memory");
    cJSON_Delete(status);
    return rc;
}

static int sweep_end(void *data)
{
    const struct ct_stat_options options = option(CT_STAT_TABLE, true);
    (void)data;
    cJSON *last = cJSON_Parse(healthy);
    if (last == NULL) {
        return CT_ENOMEM;
    }
    struct swap swap = capture(STDOUT_FILENO);
    int rc = ct_stat_print_end(&options, "h:1", last, NULL, NULL);
    (void)captured(swap);
    assert_true(rc == 0 || written[0] == '\0');
    cJSON_Delete(last);
    return rc;
}

static void each_failed_allocation_is_told(void **state)
{
    static const struct ct_stat_options forms[] = {
        {.action = CT_STAT_TABLE, .watch = true},
        {.action = CT_STAT_JSON},
        {.action = CT_STAT_HEALTH},
        {.action = CT_STAT_STACKS, .watch = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        assert_true(ct_fault_sweep(sweep_answer, (void *)&forms[i], 0) > 1);
    }
    assert_true(ct_fault_sweep(sweep_end, NULL, 0) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_says_how_wide_it_is),
        cmocka_unit_test(lines_are_cut_for_a_terminal_only),
        cmocka_unit_test(a_text_is_written_as_it_is),
        cmocka_unit_test(it_is_told_if_nothing_can_be_written),
        cmocka_unit_test(the_read_key_is_a_line),
        cmocka_unit_test(jobs_to_choose_from_go_to_standard_error),
        cmocka_unit_test(an_answer_has_the_form_that_was_asked_for),
        cmocka_unit_test(without_any_stack_it_fails_and_shows_what_came),
        cmocka_unit_test(a_watch_goes_on_without_stacks_and_says_when_it_asked),
        cmocka_unit_test(the_end_has_the_form_that_was_asked_for),
        cmocka_unit_test(each_failed_allocation_is_told),
    };
    ct_json_use_our_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
