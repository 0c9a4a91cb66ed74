/* SPDX-License-Identifier: Apache-2.0
 *
 * By which address other machines reach this one. A table stands for the resolver, the routes and
 * what ssh knows.
 */
#include "tests/lib/ct_test.h"

#include "launcher/fleet/fleet_address.h"
#include "launcher/fleet/ssh.h"

#include <stdio.h>

/* From where this machine reaches each name. */
static const struct {
    const char *name, *own;
} routes[] = {
    {"near", "10.0.0.1"}, {"far", "192.0.2.1"},     {"alias", "127.0.0.1"},
    {"of-ssh", NULL},     {"10.9.1.2", "10.9.0.1"},
};
static int looked_up;

int __wrap_ct_addr_towards(const char *host, char *out, size_t size, struct ct_err *err);
int __wrap_ct_addr_towards(const char *host, char *out, size_t size, struct ct_err *err)
{
    looked_up++;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(routes[i].name, host) == 0 && routes[i].own != NULL) {
            (void)snprintf(out, size, "%s", routes[i].own);
            return 0;
        }
    }
    return ct_err_set(err, CT_ENOENT, "no host %s", host);
}

bool __wrap_ct_ssh_host_name(const struct ct_fleet_spec *spec, int index, char *const *env,
                             char out[CT_HOST_MAX]);
bool __wrap_ct_ssh_host_name(const struct ct_fleet_spec *spec, int index, char *const *env,
                             char out[CT_HOST_MAX])
{
    (void)env;
    (void)snprintf(out, CT_HOST_MAX, "10.9.1.2");
    return strcmp(spec->hosts->list[index].name, "of-ssh") == 0;
}

/* Which address is chosen for these hosts; err->text says why none is. */
static int choose(const char *names, const char *local_addr, char address[CT_HOST_MAX],
                  struct ct_err *err)
{
    struct ct_options options = {0};
    struct ct_machine machine = {.host = "here"};
    struct ct_hosts hosts = {0};
    const struct ct_fleet_job job = {.options = &options, .hosts = &hosts, .machine = &machine};
    *err = (struct ct_err){0};
    looked_up = 0;
    (void)snprintf(options.local_addr, sizeof(options.local_addr), "%s", local_addr);
    assert_int_equal(ct_hosts_parse(&hosts, names, NULL), 0);
    int rc = ct_fleet_address(&job, address, err);
    ct_hosts_fini(&hosts);
    assert_true((rc == 0) == (err->text[0] == '\0'));
    return rc;
}

static void the_way_to_the_first_other_machine_decides(void **state)
{
    static const struct {
        const char *names, *local_addr, *address;
        int looked_up;
    } rows[] = {
        {"near,far", "", "10.0.0.1", 1},
        {"here,localhost,root@far,near", "", "192.0.2.1", 1},
        {"near,far", "10.1.1.1", "10.1.1.1", 0},
        {"near,far", "0.0.0.0", "10.0.0.1", 1}, /* others would find themselves there */
        {"here", "", "127.0.0.1", 0},
        {"alias,far", "", "192.0.2.1", 2}, /* this machine under another name */
        {"here,alias", "", "127.0.0.1", 1},
        {"unknown,far", "", "192.0.2.1", 2},
        {"alias,unknown", "", "127.0.0.1", 2},
        {"of-ssh,far", "", "10.9.0.1", 2},
        {"u1,u2,u3,near", "", "10.0.0.1", 4},
        {"u1,alias,u2,u3,near", "", "10.0.0.1", 5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char address[CT_HOST_MAX];
        struct ct_err err;
        if (choose(rows[i].names, rows[i].local_addr, address, &err) != 0) {
            fail_msg("%s: %s", rows[i].names, err.text);
        }
        assert_string_equal(address, rows[i].address);
        assert_int_equal(looked_up, rows[i].looked_up);
    }
}

/* The reason is that of the first name, and a name service that is down is not asked for all. */
static void after_four_unknown_names_it_gives_up(void **state)
{
    char address[CT_HOST_MAX];
    struct ct_err err;
    (void)state;
    assert_int_equal(choose("u1,u2,u3,u4,near", "", address, &err), CT_ENOENT);
    assert_int_equal(looked_up, 4);
    assert_string_equal(err.text,
                        "no host u1; if only ssh knows the name, pass --local-addr with the "
                        "address by which the machines reach this one");
    assert_int_equal(choose("here,u1", "", address, &err), CT_ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_way_to_the_first_other_machine_decides),
        cmocka_unit_test(after_four_unknown_names_it_gives_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
