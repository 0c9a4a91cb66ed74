/* SPDX-License-Identifier: Apache-2.0
 *
 * What a machine knows of its interfaces; names are looked up in test_ctrun_nodes.py, on machines
 * with a hosts file of their own.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "launcher/setup/interface.h"

#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void the_loopback_is_no_interface_to_others(void **state)
{
    char name[IF_NAMESIZE] = "kept";
    (void)state;
    assert_false(ct_interface_of_text("127.0.0.1", name));
    assert_false(ct_interface_of_text("::1", name));
    assert_false(ct_interface_of_text("192.0.2.1", name)); /* RFC 5737: no machine's */
    assert_false(ct_interface_of_text("", name));
    assert_false(ct_interface_of_text("a name", name));
    assert_string_equal(name, "kept");
}

/* An interface of this machine, and its address. */
static void find_interface(char name[IF_NAMESIZE], char address[NI_MAXHOST])
{
    struct ifaddrs *list = NULL;
    assert_int_equal(getifaddrs(&list), 0);
    name[0] = '\0';
    for (const struct ifaddrs *at = list; at != NULL && name[0] == '\0'; at = at->ifa_next) {
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET &&
            (at->ifa_flags & IFF_UP) != 0 && (at->ifa_flags & IFF_LOOPBACK) == 0 &&
            getnameinfo(at->ifa_addr, sizeof(struct sockaddr_in), address, NI_MAXHOST, NULL, 0,
                        NI_NUMERICHOST) == 0) {
            (void)snprintf(name, IF_NAMESIZE, "%s", at->ifa_name);
        }
    }
    freeifaddrs(list);
    if (name[0] == '\0') {
        skip(); /* only the loopback */
    }
}

static void the_way_to_an_own_address_is_its_interface(void **state)
{
    char *const env[] = {NULL};
    char name[IF_NAMESIZE], address[NI_MAXHOST], got[IF_NAMESIZE] = "";
    const struct ct_options options = {.local_addr = ""};
    const struct ct_machine machine = {.host = "127.0.0.1"};
    const struct ct_resolved resolved = {.shared = true, .store_address = {.host = address}};
    struct ct_interface_facts facts;
    (void)state;
    find_interface(name, address);
    assert_true(ct_interface_of_text(address, got));
    assert_string_equal(got, name);
    ct_interface_expect(&options, &resolved, &machine, env, &facts);
    assert_string_equal(facts.way, name);
}

static void a_name_that_means_the_loopback_leads_nowhere(void **state)
{
    char *const env[] = {NULL};
    struct ct_interface_facts facts;
    (void)state;
    ct_interface_look("127.0.1.1", "127.0.0.1", env, &facts);
    assert_false(facts.named);
    assert_string_equal(facts.name, "127.0.1.1");
    assert_string_equal(facts.means, "127.0.1.1");
    assert_string_equal(facts.local, "");
    ct_interface_look("no-such-host.invalid", "no-such-host.invalid", env, &facts);
    assert_false(facts.named);
    assert_string_equal(facts.means, "");
}

static void a_file_of_nccl_is_read_as_nccl_does(void **state)
{
    static const struct {
        const char *text;
        bool configured;
    } rows[] = {
        {"NCCL_SOCKET_IFNAME=eth", true},
        {"NCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ens1f0\n", true},
        {"#NCCL_SOCKET_IFNAME=eth\n", false},
        {"NCCL_SOCKET_IFNAMES=eth\n NCCL_SOCKET_IFNAME=eth\n", false},
        {"", false},
    };
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "nccl.conf");
    char variable[PATH_MAX];
    (void)state;
    (void)snprintf(variable, sizeof(variable), "NCCL_CONF_FILE=%s", path);
    char *const env[] = {variable, NULL};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_interface_facts facts;
        free(ct_tmpdir_write(dir, "nccl.conf", rows[i].text, strlen(rows[i].text)));
        ct_interface_look("127.0.0.1", "", env, &facts);
        assert_int_equal(facts.nccl_configured, rows[i].configured);
    }
    free(path);
    ct_tmpdir_free(dir);
}

static void nothing_is_open_where_the_user_has_said_all(void **state)
{
    char *const all[] = {(char *)"GLOO_SOCKET_IFNAME=a", (char *)"NCCL_SOCKET_IFNAME=b", NULL};
    (void)state;
    assert_false(ct_interface_is_open(all));
    assert_true(ct_interface_is_open(&all[1]));
    assert_true(ct_interface_is_open(&all[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loopback_is_no_interface_to_others),
        cmocka_unit_test(the_way_to_an_own_address_is_its_interface),
        cmocka_unit_test(a_name_that_means_the_loopback_leads_nowhere),
        cmocka_unit_test(a_file_of_nccl_is_read_as_nccl_does),
        cmocka_unit_test(nothing_is_open_where_the_user_has_said_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
