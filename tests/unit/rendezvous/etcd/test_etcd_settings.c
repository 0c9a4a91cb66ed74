/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses of etcd and etcdctl's variables: what is taken, and what is said about the rest.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/etcd/etcd_settings.h"

#include <stdio.h>
#include <stdlib.h>

#define ENV(...) ((const char *[]){__VA_ARGS__, NULL})
#define NO_ENV ((const char *[]){NULL})

static struct ct_etcd_settings settings;
static struct ct_err err;

/* Environments are not const, but nothing changes them. */
static int read_list(const char *list, const char **env)
{
    memset(&settings, 0, sizeof(settings));
    memset(&err, 0, sizeof(err));
    return ct_etcd_settings_read(list, (char *const *)(uintptr_t)env, &settings, &err);
}

static void test_addresses_become_urls(void **state)
{
    static const struct {
        const char *list, *first, *last;
        int num;
    } cases[] = {
        {"a", "http://a:2379", "http://a:2379", 1},
        {"10.0.0.1:4001", "http://10.0.0.1:4001", "http://10.0.0.1:4001", 1},
        {"http://a/", "http://a:2379", "http://a:2379", 1},
        {"https://a.b-c_d:1,e", "https://a.b-c_d:1", "http://e:2379", 2},
        {"[fd00::1],[::1]:65535", "http://[fd00::1]:2379", "http://[::1]:65535", 2},
        {"fd00::1", "http://[fd00::1]:2379", "http://[fd00::1]:2379", 1},
        {"a,b,c,d,e,f,g,https://h:80", "http://a:2379", "https://h:80", 8},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_list(cases[i].list, NO_ENV), 0);
        assert_int_equal(settings.num_urls, cases[i].num);
        assert_string_equal(settings.urls[0], cases[i].first);
        assert_string_equal(settings.urls[settings.num_urls - 1], cases[i].last);
    }
}

