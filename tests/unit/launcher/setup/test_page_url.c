/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said about the live page. The server's answers are those of this test, because a build
 * without HTTP has no page.
 */
#include "tests/lib/ct_test.h"

#include "launcher/setup/page_url.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    int rc;
    const char *key;
} server;

int __wrap_ct_server_page_link(struct ct_server *unused, struct ct_token *out);
int __wrap_ct_server_page_link(struct ct_server *unused, struct ct_token *out)
{
    (void)unused;
    *out = (struct ct_token){.len = strlen(server.key)};
    memcpy(out->text, server.key, out->len);
    return server.rc;
}

uint16_t __wrap_ct_server_port(const struct ct_server *unused);
uint16_t __wrap_ct_server_port(const struct ct_server *unused)
{
    (void)unused;
    return 29500;
}

static const char *line(const char *host, int rc, const char *key, bool at_end)
{
    static char text[CT_PAGE_LINE_MAX];
    const struct ct_options options = {.print_url = true, .linger = 60};
    server.rc = rc;
    server.key = key;
    return ct_page_url_line(NULL, host, &options, at_end, text) ? text : "";
}

static void test_the_address_has_port_and_key(void **state)
{
    (void)state;
    assert_string_equal(line("gpu-1", 0, "", false), "live page: http://gpu-1:29500/");
    assert_string_equal(line("fe80::1", 0, "", false), "live page: http://[fe80::1]:29500/");
    assert_string_equal(line("gpu-1", 0, "k7", false), "live page: http://gpu-1:29500/#key=k7");
    assert_string_equal(line("gpu-1", CT_EIO, "", false), "live page: http://gpu-1:29500/");
}

static void test_at_the_end_it_says_how_long_the_page_stays(void **state)
{
    (void)state;
    assert_string_equal(line("gpu-1", 0, "k7", true),
                        "the live page stays at http://gpu-1:29500/#key=k7 for 60 s; "
                        "Ctrl-C ends that");
}

static void test_a_build_without_a_page_says_so_once(void **state)
{
    (void)state;
    assert_string_equal(line("gpu-1", CT_EUNSUPPORTED, "", false),
                        "there is no live page: this ctrun was built without libmicrohttpd");
    assert_string_equal(line("gpu-1", CT_EUNSUPPORTED, "", true), "");
}

static void test_nothing_is_said_where_nobody_reads(void **state)
{
    (void)state;
    char text[CT_PAGE_LINE_MAX];
    const struct ct_options options = {.print_url = false};
    int standard_error = dup(STDERR_FILENO), none = open("/dev/null", O_WRONLY | O_CLOEXEC);
    server.rc = 0;
    server.key = "";
    assert_true(standard_error >= 0 && none >= 0);
    assert_int_equal(dup2(none, STDERR_FILENO), STDERR_FILENO);
    bool said = ct_page_url_line(NULL, "gpu-1", &options, false, text);
    assert_int_equal(dup2(standard_error, STDERR_FILENO), STDERR_FILENO);
    (void)close(standard_error);
    (void)close(none);
    assert_false(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_address_has_port_and_key),
        cmocka_unit_test(test_at_the_end_it_says_how_long_the_page_stays),
        cmocka_unit_test(test_a_build_without_a_page_says_so_once),
        cmocka_unit_test(test_nothing_is_said_where_nobody_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
