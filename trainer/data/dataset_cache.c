/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares the data set among the workers of a host. The first worker copies what it has loaded into
 * a memfd and publishes descriptor and token in the store. The others open it through /proc and map
 * it. Mapped files are shared already. If sharing fails, each worker loads the set itself; if
 * loading fails, the others get the first worker's message. ct_dataset_fini() unmaps.
 */
#include "trainer/data/dataset_cache.h"

#include "common/file.h"
#include "common/hash.h"
#include "common/num.h"
#include "worker/job/job.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A key in the store; %d is the number of the host. */
#define KEY "dataset/%d"
/* The first byte of the published value: the place of the memory, the reason of a failure, or the
 * order that each worker loads the set itself. */
#define TOLD_PLACE '@'
#define TOLD_FAILURE '!'
#define TOLD_NOTHING '-'

/* The start of the memory. Images and labels of training set and test set follow. */
struct head {
    char token[48]; /* proves that this is the memory that was published */
    struct ct_image_shape shape;
    size_t features, classes, train, test;
    float mean, stddev;
};

static bool total_of(const struct head *head, size_t *out)
{
    size_t count, pixels;
    return ct_add_size(head->train, head->test, &count) &&
           ct_mul_size(count, head->features, &pixels) && ct_add_size(pixels, count, &pixels) &&
           ct_add_size(pixels, sizeof *head, out);
}

/* Replaces the arrays of the set by those in the mapping, which the set then owns. */
static void adopt(struct ct_dataset *set, struct ct_mapping map, int fd)
{
    struct head head;
    memcpy(&head, map.bytes, sizeof head);
    ct_dataset_fini(set);
    const uint8_t *train = map.bytes + sizeof head;
    const uint8_t *train_labels = train + head.train * head.features;
    const uint8_t *test = train_labels + head.train;
    *set = (struct ct_dataset){
        .train = {.count = head.train, .images = train, .labels = train_labels},
        .test = {.count = head.test, .images = test, .labels = test + head.test * head.features},
        .features = head.features,
        .shape = head.shape,
        .classes = head.classes,
        .mean = head.mean,
        .stddev = head.stddev,
        .cache = map,
        .cache_fd = fd,
    };
}

/* ---- the worker that loads ------------------------------------------------------------------- */

static uint8_t *put(uint8_t *to, const void *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

static int fill(int fd, const struct head *head, size_t total, const struct ct_dataset *set)
{
    /* Reserves all of the memory, so that touching it later cannot fail. */
    if (posix_fallocate(fd, 0, (off_t)total) != 0) {
        return CT_ENOMEM;
    }
    uint8_t *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return CT_ENOMEM;
    }
    uint8_t *p = put(memory, head, sizeof *head);
    p = put(p, set->train.images, set->train.count * set->features);
    p = put(p, set->train.labels, set->train.count);
    p = put(p, set->test.images, set->test.count * set->features);
    (void)put(p, set->test.labels, set->test.count);
    (void)munmap(memory, total);
    /* Seals the memory, because the others check it only once. */
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    return fcntl(fd, F_ADD_SEALS, seals) == 0 ? 0 : CT_EUNSUPPORTED;
}

/* Writes the place of memory that this worker has made. */
static void name_place(const struct ct_dataset *set, char *told, size_t cap)
{
    struct head head;
    memcpy(&head, set->cache.bytes, sizeof head);
    (void)snprintf(told, cap, "%c%ld %d %.*s", TOLD_PLACE, (long)getpid(), set->cache_fd,
                   (int)sizeof head.token - 1, head.token);
}

/* Moves the set into shared memory and writes what to publish. A failure changes nothing. */
static int share(struct ct_dataset *set, char *told, size_t cap)
{
    struct ct_hash_key random;
    struct ct_mapping map;
    struct head head = {.shape = set->shape,
                        .features = set->features,
                        .classes = set->classes,
                        .train = set->train.count,
                        .test = set->test.count,
                        .mean = set->mean,
                        .stddev = set->stddev};
    size_t total;
    ct_hash_key_random(&random);
    (void)snprintf(head.token, sizeof head.token, "%016" PRIx64 "%016" PRIx64, random.k0,
                   random.k1);
    if (!total_of(&head, &total)) {
        return CT_ELIMIT;
    }
    int fd = ct_file_in_memory("ctrun-dataset", true);
    if (fd < 0) {
        return CT_EUNSUPPORTED;
    }
    int rc = fill(fd, &head, total, set);
    if (rc == 0) {
        rc = ct_mapping_of(fd, total, &map, NULL);
    }
    if (rc != 0) {
        (void)close(fd);
        return rc;
    }
    /* Done once here, for all workers that map the memory. */
    ct_mapping_use_large_pages(map.bytes, map.len);
    adopt(set, map, fd);
    name_place(set, told, cap);
    return 0;
}

