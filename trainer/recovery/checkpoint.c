/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves into a file beside the target whose name no other writer uses, and renames it; on failure
 * it is removed. Each writer begins by removing the files of the others, so if two processes save
 * at once, the one that began last succeeds, and the other one finds no file to rename. A file is
 * loaded only if all names, shapes and checksums are right: a file of another model is CT_EINVAL
 * with the first difference, a damaged one CT_EFORMAT. The caller closes an opened file.
 */
#include "trainer/recovery/checkpoint.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/hash.h"
#include "common/num.h"
#include "trainer/formats/checksum.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A temporary file has the checkpoint's name, ".", so many hexadecimal digits and the suffix. */
#define DIGITS 16
#define SUFFIX ".tmp"

/* Weight and bias of each layer, among the parameters and in each optimizer state. */
#define TENSORS_MAX (2 * CT_LAYERS_MAX * (1 + CT_OPTIMIZER_STATES_MAX))

/* Describes tensor `i` of `state`: parameters first, then each state. False after the last one. */
static bool describe(const struct ct_state_view *state, size_t i, struct ct_tensor_out *out)
{
    size_t per_array = 2 * state->layout->layer_count;
    size_t array = i / per_array, part = i % per_array;
    const struct ct_layer *layer = &state->layout->layer[part / 2];
    bool bias = part % 2 == 1;
    char prefix[48] = "";
    const float *base = state->params;
    if (array > 0) {
        const char *name = ct_optimizer_state_name(state->optimizer, array - 1);
        if (name == NULL) {
            return false;
        }
        (void)snprintf(prefix, sizeof prefix, "optim.%s.", name);
        base = state->state[array - 1];
    }
    *out = (struct ct_tensor_out){.dims = bias ? 1 : 2, .shape = {layer->out, layer->in}};
    /* While a file is only checked, the state has no memory. */
    out->data = base != NULL ? base + (bias ? layer->bias : layer->weight) : NULL;
    (void)snprintf(out->name, sizeof out->name, "%slayers.%zu.%s", prefix, part / 2,
                   bias ? "bias" : "weight");
    return true;
}

static char *temporary_path(const char *path)
{
    struct ct_hash_key key;
    ct_hash_key_random(&key);
    return ct_asprintf("%s.%0*" PRIx64 SUFFIX, path, DIGITS, key.k0 ^ key.k1);
}

size_t ct_checkpoint_temporary_of(const char *name)
{
    const size_t tail = 1 + DIGITS + strlen(SUFFIX);
    size_t len = strlen(name);
    if (len <= tail || strcmp(name + len - strlen(SUFFIX), SUFFIX) != 0) {
        return 0;
    }
    const char *dot = name + len - tail;
    return *dot == '.' && strspn(dot + 1, "0123456789abcdef") == DIGITS ? len - tail : 0;
}

static int cannot_write(const char *path, const char *temporary, int errnum, struct ct_err *err)
{
    return ct_err_sys(err, ct_code_from_errno(errnum), errnum,
                      "cannot write checkpoint %s (by way of %s)", path, temporary);
}

/* Removes the temporary files of this checkpoint: what killed writers have left, and those of
 * processes that still write, which must not replace the file of one that has begun after them. In
 * a folder that cannot be read they stay. */
static int remove_temporaries(const char *path, struct ct_err *err)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    size_t len = strlen(name);
    char *folder = ct_asprintf("%.*s.", (int)(name - path), path);
    if (folder == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    DIR *d = opendir(folder);
    ct_free(folder);
    const struct dirent *entry;
    while (d != NULL && (entry = readdir(d)) != NULL) {
        size_t of = ct_checkpoint_temporary_of(entry->d_name);
        if (of > 0 && of == len && strncmp(entry->d_name, name, len) == 0) {
            (void)unlinkat(dirfd(d), entry->d_name, 0);
        }
    }
    if (d != NULL) {
        (void)closedir(d);
    }
    return 0;
}

/* Returns the descriptor, or a code. */
static int make_temporary(const char *path, const char *temporary, struct ct_err *err)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd >= 0 ? fd : cannot_write(path, temporary, errno, err);
}