static void test_wrong_addresses_are_named(void **state)
{
    static const struct {
        const char *list, *text;
    } cases[] = {
        {"", "the list of etcd's addresses is empty"},
        {"a,", "the list of etcd's addresses has an empty one"},
        {",a", "the list of etcd's addresses has an empty one"},
        {"a,b,c,d,e,f,g,h,i", "the list of etcd's addresses has more than 8"},
        {"a:0", "etcd: address 'a:0' has port 0"},
        {"a:x", "etcd: address 'a:x': port 'x' is not a number from 0 to 65535"},
        {"a,b:65536", "etcd: address 'b:65536': port '65536' is not a number from 0 to 65535"},
        {"ftp://a", "etcd: 'ftp://a' does not begin with http:// or https://"},
        {"httpx://a", "etcd: 'httpx://a' does not begin with http:// or https://"},
        {"http://", "etcd: address '' has no host"},
        {"http:///", "etcd: address '' has no host"},
        {"http://:1", "etcd: address ':1' has no host"},
        {"[a]:1", "etcd: address '[a]:1': 'a' is not an IPv6 address"},
        {"[fe80::1%eth0]", "etcd: address '[fe80::1%eth0]' has a '%', which no host has"},
        {"a/b", "etcd: address 'a/b' has a '/', which no host has"},
        {"a?b", "etcd: address 'a?b' has a '?', which no host has"},
        {"a b", "etcd: address 'a b' has a blank or another character that no address has"},
        {"a\nb", "etcd: address 'a?b' has a blank or another character that no address has"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_true(read_list(cases[i].list, NO_ENV) < 0);
        assert_string_equal(err.text, cases[i].text);
        assert_int_equal(settings.num_urls, 0); /* untouched */
    }
}

static void test_too_long_addresses_are_refused(void **state)
{
    char *list = malloc(100000);
    (void)state;
    assert_non_null(list);
    memset(list, 'a', 99999);
    list[99999] = '\0';
    assert_int_equal(read_list(list, NO_ENV), CT_ELIMIT);
    list[260] = '\0';
    assert_int_equal(read_list(list, NO_ENV), CT_ELIMIT);
    list[255] = '\0';
    assert_int_equal(read_list(list, NO_ENV), 0);
    free(list);
}

static void test_variables_of_etcdctl_are_read(void **state)
{
    (void)state;
    assert_int_equal(read_list("a,http://b", ENV("ETCDCTL_CACERT=/ca", "ETCDCTL_CERT=/c",
                                                 "ETCDCTL_KEY=/k", "ETCDCTL_USER=joe:a:b",
                                                 "ETCDCTL_INSECURE_SKIP_TLS_VERIFY=T", "X=y")),
                     0);
    assert_string_equal(settings.urls[0], "https://a:2379");
    assert_string_equal(settings.urls[1], "http://b:2379");
    assert_string_equal(settings.cacert, "/ca");
    assert_string_equal(settings.cert, "/c");
    assert_string_equal(settings.key, "/k");
    assert_string_equal(settings.user, "joe");
    assert_string_equal(settings.password, "a:b");
    assert_true(settings.skip_verify);

    /* With a password of its own, a colon belongs to the name. */
    assert_int_equal(read_list("a", ENV("ETCDCTL_USER=joe:a", "ETCDCTL_PASSWORD=b")), 0);
    assert_string_equal(settings.user, "joe:a");
    assert_string_equal(settings.password, "b");

    /* Empty is not set. */
    assert_int_equal(read_list("a", ENV("ETCDCTL_CACERT=", "ETCDCTL_USER=", "ETCDCTL_PASSWORD=",
                                        "ETCDCTL_INSECURE_SKIP_TLS_VERIFY=", "ETCDCTL_CERT=")),
                     0);
    assert_string_equal(settings.urls[0], "http://a:2379");
    assert_string_equal(settings.user, "");
    assert_false(settings.skip_verify);

    /* A longer name is another variable. */
    assert_int_equal(read_list("a", ENV("ETCDCTL_USERS=joe", "ETCDCTL_USE=joe")), 0);
    assert_string_equal(settings.user, "");
}

static void test_wrong_variables_are_named_without_secrets(void **state)
{
    static const struct {
        const char *first, *second, *text;
    } cases[] = {
        {"ETCDCTL_CERT=/c", "X=",
         "ETCDCTL_CERT and ETCDCTL_KEY belong together, but "
         "ETCDCTL_KEY is not set"},
        {"ETCDCTL_KEY=/k", "X=",
         "ETCDCTL_CERT and ETCDCTL_KEY belong together, but "
         "ETCDCTL_CERT is not set"},
        {"ETCDCTL_USER=joe", "X=", "ETCDCTL_USER has no password: set ETCDCTL_PASSWORD, too"},
        {"ETCDCTL_USER=joe:", "X=", "ETCDCTL_USER has no password after the colon"},
        {"ETCDCTL_USER=:secret", "X=", "ETCDCTL_USER has no name"},
        {"ETCDCTL_PASSWORD=secret", "X=", "ETCDCTL_PASSWORD is set, but ETCDCTL_USER is not"},
        {"ETCDCTL_USER=joe", "ETCDCTL_PASSWORD=secret\xff",
         "ETCDCTL_USER or its password is not UTF-8"},
        {"ETCDCTL_INSECURE_SKIP_TLS_VERIFY=yes",
         "X=", "ETCDCTL_INSECURE_SKIP_TLS_VERIFY is 'yes': it must be true or false"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_list("a", ENV(cases[i].first, cases[i].second)), CT_EFORMAT);
        assert_string_equal(err.text, cases[i].text);
    }
    assert_int_equal(read_list("http://joe:secret@a", NO_ENV), CT_EFORMAT);
    assert_null(strstr(err.text, "secret"));
    assert_non_null(strstr(err.text, "ETCDCTL_USER"));
}

static void test_too_long_variables_are_refused(void **state)
{
    static const struct {
        const char *name, *text;
        size_t max;
    } cases[] = {
        {"ETCDCTL_CACERT=", "ETCDCTL_CACERT is longer than 4095 characters", 4095},
        {"ETCDCTL_USER=joe:", "the password in ETCDCTL_USER is longer than 1023 characters", 1023},
    };
    static char variable[8192];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len = strlen(cases[i].name);
        memset(variable, 'x', sizeof(variable));
        memcpy(variable, cases[i].name, len);
        variable[len + cases[i].max] = '\0';
        assert_int_equal(read_list("a", ENV(variable)), 0);
        variable[len + cases[i].max] = 'x';
        variable[len + cases[i].max + 1] = '\0';
        assert_int_equal(read_list("a", ENV(variable)), CT_ELIMIT);
        assert_string_equal(err.text, cases[i].text);
    }
}

static void test_the_password_is_wiped(void **state)
{
    (void)state;
    assert_int_equal(read_list("a", ENV("ETCDCTL_USER=joe:secret")), 0);
    ct_etcd_settings_fini(&settings);
    assert_string_equal(settings.password, "");
    ct_etcd_settings_fini(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses_become_urls),
        cmocka_unit_test(test_wrong_addresses_are_named),
        cmocka_unit_test(test_too_long_addresses_are_refused),
        cmocka_unit_test(test_variables_of_etcdctl_are_read),
        cmocka_unit_test(test_wrong_variables_are_named_without_secrets),
        cmocka_unit_test(test_too_long_variables_are_refused),
        cmocka_unit_test(test_the_password_is_wiped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
