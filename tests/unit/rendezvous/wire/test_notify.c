/* SPDX-License-Identifier: Apache-2.0
 *
 * A service manager's socket, played by the test.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "rendezvous/wire/notify.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int manager(const char *path, size_t len)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    memcpy(addr.sun_path, path, len);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, size), 0);
    return fd;
}

static void expect(int fd, const char *want)
{
    char got[64] = "";
    assert_int_equal(recv(fd, got, sizeof(got), MSG_DONTWAIT), strlen(want));
    assert_string_equal(got, want);
}

static void test_the_state_arrives_at_a_path(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "notify");
    int fd = manager(path, strlen(path) + 1);
    struct ct_err err = {0};
    int next_fd = dup(fd);
    (void)close(next_fd);
    assert_int_equal(ct_notify(path, "READY=1", &err), 0);
    expect(fd, "READY=1");
    assert_int_equal(dup(fd), next_fd); /* nothing is left open */
    (void)close(next_fd);
    (void)close(fd);
    /* Its socket is left, but nobody reads from it. */
    assert_int_equal(ct_notify(path, "STOPPING=1", &err), CT_EIO);
    assert_non_null(strstr(err.text, path));
    free(path);
    ct_tmpdir_free(dir);
}

static void test_the_state_arrives_at_an_abstract_address(void **state)
{
    char name[48];
    (void)state;
    (void)snprintf(name, sizeof(name), "@ctrun-test-notify-%d", (int)getpid());
    char bound[48];
    memcpy(bound, name, sizeof(name));
    bound[0] = '\0';
    int fd = manager(bound, strlen(name));
    assert_int_equal(ct_notify(name, "READY=1", NULL), 0);
    expect(fd, "READY=1");
    (void)close(fd);
}

static void test_without_a_manager_nothing_is_sent(void **state)
{
    (void)state;
    assert_int_equal(ct_notify(NULL, "READY=1", NULL), 0);
    assert_int_equal(ct_notify("", "READY=1", NULL), 0);
}

static void test_what_is_no_address_is_refused(void **state)
{
    struct ct_err err = {0};
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 1];
    (void)state;
    assert_int_equal(ct_notify("relative", "READY=1", &err), CT_EFORMAT);
    assert_string_equal(err.text, "NOTIFY_SOCKET 'relative' is no socket's address");
    memset(path, 'x', sizeof(path));
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(ct_notify(path, "READY=1", &err), CT_EFORMAT);
    path[sizeof(path) - 2] = '\0'; /* it fits, but is not there */
    assert_int_equal(ct_notify(path, "READY=1", &err), CT_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_state_arrives_at_a_path),
        cmocka_unit_test(test_the_state_arrives_at_an_abstract_address),
        cmocka_unit_test(test_without_a_manager_nothing_is_sent),
        cmocka_unit_test(test_what_is_no_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
