/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a folder with the four files of MNIST, plain or gzip-compressed. Plain files are mapped,
 * and so shared between processes. Compressed ones are inflated into memory, up to the size in
 * their header. The message names a file that is truncated or of another type; ct_dataset_fini()
 * frees.
 */
#include "trainer/data/dataset.h"

#include "common/alloc.h"
#include "common/file.h"
#include "trainer/formats/gzip.h"
#include "trainer/formats/idx.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Replaces compressed content by the inflated one. Only the header is inflated first: it says how
 * large the content may be, so a small file cannot make this use much memory. */
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

/* Maps a plain file of images. After any outcome but 0 the file must be read instead. */
static int map_content(const char *path, unsigned dims, struct ct_mapping *map, struct ct_idx *idx)
{
    int rc = ct_mapping_open(path, CT_IDX_BYTES_MAX + CT_IDX_HEADER_MAX, map, NULL);
    if (rc == 0) {
        rc = ct_idx_parse(map->bytes, map->len, dims, idx, NULL);
        if (rc != 0) {
            ct_mapping_close(map);
        }
    }
    return rc;
}

/* Reads one file into the empty `content`. CT_ENOENT if it does not exist. */
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

/* Reads DIR/NAME, or DIR/NAME.gz if the former does not exist. A plain file may be mapped to `map`
 * instead; `map` NULL forbids that. */
static int read_idx(const char *dir, const char *name, unsigned dims, struct ct_buf *content,
                    struct ct_mapping *map, struct ct_idx *idx, struct ct_err *err)
{
    char *path = ct_asprintf("%s/%s.gz", dir, name);
    if (path == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    char *suffix = path + strlen(path) - strlen(".gz");
    *suffix = '\0';
    int rc = map != NULL ? map_content(path, dims, map, idx) : CT_EUNSUPPORTED;
    if (rc != 0) {
        rc = read_content(path, false, dims, content, idx, err);
    }
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

/* Fills one split and gives the size of its images. */
static int load_split(const char *dir, const char *prefix, struct ct_split *split,
                      struct ct_idx *shape, struct ct_err *err)
{
    char name[64];
    struct ct_idx labels;
    (void)snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    int rc = read_idx(dir, name, 3, &split->image_bytes, &split->image_map, shape, err);
    if (rc != 0) {
        return rc;
    }
    (void)snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    rc = read_idx(dir, name, 1, &split->label_bytes, NULL, &labels, err);
    if (rc != 0) {
        return rc;
    }
    if (shape->dim[0] != labels.dim[0]) {
        return ct_err_set(err, CT_EFORMAT, "%s: the %s files hold %zu images but %zu labels", dir,
                          prefix, shape->dim[0], labels.dim[0]);
    }
    split->count = shape->dim[0];
    const uint8_t *images = split->image_map.bytes;
    split->images = (images != NULL ? images : ct_buf_bytes(&split->image_bytes)) + shape->header;
    split->labels = ct_buf_bytes(&split->label_bytes) + labels.header;
    return 0;
}

int ct_dataset_load_idx(const char *dir, struct ct_dataset *set, struct ct_err *err)
{
    assert(set != NULL);
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
    set->shape = (struct ct_image_shape){1, train.dim[1], train.dim[2], 1};
    return 0;
}
