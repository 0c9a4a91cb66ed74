/* SPDX-License-Identifier: Apache-2.0
 *
 * Reserving ports of this machine, beside other launchers that do the same.
 */
#include "tests/lib/ct_test.h"

#include "launcher/worker/port_reserve.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* Listens at the port as a program does that sets no option; returns the socket. */
static int listen_at(uint16_t port)
{
    const struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static void ports_stay_until_somebody_has_them(void **state)
{
    struct ct_job_ports ports = {3, {{"a", 0}, {"b", 0}, {"c", 0}}}, later = ports;
    struct ct_port_reserve holder = {0};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_port_reserve_choose(&holder, &ports, &err), 0);
    for (int i = 0; i < 3; i++) {
        assert_true(ports.list[i].port >= 1024);
        assert_int_not_equal(ports.list[i].port, ports.list[(i + 1) % 3].port);
    }
    assert_int_equal(ct_port_reserve_choose(&holder, &later, &err), 0);
    assert_memory_equal(&later, &ports, sizeof(ports));

    int listener = listen_at(ports.list[1].port);
    assert_int_equal(ct_port_reserve_choose(&holder, &later, &err), 0);
    assert_int_equal(later.list[0].port, ports.list[0].port);
    assert_int_not_equal(later.list[1].port, ports.list[1].port);
    assert_int_equal(later.list[2].port, ports.list[2].port);
    assert_int_equal(close(listener), 0);
    ct_port_reserve_fini(&holder);
    ct_port_reserve_fini(&holder);
}

/* Two jobs may begin in the same moment, when neither program listens yet. */
static void a_port_is_reserved_once(void **state)
{
    struct ct_job_ports ports = {1, {{"a", 0}}};
    struct ct_port_reserve reserve = {0};
    struct ct_held_port other = {0};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_port_reserve_choose(&reserve, &ports, &err), 0);
    uint16_t port = ports.list[0].port;
    assert_int_equal(ct_port_reserve_one(&other, port, true), CT_EBUSY);
    int listener = listen_at(port); /* nothing of ctrun's is in the way of the program */
    ct_port_reserve_fini(&reserve);
    assert_int_equal(ct_port_reserve_one(&other, port, true), CT_EBUSY);
    assert_int_equal(close(listener), 0);
    assert_int_equal(ct_port_reserve_one(&other, port, true), 0);
    assert_int_equal(other.port, port);
    assert_int_equal(close(other.mark), 0);
}

static bool squatted;

int __real_bind(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t len);

/* Another user may have bound the names of all marks. */
int __wrap_bind(int fd, const struct sockaddr *addr, socklen_t len)
{
    if (squatted && addr->sa_family == AF_UNIX) {
        errno = EADDRINUSE;
        return -1;
    }
    return __real_bind(fd, addr, len);
}

static void marks_of_others_end_no_job(void **state)
{
    struct ct_job_ports ports = {2, {{"a", 0}, {"b", 0}}};
    struct ct_port_reserve holder = {0};
    struct ct_err err = {0};
    (void)state;
    squatted = true;
    assert_int_equal(ct_port_reserve_choose(&holder, &ports, &err), 0);
    squatted = false;
    assert_true(ports.list[0].port >= 1024 && ports.list[1].port >= 1024);
    assert_int_equal(holder.list[0].mark, -1);
    int listener = listen_at(ports.list[0].port);
    assert_int_equal(ct_port_reserve_choose(&holder, &ports, &err), 0);
    assert_true(holder.list[0].mark >= 0);
    assert_int_equal(close(listener), 0);
    ct_port_reserve_fini(&holder);
}

static void ports_are_not_those_of_connections(void **state)
{
    int first, last;
    (void)state;
    ct_port_reserve_range(32768, 60999, &first, &last);
    assert_true(first == 20000 && last == 29999);
    ct_port_reserve_range(25000, 65535, &first, &last);
    assert_true(first == 20000 && last == 24999);
    ct_port_reserve_range(1024, 60000, &first, &last);
    assert_true(first == 60001 && last == 65535);
    ct_port_reserve_range(1024, 65535, &first, &last); /* there is no other */
    assert_true(first == 20000 && last == 65535);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ports_stay_until_somebody_has_them),
        cmocka_unit_test(a_port_is_reserved_once),
        cmocka_unit_test(marks_of_others_end_no_job),
        cmocka_unit_test(ports_are_not_those_of_connections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
