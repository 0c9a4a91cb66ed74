/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/dataset.h"

#include "common/alloc.h"
#include "common/file.h"
#include "trainer/gzip.h"
#include "trainer/idx.h"
#include "trainer/synthetic.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Even a set with fewer labels gets as many outputs as the sets this program is made for. */
#define CLASSES_MIN 10

/* Replaces compressed content by what it inflates to. The header inside says how much that may be,
 * so a small file cannot claim much memory: only the header is inflated before that is known. */
static int inflate_content(struct ct_buf *content, unsigned dims, struct ct_err *err)
{
    struct ct_buf plain = CT_BUF_INIT;
    struct ct_idx idx;
    int rc = ct_gzip_inflate(ct_buf_bytes(content), content->len, CT_IDX_HEADER_MAX, &plain, err);
    if (rc == 0 || rc == CT_ELIMIT) {
        rc = ct_idx_header(ct_buf_bytes(&plain), plain.len, dims, &idx, err);
    }
    if (rc == 0) {
        ct_buf_reset(&plain);
        rc = ct_gzip_inflate(ct_buf_bytes(content), content->len, idx.total, &plain, err);
        if (rc == CT_ELIMIT) {
            (void)ct_err_set(err, rc,
                             "oversized: inflates to more than the %zu bytes its header "
                             "promises",
                             idx.total);
        }
    }
    if (rc != 0) {
        ct_buf_fini(&plain);
        return rc;
    }
    ct_buf_fini(content);
    *content = plain;
    return 0;
}

/* Reads one file into the empty `content`; CT_ENOENT when it is not there. */
static int read_content(const char *path, bool named_gz, unsigned dims, struct ct_buf *content,
                        struct ct_idx *idx, struct ct_err *err)
{
    int rc = ct_file_read(path, CT_IDX_BYTES_MAX + CT_IDX_HEADER_MAX, content, err);
    if (rc != 0) {
        return rc;
    }
    if (named_gz || ct_gzip_is(ct_buf_bytes(content), content->len)) {
        rc = inflate_content(content, dims, err);
    }
    if (rc == 0) {
        rc = ct_idx_parse(ct_buf_bytes(content), content->len, dims, idx, err);
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "%s", path);
    }
    return rc;
}

