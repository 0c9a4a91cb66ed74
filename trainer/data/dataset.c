/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads what --data names: "synthetic", or a folder of CIFAR-10, .npy or IDX files; without --data
 * the folder of Debian's package. Then it checks the labels and computes mean and deviation. On
 * failure nothing stays allocated, and the message says what such a folder should contain.
 */
#include "trainer/data/dataset.h"

#include "trainer/data/synthetic.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The least number of outputs, also for a set with fewer labels: that of MNIST and CIFAR-10. */
#define CLASSES_MIN 10

/* Counts the classes of the training labels. In a damaged file labels are far above the number of
 * different ones, which is an error here. One number may be missing, because some sets count from 1
 * (EMNIST's letters). */
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
    /* The sums are exact: there are at most 2^30 pixels of at most 255. */
    uint64_t sum = 0, squares = 0;
    size_t features = set->shape.planes * set->shape.height * set->shape.width * set->shape.depth;
    size_t pixels = set->train.count * features;
    for (size_t i = 0; i < pixels; i++) {
        uint32_t v = set->train.images[i];
        sum += v;
        squares += v * v;
    }
    double mean = (double)sum / (double)pixels;
    double variance = (double)squares / (double)pixels - mean * mean;
    set->features = features;
    set->classes = classes;
    set->mean = (float)(mean / 255);
    /* If all pixels are equal, the deviation is 0. Division by 1 keeps the inputs finite. */
    set->stddev = variance > 0 ? (float)(sqrt(variance) / 255) : 1.0f;
    return 0;
}

static bool holds(const char *dir, const char *name)
{
    char path[PATH_MAX]; /* no longer path can be opened */
    int len = snprintf(path, sizeof path, "%s/%s", dir, name);
    return len > 0 && (size_t)len < sizeof path && access(path, F_OK) == 0;
}

/* Explains what is missing: for a wrong folder or format a file name is not enough. */
static int explain_absence(const char *dir, int rc, struct ct_err *err)
{
    struct stat st;
    if (stat(dir, &st) != 0) {
        return ct_err_sys(err, rc, errno, "cannot open the data folder %s", dir);
    }
    if (!S_ISDIR(st.st_mode)) {
        return ct_err_set(err, rc, "%s is a file: --data names the folder that holds it", dir);
    }
    if (holds(dir, "train-images-idx3-ubyte") || holds(dir, "train-images-idx3-ubyte.gz")) {
        return rc; /* the message already names the missing file */
    }
    return ct_err_set(err, rc,
                      "%s: holds neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz "
                      "(MNIST), nor data_batch_1.bin (CIFAR-10), nor train-images.npy",
                      dir);
}

static int load_dir(const char *dir, struct ct_dataset *set, struct ct_err *err)
{
    if (holds(dir, "data_batch_1.bin")) {
        return ct_dataset_load_cifar(dir, set, err);
    }
    if (holds(dir, "train-images.npy")) {
        return ct_dataset_load_npy(dir, set, err);
    }
    int rc = ct_dataset_load_idx(dir, set, err);
    return rc == CT_ENOENT ? explain_absence(dir, rc, err) : rc;
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
    ct_mapping_close(&split->image_map);
    *split = (struct ct_split){0};
}

void ct_dataset_fini(struct ct_dataset *set)
{
    if (set != NULL) {
        split_fini(&set->train);
        split_fini(&set->test);
        ct_mapping_close(&set->cache);
        if (set->cache_fd > 0) {
            (void)close(set->cache_fd);
        }
        set->cache_fd = 0;
    }
}
