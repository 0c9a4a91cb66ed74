/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads the binary version of CIFAR-10 (cs.toronto.edu/~kriz/cifar.html): files of records, each a
 * label byte, then 1024 red, 1024 green and 1024 blue bytes of a 32 x 32 image. A file that is not
 * a whole number of records is CT_EFORMAT; ct_dataset_fini() frees what was read.
 */
#include "trainer/data/dataset.h"

#include "common/alloc.h"
#include "common/file.h"

#include <string.h>

#define PLANES 3
#define SIDE 32
#define FEATURES ((size_t)PLANES * SIDE * SIDE)
#define RECORD (1 + FEATURES)
#define TRAINING_FILES 5

static int read_file(const char *dir, const char *name, struct ct_buf *out, struct ct_err *err)
{
    char *path = ct_asprintf("%s/%s", dir, name);
    if (path == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_file_read(path, CT_DATASET_BYTES_MAX, out, err);
    if (rc == 0 && (out->len == 0 || out->len % RECORD != 0)) {
        rc = ct_err_set(err, CT_EFORMAT,
                        "%s: %zu bytes are not a whole number of CIFAR-10 records of %zu bytes",
                        path, out->len, RECORD);
    }
    ct_free(path);
    return rc;
}

/* Appends the records of one file to the split. */
static int add_file(const char *dir, const char *name, struct ct_split *split, struct ct_err *err)
{
    struct ct_buf raw = CT_BUF_INIT;
    int rc = read_file(dir, name, &raw, err);
    size_t count = raw.len / RECORD;
    if (rc == 0 && (ct_buf_reserve(&split->image_bytes, count * FEATURES) != 0 ||
                    ct_buf_reserve(&split->label_bytes, count) != 0)) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    const uint8_t *record = ct_buf_bytes(&raw);
    for (size_t i = 0; rc == 0 && i < count; i++, record += RECORD) {
        *ct_buf_tail(&split->label_bytes) = record[0];
        split->label_bytes.len++;
        memcpy(ct_buf_tail(&split->image_bytes), record + 1, FEATURES);
        split->image_bytes.len += FEATURES;
    }
    ct_buf_fini(&raw);
    if (rc == 0) {
        split->count += count;
        split->images = ct_buf_bytes(&split->image_bytes);
        split->labels = ct_buf_bytes(&split->label_bytes);
    }
    return rc;
}

int ct_dataset_load_cifar(const char *dir, struct ct_dataset *set, struct ct_err *err)
{
    char name[] = "data_batch_1.bin";
    int rc = 0;
    for (int i = 0; rc == 0 && i < TRAINING_FILES; i++) {
        name[strlen("data_batch_")] = (char)('1' + i);
        rc = add_file(dir, name, &set->train, err);
    }
    if (rc == 0) {
        rc = add_file(dir, "test_batch.bin", &set->test, err);
    }
    set->shape = (struct ct_image_shape){PLANES, SIDE, SIDE, 1};
    return rc;
}