int ct_checkpoint_probe(const char *path, struct ct_err *err)
{
    struct stat st;
    bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    if (folder || ct_file_is_special(path)) {
        return ct_err_set(err, CT_EINVAL, "cannot write checkpoint %s: it is %s", path,
                          folder ? "a folder" : "not a regular file");
    }
    char *temporary = temporary_path(path);
    if (temporary == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int fd = make_temporary(path, temporary, err);
    if (fd >= 0) {
        (void)close(fd);
        (void)unlink(temporary);
    }
    ct_free(temporary);
    return fd >= 0 ? 0 : fd;
}

/* The numbers of the metadata as text. */
struct described {
    char step[24], epoch[24], seed[24], batch[24], batch_size[24], tensors[12], metadata[12];
};

static int write_tensors(int fd, const struct ct_state_view *state,
                         const struct ct_progress_point *point, struct ct_err *err)
{
    struct ct_tensor_out *tensors = ct_calloc(TENSORS_MAX, sizeof *tensors);
    if (tensors == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    size_t count = 0;
    while (count < TENSORS_MAX && describe(state, count, &tensors[count])) {
        count++;
    }
    struct described text;
    (void)snprintf(text.step, sizeof text.step, "%" PRId64, point->step);
    (void)snprintf(text.epoch, sizeof text.epoch, "%d", point->epoch);
    (void)snprintf(text.seed, sizeof text.seed, "%" PRIu64, point->seed);
    (void)snprintf(text.batch, sizeof text.batch, "%zu", point->batch);
    (void)snprintf(text.batch_size, sizeof text.batch_size, "%zu", point->batch_size);
    (void)snprintf(text.tensors, sizeof text.tensors, "%08" PRIx32,
                   ct_checksum_tensors(tensors, count));
    const struct ct_metadata metadata[] = {
        {"format", "pt"}, /* transformers' loader requires it: F32 tensors laid out as in PyTorch */
        {"optimizer", ct_optimizer_name(state->optimizer)},
        {"epoch", text.epoch},
        {"batch", text.batch},
        {"batch_size", text.batch_size},
        {"step", text.step},
        {"seed", text.seed},
        {CT_CHECKSUM_TENSORS_KEY, text.tensors},
        {CT_CHECKSUM_METADATA_KEY, text.metadata}, /* of all entries above */
    };
    const size_t texts = sizeof metadata / sizeof metadata[0];
    (void)snprintf(text.metadata, sizeof text.metadata, "%08" PRIx32,
                   ct_checksum_metadata(metadata, texts - 1));
    int rc = ct_safetensors_write(fd, tensors, count, metadata, texts, err);
    ct_free(tensors);
    return rc;
}

static int save_to(int fd, const char *temporary, const char *path,
                   const struct ct_state_view *state, const struct ct_progress_point *point,
                   struct ct_err *err)
{
    int rc = write_tensors(fd, state, point, err);
    if (rc == 0 && fsync(fd) != 0) {
        int saved = errno;
        rc = ct_err_sys(err, CT_EIO, saved, "cannot sync");
    }
    if (rc == 0 && rename(temporary, path) != 0) {
        int saved = errno;
        rc = saved == ENOENT
                 ? ct_err_set(err, CT_EBUSY, "another process has begun to write it, too")
                 : ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot rename");
    }
    if (rc != 0) {
        (void)unlink(temporary);
        (void)ct_err_wrap(err, "checkpoint %s", temporary);
    }
    (void)close(fd); /* after fsync() nothing is left that could fail */
    return rc;
}

int ct_checkpoint_save(const char *path, const struct ct_state_view *state,
                       const struct ct_progress_point *point, struct ct_err *err)
{
    char *temporary = temporary_path(path);
    if (temporary == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = remove_temporaries(path, err);
    if (rc == 0) {
        int fd = make_temporary(path, temporary, err);
        rc = fd >= 0 ? save_to(fd, temporary, path, state, point, err) : fd;
    }
    if (rc == 0) {
        rc = ct_file_sync_folder(path, err); /* without this the rename may be lost */
    }
    ct_free(temporary);
    return rc;
}

/* Writes for example "[512, 784]". */
static void format_shape(char *out, size_t size, size_t dims, uint64_t first, uint64_t second)
{
    if (dims == 1) {
        (void)snprintf(out, size, "[%" PRIu64 "]", first);
    } else if (dims == 2) {
        (void)snprintf(out, size, "[%" PRIu64 ", %" PRIu64 "]", first, second);
    } else {
        (void)snprintf(out, size, "of %zu dimensions", dims);
    }
}

static int check_tensor(const struct ct_safetensors *file, const struct ct_tensor_out *want,
                        struct ct_err *err)
{
    const struct ct_tensor *have = ct_safetensors_find(file, want->name);
    if (have == NULL) {
        return ct_err_set(err, CT_EINVAL, "holds no tensor %s, which this model has", want->name);
    }
    if (strcmp(have->dtype, "F32") != 0) {
        return ct_err_set(err, CT_EINVAL, "tensor %s is %s, not F32", want->name, have->dtype);
    }
    bool same = have->dims == want->dims;
    for (size_t i = 0; same && i < want->dims; i++) {
        same = have->shape[i] == want->shape[i];
    }
    if (!same) {
        char there[64], here[64];
        format_shape(there, sizeof there, have->dims, have->shape[0], have->shape[1]);
        format_shape(here, sizeof here, want->dims, want->shape[0], want->shape[1]);
        return ct_err_set(
            err, CT_EINVAL,
            "another shape: tensor %s is %s there but %s in this model (see --hidden)", want->name,
            there, here);
    }
    return 0;
}

/* Reads a number of the metadata. An optional key that is missing counts as 0. */
static int read_number(const struct ct_safetensors *file, const char *key, bool optional,
                       int64_t max, int64_t *out, struct ct_err *err)
{
    const char *text = ct_safetensors_metadata(file, key);
    if (text == NULL && optional) {
        *out = 0;
        return 0;
    }
    if (text == NULL || ct_parse_i64(text, 0, max, out) != 0) {
        return ct_err_set(err, CT_EFORMAT, "its metadata have no valid %s", key);
    }
    return 0;
}

static int check_file(const struct ct_safetensors *file, const struct ct_layout *layout,
                      enum ct_optimizer_kind optimizer, struct ct_progress_point *point,
                      struct ct_err *err)
{
    const char *name = ct_safetensors_metadata(file, "optimizer");
    if (name == NULL) {
        return ct_err_set(err, CT_EINVAL,
                          "its metadata name no optimizer: not a checkpoint of "
                          "this program");
    }
    if (strcmp(name, ct_optimizer_name(optimizer)) != 0) {
        return ct_err_set(err, CT_EINVAL, "was trained with --optimizer %.32s, not %s", name,
                          ct_optimizer_name(optimizer));
    }
    const struct ct_state_view state = {.layout = layout, .optimizer = optimizer};
    struct ct_tensor_out want;
    size_t count = 0;
    for (; describe(&state, count, &want); count++) {
        int rc = check_tensor(file, &want, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (file->count != count) {
        return ct_err_set(err, CT_EINVAL,
                          "another shape: it holds %zu tensors, this model has %zu (see --hidden)",
                          file->count, count);
    }
    int64_t epoch, seed, batch, batch_size;
    int rc = read_number(file, "epoch", false, INT_MAX, &epoch, err);
    if (rc == 0) {
        rc = read_number(file, "seed", false, INT64_MAX, &seed, err);
    }
    if (rc == 0) {
        rc = read_number(file, "batch", true, UINT32_MAX, &batch, err);
    }
    if (rc == 0) {
        rc = read_number(file, "batch_size", true, INT_MAX, &batch_size, err);
    }
    if (rc == 0) {
        rc = read_number(file, "step", false, INT64_MAX - 1, &point->step, err);
    }
    if (rc == 0) {
        point->epoch = (int)epoch;
        point->seed = (uint64_t)seed;
        point->batch = (size_t)batch;
        point->batch_size = (size_t)batch_size;
    }
    return rc;
}

int ct_checkpoint_open(const char *path, const struct ct_layout *layout,
                       enum ct_optimizer_kind optimizer, struct ct_safetensors *file,
                       struct ct_progress_point *point, struct ct_err *err)
{
    struct ct_safetensors opened;
    struct ct_progress_point found;
    int rc = ct_safetensors_open(path, &opened, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_checksum_verify(&opened, err);
    if (rc == 0) {
        rc = check_file(&opened, layout, optimizer, &found, err);
    }
    if (rc != 0) {
        ct_safetensors_fini(&opened);
        (void)ct_err_wrap(err, "%s", path);
        return rc;
    }
    *file = opened;
    *point = found;
    return 0;
}

int ct_checkpoint_load(const struct ct_safetensors *file, const struct ct_state_view *state,
                       struct ct_err *err)
{
    struct ct_tensor_out want;
    for (size_t i = 0; describe(state, i, &want); i++) {
        const struct ct_tensor *have = ct_safetensors_find(file, want.name);
        CT_ASSERT(have != NULL && want.data != NULL);
        /* The view serves both directions, so its data is const; here it is written. */
        int rc = ct_safetensors_read(file, have, (void *)(uintptr_t)want.data, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
