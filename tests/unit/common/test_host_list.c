/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that many host names become one short line, which counts the names that do not fit, and
 * that ranks become ranges.
 */
#include "common/host_list.h"
#include "tests/lib/ct_test.h"

#include <stdio.h>
#include <string.h>

#define NAMES_MAX 70000

/* `text`: names with blanks between them. */
static void check(const char *text, size_t size, const char *expected)
{
    char copy[1024], out[512], *rest = copy;
    const char *names[64];
    int count = 0;
    (void)snprintf(copy, sizeof(copy), "%s", text);
    for (char *name; (name = strsep(&rest, " ")) != NULL;) {
        names[count++] = name;
    }
    memset(out, '#', sizeof(out));
    ct_host_list_text(names, count, out, size);
    assert_string_equal(out, expected);
    assert_int_equal(out[size], '#');
}

static void names_share_a_bracket(void **state)
{
    (void)state;
    check("gpu-4", 160, "gpu-4");
    check("b a", 160, "a, b");
    check("gpu-10 gpu-9 gpu-3 gpu-4", 160, "gpu-[3-4,9-10]");
    check("n007 n008 n010 n11", 160, "n[007-008,010,11]");
    check("n9 n010", 160, "n[9,010]");
    check("gpu-1.rack1.net gpu-2.rack1.net gpu-2.rack2.net", 160,
          "gpu-[1-2].rack1.net, gpu-2.rack2.net");
    check("10.0.0.1 10.0.0.2 10.0.1.1", 160, "10.0.0.[1-2], 10.0.1.1");
    check("login gpu-1 gpu-2 gpu-2 gpu-3 login", 160, "gpu-1, gpu-2 (x2), gpu-3, login (x2)");
    check("n99999999999999999998 n99999999999999999999", 160,
          "n[99999999999999999998,99999999999999999999]");
    check("a1 a2b", 160, "a1, a2b");
}

static void what_has_no_room_is_counted(void **state)
{
    (void)state;
    check("a b c d e f g h", 38, "a, b, c, d, e, and 3 more");
    check("gpu-1 gpu-3 gpu-5 gpu-7 login", 36, "gpu-[1,3,5], and 2 more");
    check("gpu-1.a gpu-2.a gpu-4.a", 36, "gpu-[1-2].a, and 1 more");
    check("a-name-that-is-too-long-for-it another", 32, "2 hosts");
    check("a-name-that-is-too-long-1 a-name-that-is-too-long-2", 32, "2 hosts");
    check("a-name-that-is-too-long-for-it a-name-that-is-too-long-for-it", 32, "2 hosts");
}

static void a_list_of_any_length_fits(void **state)
{
    static char text[NAMES_MAX][8];
    static const char *names[NAMES_MAX];
    char out[CT_HOST_LIST_MAX];
    (void)state;
    for (int i = 0; i < NAMES_MAX; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "n%d", NAMES_MAX - i);
        names[i] = text[i];
    }
    ct_host_list_text(names, NAMES_MAX, out, sizeof(out));
    assert_string_equal(out, "n[1-70000]");
    for (int i = 0; i < NAMES_MAX; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "n%d", 2 * i);
        names[i] = text[i];
    }
    for (size_t size = 32; size < sizeof(out); size += 31) {
        memset(out, '#', sizeof(out));
        ct_host_list_text(names, NAMES_MAX, out, size);
        assert_true(strlen(out) < size && strlen(out) > 20);
        assert_non_null(strstr(out, "], and 699"));
        assert_string_equal(out + strlen(out) - 5, " more");
    }
}

static void numbers_become_ranges(void **state)
{
    static const int numbers[] = {0, 3, 4, 5, 7, 9, 10};
    char out[64];
    (void)state;
    ct_number_list_text(numbers, 7, out, sizeof(out));
    assert_string_equal(out, "0,3-5,7,9-10");
    ct_number_list_text(numbers, 1, out, sizeof(out));
    assert_string_equal(out, "0");
    ct_number_list_text(numbers, 7, out, 32);
    assert_string_equal(out, "0,3-5,7 and 2 more");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_share_a_bracket),
        cmocka_unit_test(what_has_no_room_is_counted),
        cmocka_unit_test(a_list_of_any_length_fits),
        cmocka_unit_test(numbers_become_ranges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
