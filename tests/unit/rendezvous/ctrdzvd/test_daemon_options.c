/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of ctrdzvd.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrdzvd/daemon_options.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define WORDS 40

static int parse(const char *const *words, struct ct_daemon_options *out, struct ct_err *err)
{
    char *argv[WORDS + 2] = {(char *)"ctrdzvd"};
    for (size_t i = 0; i < WORDS && words[i] != NULL; i++) {
        argv[i + 1] = (char *)words[i];
    }
    *out = (struct ct_daemon_options){.port = 1};
    *err = (struct ct_err){0};
    return ct_daemon_options_parse(argv, out, err);
}

#define PARSE(o, err, ...) parse((const char *const[]){__VA_ARGS__, NULL}, o, err)

static void test_without_options_it_serves_this_machine(void **state)
{
    struct ct_daemon_options o;
    struct ct_err err;
    (void)state;
    assert_int_equal(parse((const char *const[]){NULL}, &o, &err), 0);
    assert_int_equal(o.action, CT_DAEMON_SERVE);
    assert_int_equal(o.port, CT_DEFAULT_STORE_PORT);
    assert_int_equal(o.num_hosts, 1);
    assert_string_equal(o.hosts[0], "127.0.0.1");
    assert_int_equal(o.ready_fd, -1);
    assert_int_equal(o.max_memory, 0);
    assert_int_equal(o.max_connections, 0);
    assert_false(o.access.open || o.http_keys || o.journal_sync);
    assert_null(o.journal);
    assert_null(o.token_file);
}

static void test_every_option_is_read(void **state)
{
    struct ct_daemon_options o;
    struct ct_err err;
    char fd[12];
    (void)state;
    int out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)snprintf(fd, sizeof(fd), "%d", out);
    assert_int_equal(PARSE(&o, &err, "--listen", "10.0.0.1", "--listen=::1", "--port", "65535",
                           "--allow", "10.0.0.0/8", "--open", "--max-memory", "64M",
                           "--max-connections", "7", "--token-file", "t", "--journal", "j",
                           "--journal-sync", "--http-keys", "--ready-fd", fd),
                     0);
    assert_int_equal(o.num_hosts, 2);
    assert_string_equal(o.hosts[0], "10.0.0.1");
    assert_string_equal(o.hosts[1], "::1");
    assert_int_equal(o.port, 65535);
    assert_int_equal(o.access.count, 1);
    assert_true(o.access.open && o.http_keys && o.journal_sync);
    assert_int_equal(o.max_memory, (size_t)64 << 20);
    assert_int_equal(o.max_connections, 7);
    assert_string_equal(o.token_file, "t");
    assert_string_equal(o.journal, "j");
    assert_int_equal(o.ready_fd, out);
    (void)close(out);
}

static void test_sizes_have_units(void **state)
{
    static const struct {
        const char *text;
        size_t bytes;
    } cases[] = {
        {"33554432", (size_t)32 << 20}, {"32768K", (size_t)32 << 20}, {"32M", (size_t)32 << 20},
        {"4G", (size_t)4 << 30},        {"2T", (size_t)2 << 40},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_daemon_options o;
        struct ct_err err;
        assert_int_equal(PARSE(&o, &err, "--max-memory", cases[i].text), 0);
        assert_int_equal(o.max_memory, cases[i].bytes);
    }
}

static void test_a_wrong_command_line_is_refused_with_its_reason(void **state)
{
    static const struct {
        const char *words[3], *text;
    } cases[] = {
        {{"--port", "65536"}, "--port '65536' is not a number from 0 to 65535"},
        {{"--port", "-1"}, "--port '-1'"},
        {{"--listen", ""}, "--listen needs an address"},
        {{"--allow", "10.0.0.0/33"}, "--allow: "},
        {{"--max-memory", "31M"}, "--max-memory '31M' is less than 32M"},
        {{"--max-memory", "32767K"}, "is less than 32M"},
        {{"--max-memory", "M"}, "is not a size such as 500M or 4G"},
        {{"--max-memory", "4X"}, "is not a size"},
        {{"--max-memory", "8388608T"}, "is not a size"},
        {{"--max-memory", "-4G"}, "is not a size"},
        {{"--max-memory", "000000000000000000000064M"}, "is too large"},
        {{"--max-connections", "0"}, "--max-connections '0' is not a positive number"},
        {{"--token-file", ""}, "--token-file needs a file name"},
        {{"--journal="}, "--journal needs a file name"},
        {{"--journal-sync"}, "--journal-sync needs --journal"},
        {{"--ready-fd", "x"}, "--ready-fd 'x' is not a descriptor number"},
        {{"--ready-fd", "1000000"}, "--ready-fd 1000000 is not open for writing"},
        {{"--port"}, "option '--port' needs a value"},
        {{"--nope"}, "'--nope'"},
        {{"stray"}, "argument 'stray' is not expected"},
        {{"--", "stray"}, "argument 'stray' is not expected"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_daemon_options o;
        struct ct_err err;
        assert_true(parse(cases[i].words, &o, &err) < 0);
        if (strstr(err.text, cases[i].text) == NULL) {
            fail_msg("'%s' instead of '%s'", err.text, cases[i].text);
        }
        assert_int_equal(o.port, 1); /* untouched */
    }
}

static void test_a_descriptor_that_is_only_read_is_refused(void **state)
{
    struct ct_daemon_options o;
    struct ct_err err;
    char text[12];
    (void)state;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)snprintf(text, sizeof(text), "%d", fd);
    assert_int_equal(PARSE(&o, &err, "--ready-fd", text), CT_EINVAL);
    assert_non_null(strstr(err.text, "is not open for writing"));
    (void)close(fd);
}

static void test_one_address_too_many_is_refused(void **state)
{
    const char *words[WORDS + 1] = {NULL};
    struct ct_daemon_options o;
    struct ct_err err;
    (void)state;
    for (size_t i = 0; i < CT_MAX_LISTENERS; i++) {
        words[2 * i] = "--listen";
        words[2 * i + 1] = "::1";
    }
    assert_int_equal(parse(words, &o, &err), 0);
    assert_int_equal(o.num_hosts, CT_MAX_LISTENERS);
    words[2 * CT_MAX_LISTENERS] = "--listen=last";
    assert_int_equal(parse(words, &o, &err), CT_EINVAL);
    assert_string_equal(err.text, "--listen 'last': more than 16 addresses");
}

static void test_help_and_version_end_the_reading(void **state)
{
    struct ct_daemon_options o;
    struct ct_err err;
    (void)state;
    assert_int_equal(PARSE(&o, &err, "--help", "--nope"), 0);
    assert_int_equal(o.action, CT_DAEMON_HELP);
    assert_int_equal(PARSE(&o, &err, "-h"), 0);
    assert_int_equal(o.action, CT_DAEMON_HELP);
    assert_int_equal(PARSE(&o, &err, "-V", "stray"), 0);
    assert_int_equal(o.action, CT_DAEMON_VERSION);
    assert_int_equal(PARSE(&o, &err, "--nope", "--help"), CT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_options_it_serves_this_machine),
        cmocka_unit_test(test_every_option_is_read),
        cmocka_unit_test(test_sizes_have_units),
        cmocka_unit_test(test_a_wrong_command_line_is_refused_with_its_reason),
        cmocka_unit_test(test_a_descriptor_that_is_only_read_is_refused),
        cmocka_unit_test(test_one_address_too_many_is_refused),
        cmocka_unit_test(test_help_and_version_end_the_reading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
