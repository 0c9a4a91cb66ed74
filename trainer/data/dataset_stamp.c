/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a data set on disk is still what was read: time, size and number of every file that a
 * loader may look for in its folder, also of those that are not there. Other files of the folder do
 * not matter. The synthetic set never changes.
 */
#include "trainer/data/dataset.h"

#include "common/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct ct_hash_key key = {0, 0}; /* nobody gains by a collision */

static const char *const names[] = {
    "train-images-idx3-ubyte", "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte", "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte",  "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte",  "t10k-labels-idx1-ubyte.gz",
    "data_batch_1.bin",        "data_batch_2.bin",
    "data_batch_3.bin",        "data_batch_4.bin",
    "data_batch_5.bin",        "test_batch.bin",
    "train-images.npy",        "train-labels.npy",
    "test-images.npy",         "test-labels.npy",
};

/* 0 if there is no such file. */
static uint64_t stamp_of(int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, 0) != 0) {
        return 0;
    }
    const uint64_t facts[] = {
        (uint64_t)st.st_dev,         (uint64_t)st.st_ino,          (uint64_t)st.st_size,
        (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
    };
    return ct_hash(&key, facts, sizeof facts);
}

int ct_dataset_stamp(const char *source, uint64_t *out, struct ct_err *err)
{
    const char *path = source != NULL ? source : CT_DATASET_DEFAULT_DIR;
    uint64_t stamps[sizeof names / sizeof names[0]];
    if (strcmp(path, CT_DATASET_SYNTHETIC) == 0) {
        *out = 0;
        return 0;
    }
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot open the data folder %s",
                          path);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        stamps[i] = stamp_of(dir, names[i]);
    }
    (void)close(dir);
    *out = ct_hash(&key, stamps, sizeof stamps);
    return 0;
}