/* Reads DIR/NAME, or DIR/NAME.gz when the former is not there. */
static int read_idx(const char *dir, const char *name, unsigned dims, struct ct_buf *content,
                    struct ct_idx *idx, struct ct_err *err)
{
    char *path = ct_asprintf("%s/%s.gz", dir, name);
    if (path == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    char *suffix = path + strlen(path) - strlen(".gz");
    *suffix = '\0';
    int rc = read_content(path, false, dims, content, idx, err);
    if (rc == CT_ENOENT) {
        *suffix = '.';
        rc = read_content(path, true, dims, content, idx, err);
    }
    if (rc == CT_ENOENT) {
        (void)ct_err_set(err, rc, "%s: holds neither %s nor %s.gz", dir, name, name);
    }
    ct_free(path);
    return rc;
}

/* Fills one split and gives its image size. */
static int load_split(const char *dir, const char *prefix, struct ct_split *split,
                      struct ct_idx *shape, struct ct_err *err)
{
    char name[64];
    struct ct_idx labels;
    (void)snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    int rc = read_idx(dir, name, 3, &split->image_bytes, shape, err);
    if (rc != 0) {
        return rc;
    }
    (void)snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    rc = read_idx(dir, name, 1, &split->label_bytes, &labels, err);
    if (rc != 0) {
        return rc;
    }
    if (shape->dim[0] != labels.dim[0]) {
        return ct_err_set(err, CT_EFORMAT, "%s: the %s files hold %zu images but %zu labels", dir,
                          prefix, shape->dim[0], labels.dim[0]);
    }
    split->count = shape->dim[0];
    split->images = ct_buf_bytes(&split->image_bytes) + shape->header;
    split->labels = ct_buf_bytes(&split->label_bytes) + labels.header;
    return 0;
}

static int load_dir(const char *dir, struct ct_dataset *set, struct ct_err *err)
{
    struct ct_idx train, test;
    int rc = load_split(dir, "train", &set->train, &train, err);
    if (rc == 0) {
        rc = load_split(dir, "t10k", &set->test, &test, err);
    }
    if (rc != 0) {
        return rc;
    }
    if (train.dim[1] != test.dim[1] || train.dim[2] != test.dim[2]) {
        return ct_err_set(err, CT_EFORMAT,
                          "%s: training images are %zux%zu but test images %zux%zu", dir,
                          train.dim[1], train.dim[2], test.dim[1], test.dim[2]);
    }
    set->features = train.dim[1] * train.dim[2];
    return 0;
}

/* Number of classes that the training labels speak of, checking that they look like class numbers:
 * a damaged file shows as labels far beyond the number of different ones. One number may be
 * missing, since some sets count from 1 (EMNIST's letters). */
static int count_classes(const struct ct_split *train, size_t *out, struct ct_err *err)
{
    bool seen[UINT8_MAX + 1] = {false};
    size_t different = 0, largest = 0;
    for (size_t i = 0; i < train->count; i++) {
        size_t label = train->labels[i];
        different += !seen[label];
        seen[label] = true;
        largest = label > largest ? label : largest;
    }
    size_t limit = different + 1 > CLASSES_MIN ? different + 1 : CLASSES_MIN;
    if (largest >= limit) {
        return ct_err_set(
            err, CT_EFORMAT,
            "label %zu of the training set is out of range: %zu different labels must "
            "be below %zu",
            largest, different, limit);
    }
    *out = largest + 1 > CLASSES_MIN ? largest + 1 : CLASSES_MIN;
    return 0;
}

int ct_dataset_finish(struct ct_dataset *set, struct ct_err *err)
{
    size_t classes;
    int rc = count_classes(&set->train, &classes, err);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < set->test.count; i++) {
        if (set->test.labels[i] >= classes) {
            return ct_err_set(err, CT_EFORMAT,
                              "label %u of the test set is out of range: the training set has %zu "
                              "classes",
                              set->test.labels[i], classes);
        }
    }
    /* Exact sums: at most 2^30 pixels of at most 255. */
    uint64_t sum = 0, squares = 0;
    size_t pixels = set->train.count * set->features;
    for (size_t i = 0; i < pixels; i++) {
        uint32_t v = set->train.images[i];
        sum += v;
        squares += v * v;
    }
    double mean = (double)sum / (double)pixels;
    double variance = (double)squares / (double)pixels - mean * mean;
    set->classes = classes;
    set->mean = (float)(mean / 255);
    /* A constant image set has no spread; dividing by 1 keeps it finite. */
    set->stddev = variance > 0 ? (float)(sqrt(variance) / 255) : 1.0f;
    return 0;
}

static int load(const char *source, struct ct_dataset *set, struct ct_err *err)
{
    if (source != NULL && strcmp(source, CT_DATASET_SYNTHETIC) == 0) {
        return ct_synthetic_make(set, err);
    }
    if (source == NULL && access(CT_DATASET_DEFAULT_DIR, F_OK) != 0) {
        return ct_err_set(err, CT_ENOENT,
                          "no data set in " CT_DATASET_DEFAULT_DIR
                          ": apt install dataset-fashion-mnist, or name one by --data DIR, or try "
                          "--data synthetic");
    }
    return load_dir(source != NULL ? source : CT_DATASET_DEFAULT_DIR, set, err);
}

int ct_dataset_load(const char *source, struct ct_dataset *out, struct ct_err *err)
{
    struct ct_dataset set = {0};
    int rc = load(source, &set, err);
    if (rc == 0) {
        rc = ct_dataset_finish(&set, err);
        if (rc != 0) {
            (void)ct_err_wrap(err, "%s", source != NULL ? source : CT_DATASET_DEFAULT_DIR);
        }
    }
    if (rc != 0) {
        ct_dataset_fini(&set);
        return rc;
    }
    *out = set;
    return 0;
}

static void split_fini(struct ct_split *split)
{
    ct_buf_fini(&split->image_bytes);
    ct_buf_fini(&split->label_bytes);
    *split = (struct ct_split){0};
}

void ct_dataset_fini(struct ct_dataset *set)
{
    if (set != NULL) {
        split_fini(&set->train);
        split_fini(&set->test);
    }
}
