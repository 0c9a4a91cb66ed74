/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ct_test.h"

#include "launcher/place.h"

static void options_decide_by_rank(void **state)
{
    static const struct {
        const char *words[8];
        const char *host;
        int port;
        const char *option, *also; /* "" = none */
    } rows[] = {
        {{NULL}, "127.0.0.1", 0, "", ""},
        {{"--master-addr=h", "--master-port=5"}, "h", 5, "--master-addr", ""},
        {{"--rdzv-endpoint=e:7", "--master-addr=h"}, "e", 7, "--rdzv-endpoint", ""},
        {{"--rdzv-endpoint=e:7", "--local-addr=l"}, "e", 7, "--rdzv-endpoint", ""},
        {{"--rdzv-backend=c10d", "--rdzv-endpoint=e"}, "e", 0, "--rdzv-endpoint", ""},
        {{"--rdzv-backend=c10d", "--rdzv-endpoint=e:7", "--local-addr=l"},
         "l",
         7,
         "--local-addr",
         "e"},
        {{"--rdzv-backend=c10d", "--master-addr=h", "--master-port=5"}, "127.0.0.1", 0, "", ""},
        {{"--local-addr=l", "--master-port=5"}, "l", 5, "--local-addr", ""},
        {{"--local-addr=l", "--master-addr=h"}, "h", 0, "--master-addr", ""},
        {{"--standalone", "--rdzv-endpoint=e:7", "--master-port=5"}, "127.0.0.1", 0, "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *argv[10] = {(char *)"ctrun"};
        char *env[] = {NULL};
        struct ct_options options;
        struct ct_place place;
        struct ct_err err = {0};
        size_t n = 1;
        for (; rows[i].words[n - 1] != NULL; n++) {
            argv[n] = (char *)rows[i].words[n - 1];
        }
        argv[n] = (char *)"x";
        assert_int_equal(ct_options_parse(argv, env, &options, &err), 0);
        ct_place_decide(&options, &place);
        assert_string_equal(place.host, rows[i].host);
        assert_int_equal(place.port, rows[i].port);
        assert_string_equal(place.option != NULL ? place.option : "", rows[i].option);
        assert_string_equal(place.also != NULL ? place.also : "", rows[i].also);
    }
}

/* 192.0.2.0/24 is reserved for documentation (RFC 5737): no machine's. */
static void other_machines_are_told_by_binding(void **state)
{
    struct ct_place place = {.host = "127.0.0.2", .option = "--local-addr", .also = "localhost"};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_place_check(&place, &err), 0);
    place.also = "192.0.2.1";
    assert_int_equal(ct_place_check(&place, &err), CT_EUNSUPPORTED);
    assert_non_null(
        strstr(err.text, "--rdzv-endpoint 192.0.2.1 is not an address of this machine"));
    place = (struct ct_place){.host = "192.0.2.1", .option = "--master-addr"};
    assert_int_equal(ct_place_check(&place, &err), CT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "--master-addr 192.0.2.1"));
    place.option = NULL; /* the default is not asked about */
    assert_int_equal(ct_place_check(&place, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_decide_by_rank),
        cmocka_unit_test(other_machines_are_told_by_binding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
