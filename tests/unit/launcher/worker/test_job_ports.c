/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of a job's ports in the text that machines exchange.
 */
#include "tests/lib/ct_test.h"

#include "launcher/worker/job_ports.h"

#include <stdio.h>

static void names_are_added_once(void **state)
{
    struct ct_job_ports ports = {0};
    struct ct_err err = {0};
    char name[8];
    (void)state;
    for (int i = 0; i < CT_JOB_PORTS_MAX; i++) {
        (void)snprintf(name, sizeof(name), "p%d", i);
        assert_int_equal(ct_job_ports_add(&ports, name, strlen(name), &err), 0);
        assert_int_equal(ct_job_ports_add(&ports, name, strlen(name), &err), 0);
        assert_int_equal(ports.count, i + 1);
    }
    assert_int_equal(ct_job_ports_add(&ports, "x", 1, &err), CT_ELIMIT);
    assert_string_equal(err.text, "a job can have 16 ports; 'x' is one more");
    assert_int_equal(ct_job_ports_add(&ports, "P3", 2, &err), CT_EINVAL);
    assert_int_equal(ct_job_ports_add(&ports, "", 0, &err), CT_EINVAL);
    assert_int_equal(ct_job_ports_add(&ports, "3p", 2, &err), CT_EINVAL);
    assert_int_equal(ct_job_ports_add(&ports, "a\n", 2, &err), CT_EINVAL);
}

static void the_longest_text_is_read_as_it_was_written(void **state)
{
    struct ct_job_ports written = {0}, read;
    char text[CT_CONTROL_PORTS_MAX], name[CT_JOB_PORT_NAME_MAX + 1];
    struct ct_err err = {0};
    (void)state;
    for (int i = 0; i < CT_JOB_PORTS_MAX; i++) {
        memset(name, 'a' + i, CT_JOB_PORT_NAME_MAX);
        assert_int_equal(ct_job_ports_add(&written, name, CT_JOB_PORT_NAME_MAX, &err), 0);
        written.list[i].port = (uint16_t)(UINT16_MAX - i);
    }
    read = written;
    for (int i = 0; i < read.count; i++) {
        read.list[i].port = 1;
    }
    ct_job_ports_write(&written, text);
    assert_int_equal(ct_job_ports_read(text, &read, &err), 0);
    assert_memory_equal(&read, &written, sizeof(read));
    ct_job_ports_write(&(struct ct_job_ports){0}, text);
    assert_string_equal(text, "");
}

static void only_the_own_names_are_taken(void **state)
{
    struct ct_job_ports ports = {2, {{"b", 9}, {"z", 9}}};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_job_ports_read("a=1 b=65535 c=3", &ports, &err), 0);
    assert_int_equal(ports.list[0].port, 65535);
    assert_int_equal(ports.list[1].port, 0);
}

static void a_text_of_something_else_is_refused(void **state)
{
    static const char *const texts[] = {
        "b",     "b=",   "=1",    "b=0",  "b=65536", "b=-1",      "b=1x",
        "b=1,c", " b=1", "b=1  ", "b= 1", "b c=1",   "b=1 2b=11", "b=00000000000000001",
    };
    struct ct_err err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct ct_job_ports ports = {1, {{"b", 9}}};
        if (ct_job_ports_read(texts[i], &ports, &err) != CT_EFORMAT || ports.list[0].port != 0) {
            fail_msg("accepted: '%s'", texts[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_added_once),
        cmocka_unit_test(the_longest_text_is_read_as_it_was_written),
        cmocka_unit_test(only_the_own_names_are_taken),
        cmocka_unit_test(a_text_of_something_else_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
