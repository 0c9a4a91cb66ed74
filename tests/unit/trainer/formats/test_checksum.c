/* SPDX-License-Identifier: Apache-2.0
 *
 * A file with the right checksums, or with none, is accepted; a wrong one is named.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/formats/checksum.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* More than the pieces in which a file is read. */
#define COUNT ((size_t)300000)

/* Writes a file of one tensor and the given metadata, and verifies it. */
static int verify(const float *values, const struct ct_metadata *metadata, size_t count,
                  struct ct_err *err)
{
    const struct ct_tensor_out tensor = {.name = "w", .dims = 1, .shape = {COUNT}, .data = values};
    struct ct_safetensors file;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "file");
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ct_safetensors_write(fd, &tensor, 1, metadata, count, NULL), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(ct_safetensors_open(path, &file, NULL), 0);
    int rc = ct_checksum_verify(&file, err);
    ct_safetensors_fini(&file);
    free(path);
    ct_tmpdir_free(dir);
    return rc;
}

static void test_each_sum_counts_only_if_the_file_tells_it(void **state)
{
    (void)state;
    float *values = calloc(COUNT, sizeof *values);
    assert_non_null(values);
    values[COUNT - 1] = 1;
    const struct ct_tensor_out tensor = {.name = "w", .dims = 1, .shape = {COUNT}, .data = values};
    char tensors[9], entries[9];
    (void)snprintf(tensors, sizeof tensors, "%08" PRIx32, ct_checksum_tensors(&tensor, 1));
    struct ct_metadata metadata[] = {
        {"note", "kept"}, {CT_CHECKSUM_TENSORS_KEY, tensors}, {CT_CHECKSUM_METADATA_KEY, entries}};
    (void)snprintf(entries, sizeof entries, "%08" PRIx32, ct_checksum_metadata(metadata, 2));
    struct ct_err err = {0};
    for (size_t count = 0; count <= 3; count++) {
        if (verify(values, metadata, count, &err) != 0) {
            fail_msg("%zu entries: %s", count, err.text);
        }
    }
    metadata[0].value = "changed";
    assert_int_equal(verify(values, metadata, 3, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "the checksum of its metadata is "));
    assert_int_equal(verify(values, metadata, 2, &err), 0);
    values[COUNT - 1] = 2;
    assert_int_equal(verify(values, metadata, 2, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "the checksum of its tensors is "));
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_sum_counts_only_if_the_file_tells_it),
    };
    return cmocka_run_group_tests_name("checksum", tests, NULL, NULL);
}
