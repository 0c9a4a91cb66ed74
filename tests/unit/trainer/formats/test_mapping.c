/* SPDX-License-Identifier: Apache-2.0
 *
 * Files in memory: the bytes are the file's, large files are aligned for large pages, and nothing
 * beside a mapping stays reserved.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/formats/mapping.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define LARGE ((size_t)2 << 20)

/* Bytes of address space that this process has taken. Reading it takes none. */
static size_t address_space(void)
{
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    assert_true(read(fd, text, sizeof text - 1) > 0);
    (void)close(fd);
    return (size_t)strtoull(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static void the_bytes_are_those_of_the_file(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE + 4097};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *dir = ct_tmpdir_new();
    char *content = malloc(4 * LARGE);
    assert_non_null(content);
    for (size_t i = 0; i < 4 * LARGE; i++) {
        content[i] = (char)(i * 2654435761U >> 24);
    }
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        char *path = ct_tmpdir_write(dir, "f", content, sizes[s]);
        struct ct_mapping map;
        size_t before = address_space();
        assert_int_equal(ct_mapping_open(path, sizes[s], &map, NULL), 0);
        assert_int_equal(map.len, sizes[s]);
        assert_memory_equal(map.bytes, content, sizes[s]);
        assert_true(sizes[s] < LARGE || (uintptr_t)map.bytes % LARGE == 0);
        assert_int_equal(address_space(), before + (sizes[s] + page - 1) / page * page);
        ct_mapping_use_large_pages(map.bytes, map.len);
        assert_memory_equal(map.bytes, content, sizes[s]);
        ct_mapping_close(&map);
        assert_null(map.bytes);
        ct_mapping_close(&map);
        assert_int_equal(address_space(), before);
        free(path);
    }
    ct_mapping_close(NULL);
    free(content);
    ct_tmpdir_free(dir);
}

static void what_cannot_be_mapped_is_named(void **state)
{
    (void)state;
    struct ct_mapping map = {.len = 77};
    struct ct_err err = {0};
    char *dir = ct_tmpdir_new();
    char *empty = ct_tmpdir_write(dir, "empty", "", 0), *two = ct_tmpdir_write(dir, "two", "ab", 2);
    const struct {
        const char *path;
        size_t max;
        int code;
        const char *why;
    } cases[] = {
        {"/no/such/file", 9, CT_ENOENT, "cannot open /no/such/file"},
        {dir, 9, CT_EUNSUPPORTED, "cannot be mapped"},
        {"/dev/null", 9, CT_EUNSUPPORTED, "/dev/null cannot be mapped"},
        {empty, 9, CT_EUNSUPPORTED, "cannot be mapped"},
        {two, 1, CT_ELIMIT, "is larger than 1 bytes"},
    };
    int first = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)close(first);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ct_mapping_open(cases[i].path, cases[i].max, &map, &err), cases[i].code);
        assert_non_null(strstr(err.text, cases[i].why));
        assert_int_equal(map.len, 77);
    }
    int last = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(last, first); /* no descriptor stays open */
    (void)close(last);
    free(empty);
    free(two);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_are_those_of_the_file),
        cmocka_unit_test(what_cannot_be_mapped_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
