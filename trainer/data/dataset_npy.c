/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads images and labels from NumPy arrays. uint8 images are mapped unchanged. float32 images are
 * rounded to 256 steps, which restores bytes that were divided by 255. The message names a file
 * that cannot be read; ct_dataset_fini() frees.
 */
#include "trainer/data/dataset.h"

#include "common/alloc.h"
#include "trainer/formats/npy.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* The most channels of a colour image. It tells (N, C, H, W) from (N, H, W, C). */
#define CHANNELS_MAX 4

struct range {
    float low, high; /* the values that become 0 and 255 */
};

/* Opens DIR/NAME. */
static int open_array(const char *dir, const char *name, struct ct_mapping *map, struct ct_npy *npy,
                      struct ct_err *err)
{
    char *path = ct_asprintf("%s/%s", dir, name);
    if (path == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_mapping_open(path, CT_DATASET_BYTES_MAX * sizeof(float), map, err);
    if (rc == 0) {
        rc = ct_npy_parse(map->bytes, map->len, npy, err);
        if (rc != 0) {
            (void)ct_err_wrap(err, "%s", path);
            ct_mapping_close(map);
        }
    }
    ct_free(path);
    return rc;
}

/* Accepts (N, F), (N, H, W) and, for colours, (N, C, H, W) or (N, H, W, C). */
static int shape_of(const struct ct_npy *npy, struct ct_image_shape *out, struct ct_err *err)
{
    const size_t *d = npy->dim;
    if (npy->dims == 2) {
        *out = (struct ct_image_shape){1, 1, 1, d[1]};
    } else if (npy->dims == 3) {
        *out = (struct ct_image_shape){1, d[1], d[2], 1};
    } else if (npy->dims == 4 && d[3] <= CHANNELS_MAX && d[1] > CHANNELS_MAX) {
        *out = (struct ct_image_shape){1, d[1], d[2], d[3]};
    } else if (npy->dims == 4) {
        *out = (struct ct_image_shape){d[1], d[2], d[3], 1};
    } else {
        return ct_err_set(err, CT_EFORMAT, "images need 2, 3 or 4 dimensions");
    }
    return npy->count <= CT_DATASET_BYTES_MAX
               ? 0
               : ct_err_set(err, CT_ELIMIT, "more than %zu pixels", CT_DATASET_BYTES_MAX);
}

/* Images usually have values of 0 .. 1 or 0 .. 255. Any other range is stretched to 0 .. 255. */
static int find_range(const struct ct_npy *npy, struct range *out, struct ct_err *err)
{
    float low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < npy->count; i++) {
        float value = ct_npy_float(npy, i);
        if (!isfinite(value)) {
            return ct_err_set(err, CT_EFORMAT, "item %zu is not a finite number", i);
        }
        low = fminf(low, value);
        high = fmaxf(high, value);
    }
    if (low >= 0 && high <= 255) {
        low = 0;
        high = high <= 1 ? 1 : 255;
    }
    *out = (struct range){low, high > low ? high : low + 1};
    return isfinite(out->high - out->low)
               ? 0
               : ct_err_set(err, CT_ELIMIT, "its values are too far apart");
}

static int quantise(const struct ct_npy *npy, const struct range *range, struct ct_buf *out,
                    struct ct_err *err)
{
    if (ct_buf_reserve(out, npy->count) != 0) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    uint8_t *bytes = ct_buf_tail(out);
    float scale = 255 / (range->high - range->low);
    for (size_t i = 0; i < npy->count; i++) {
        float value = (ct_npy_float(npy, i) - range->low) * scale;
        /* Values of a test set may be outside the training set's range; NaN becomes 0. */
        bytes[i] = value >= 255 ? 255 : value > 0 ? (uint8_t)lrintf(value) : 0;
    }
    out->len += npy->count;
    return 0;
}

/* The range of the training set is used for both splits. Takes the mapping. */
static int use_images(struct ct_mapping *map, const struct ct_npy *npy, bool training,
                      struct range *range, struct ct_split *split, struct ct_err *err)
{
    int rc = 0;
    if (npy->type == CT_NPY_U8) {
        split->image_map = *map;
        split->images = npy->data;
    } else if (npy->type == CT_NPY_F32) {
        rc = training ? find_range(npy, range, err) : 0;
        if (rc == 0) {
            rc = quantise(npy, range, &split->image_bytes, err);
        }
        split->images = ct_buf_bytes(&split->image_bytes);
        ct_mapping_close(map);
    } else {
        rc = ct_err_set(err, CT_EUNSUPPORTED, "images are uint8 or float32");
        ct_mapping_close(map);
    }
    split->count = npy->dim[0];
    return rc;
}

static int load_labels(const char *dir, const char *name, struct ct_split *split,
                       struct ct_err *err)
{
    struct ct_mapping map;
    struct ct_npy npy;
    int rc = open_array(dir, name, &map, &npy, err);
    if (rc != 0) {
        return rc;
    }
    bool column = npy.dims == 2 && npy.dim[1] == 1;
    if (npy.type == CT_NPY_F32 || (npy.dims != 1 && !column)) {
        rc = ct_err_set(err, CT_EFORMAT, "%s/%s: labels must be one whole number each", dir, name);
    } else if (npy.count != split->count) {
        rc = ct_err_set(err, CT_EFORMAT, "%s/%s: %zu labels for %zu images", dir, name, npy.count,
                        split->count);
    } else if (ct_buf_reserve(&split->label_bytes, npy.count) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    for (size_t i = 0; rc == 0 && i < npy.count; i++) {
        rc = ct_npy_byte(&npy, i, ct_buf_tail(&split->label_bytes));
        if (rc != 0) {
            (void)ct_err_set(err, rc, "%s/%s: label %zu is not within 0 .. 255", dir, name, i);
        }
        split->label_bytes.len++;
    }
    split->labels = ct_buf_bytes(&split->label_bytes);
    ct_mapping_close(&map);
    return rc;
}

static int load_split(const char *dir, const char *images, const char *labels, bool training,
                      struct range *range, struct ct_split *split, struct ct_image_shape *shape,
                      struct ct_err *err)
{
    struct ct_mapping map;
    struct ct_npy npy;
    int rc = open_array(dir, images, &map, &npy, err);
    if (rc != 0) {
        return rc;
    }
    rc = shape_of(&npy, shape, err);
    if (rc == 0) {
        rc = use_images(&map, &npy, training, range, split, err);
    } else {
        ct_mapping_close(&map);
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "%s/%s", dir, images);
        return rc;
    }
    return load_labels(dir, labels, split, err);
}

int ct_dataset_load_npy(const char *dir, struct ct_dataset *set, struct ct_err *err)
{
    struct ct_image_shape test;
    struct range range = {0, 255};
    int rc = load_split(dir, "train-images.npy", "train-labels.npy", true, &range, &set->train,
                        &set->shape, err);
    if (rc == 0) {
        rc = load_split(dir, "test-images.npy", "test-labels.npy", false, &range, &set->test, &test,
                        err);
    }
    if (rc == 0 && memcmp(&test, &set->shape, sizeof test) != 0) {
        rc = ct_err_set(err, CT_EFORMAT, "%s: training and test images have different shapes", dir);
    }
    return rc;
}