static int load_and_tell(const char *source, struct ctw_job *job, const char *key,
                         struct ct_dataset *out, struct ct_err *err)
{
    struct ct_err reason = {0};
    char told[CT_ERR_TEXT_MAX + 1] = {TOLD_NOTHING};
    int rc = ct_dataset_load(source, out, &reason);
    if (rc != 0) {
        (void)snprintf(told, sizeof told, "%c%s", TOLD_FAILURE, reason.text);
        (void)ct_err_set(err, rc, "%s", reason.text);
    } else if (out->train.image_map.bytes == NULL) {
        /* Mapped files are shared already. If sharing is impossible, each worker loads. */
        if (share(out, told, sizeof told) != 0) {
            told[0] = TOLD_NOTHING;
            told[1] = '\0';
        }
    }
    struct ct_err store = {0};
    int told_rc = ctw_job_set(job, key, told, strlen(told), &store);
    if (rc == 0 && told_rc != 0) {
        ct_dataset_fini(out);
        return ct_err_set(err, told_rc, "%s", store.text);
    }
    return rc;
}

/* ---- the others ------------------------------------------------------------------------------ */

static int map_place(int fd, const char *token, struct ct_mapping *out)
{
    struct stat st;
    struct head head;
    size_t total;
    if (fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof head ||
        pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head ||
        strncmp(head.token, token, sizeof head.token) != 0 || !total_of(&head, &total) ||
        total != (size_t)st.st_size) {
        return CT_EPROTO;
    }
    return ct_mapping_of(fd, total, out, NULL);
}

/* Maps the memory of "@PID FD TOKEN". */
static int attach(const char *told, struct ct_dataset *out)
{
    long pid;
    int fd_there;
    char token[48], path[64];
    struct ct_mapping map;
    if (sscanf(told + 1, "%ld %d %47s", &pid, &fd_there, token) != 3) {
        return CT_EPROTO;
    }
    (void)snprintf(path, sizeof path, "/proc/%ld/fd/%d", pid, fd_there);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return CT_EUNSUPPORTED;
    }
    int rc = map_place(fd, token, &map);
    (void)close(fd);
    if (rc == 0) {
        *out = (struct ct_dataset){0};
        adopt(out, map, 0);
    }
    return rc;
}

int ct_dataset_load_shared(const char *source, struct ctw_job *job, struct ct_dataset *out,
                           struct ct_err *err)
{
    const struct ctw_env *env = ctw_job_env(job);
    if (!env->launched || env->local_world_size == 1) {
        int rc = ct_dataset_load(source, out, err);
        if (rc == 0) {
            ct_mapping_use_large_pages(out->train.images, out->train.count * out->features);
        }
        return rc;
    }
    char key[32];
    (void)snprintf(key, sizeof key, KEY, env->node_rank);
    if (env->local_rank == 0) {
        return load_and_tell(source, job, key, out, err);
    }
    struct ct_buf told = CT_BUF_INIT;
    int rc = ctw_job_get_within(job, key, job->timeout_ms, &told, err);
    const char *text = rc == 0 ? ct_buf_cstr(&told) : NULL;
    if (rc == 0 && text == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    } else if (rc == 0 && text[0] == TOLD_FAILURE) {
        rc = ct_err_set(err, CT_EPEER, "%s", text + 1);
    } else if (rc == 0 && (text[0] != TOLD_PLACE || attach(text, out) != 0)) {
        rc = ct_dataset_load(source, out, err);
    }
    ct_buf_fini(&told);
    return rc;
}

int ct_dataset_tell(struct ctw_job *job, const struct ct_dataset *set, struct ct_err *err)
{
    const struct ctw_env *env = ctw_job_env(job);
    char key[32], told[CT_ERR_TEXT_MAX + 1] = {TOLD_NOTHING};
    if (!env->launched || env->local_world_size == 1 || env->local_rank != 0) {
        return 0;
    }
    (void)snprintf(key, sizeof key, KEY, env->node_rank);
    if (set->cache_fd > 0) {
        name_place(set, told, sizeof told);
    }
    return ctw_job_set(job, key, told, strlen(told), err);
}
