/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the newest complete checkpoint of a folder. A damaged one is skipped with a line in the
 * warnings. Only files that are named like checkpoints, and their temporary copies, are ever
 * removed or renamed. The caller frees lists and paths and closes the file.
 */
#include "trainer/recovery/checkpoint_dir.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/num.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "step-"
#define SUFFIX ".safetensors"
#define DIGITS 12 /* so that names sort like numbers; longer numbers are read, too */

static int out_of_memory(struct ct_err *err)
{
    return ct_err_set(err, CT_ENOMEM, "out of memory");
}

char *ct_checkpoint_dir_path(const char *dir, int64_t step)
{
    return ct_asprintf("%s/" PREFIX "%0*" PRId64 SUFFIX, dir, DIGITS, step);
}

/* Returns the step in a checkpoint's name; -1 for any other name, also for one with more leading
 * zeros than ours have, since a step must lead back to its file. */
static int64_t step_of(const char *name)
{
    size_t len = strlen(name), prefix = strlen(PREFIX), tail = strlen(SUFFIX);
    char digits[20];
    if (len < prefix + DIGITS + tail || len - prefix - tail >= sizeof digits ||
        strncmp(name, PREFIX, prefix) != 0 || strcmp(name + len - tail, SUFFIX) != 0) {
        return -1;
    }
    size_t count = len - prefix - tail;
    memcpy(digits, name + prefix, count);
    digits[count] = '\0';
    const char *first = digits + strspn(digits, "0"); /* strict numbers have no leading zeros */
    int64_t step;
    if (count > DIGITS && digits[0] == '0') {
        return -1;
    }
    if (*first == '\0') {
        return 0;
    }
    return ct_parse_i64(first, 0, INT64_MAX, &step) == 0 ? step : -1;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* Appends the steps of the folder's checkpoints. Returns 0 or an errno. */
static int read_steps(const char *dir, struct ct_buf *found)
{
    DIR *d = opendir(dir);
    if (d == NULL) {
        return errno == ENOENT ? 0 : errno;
    }
    int failed = 0;
    const struct dirent *entry;
    do {
        errno = 0; /* so that a failure of readdir() differs from the end */
        entry = readdir(d);
        int64_t step = entry != NULL ? step_of(entry->d_name) : -1;
        if (entry == NULL) {
            failed = errno;
        } else if (step >= 0 && ct_buf_append(found, &step, sizeof step) != 0) {
            failed = ENOMEM;
        }
    } while (entry != NULL && failed == 0);
    (void)closedir(d);
    return failed;
}

int ct_checkpoint_dir_list(const char *dir, int64_t **steps, size_t *count, struct ct_err *err)
{
    struct ct_buf found = CT_BUF_INIT;
    int failed = read_steps(dir, &found);
    int64_t *list = failed == 0 ? ct_malloc(found.len) : NULL;
    if (list == NULL) {
        ct_buf_fini(&found);
        return failed != 0 ? ct_err_sys(err, ct_code_from_errno(failed), failed,
                                        "cannot read the folder %s", dir)
                           : out_of_memory(err);
    }
    if (found.len > 0) {
        memcpy(list, ct_buf_bytes(&found), found.len);
    }
    *count = found.len / sizeof *list;
    ct_buf_fini(&found);
    qsort(list, *count, sizeof *list, newest_first);
    *steps = list;
    return 0;
}

/* Without this a new folder, and so all checkpoints in it, may be lost with the power. It may be
 * new also if it exists, because an earlier start may have been ended here. A parent that we may
 * not read cannot be synced, which is no reason not to train. */
static int sync_parent(const char *dir, struct ct_err *err)
{
    struct ct_err own = {0};
    char *path = ct_asprintf("%s/../.", dir); /* a file "." in the parent folder */
    if (path == NULL) {
        return out_of_memory(err);
    }
    int rc = ct_file_sync_folder(path, &own);
    ct_free(path);
    return rc == 0 || own.sys == EACCES ? 0 : ct_err_set(err, rc, "%s", own.text);
}

int ct_checkpoint_dir_probe(const char *dir, struct ct_err *err)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved,
                          "cannot make the checkpoint folder %s", dir);
    }
    char *path = ct_asprintf("%s/probe", dir);
    if (path == NULL) {
        return out_of_memory(err);
    }
    int rc = ct_checkpoint_probe(path, err);
    ct_free(path);
    return rc == 0 ? sync_parent(dir, err) : rc;
}

/* Does this failure mean that the file is torn or damaged, and not that it cannot be read now? A
 * file server may be away (ESTALE), or the process may be short of descriptors. */
static bool is_damage(const struct ct_err *reason)
{
    int code = reason->code;
    return (code == CT_EFORMAT || code == CT_ELIMIT || code == CT_EIO) &&
           (reason->sys == 0 || reason->sys == EIO);
}

/* `steps` are sorted, newest first. */
static int newest_of(const char *dir, const int64_t *steps, size_t count,
                     const struct ct_layout *layout, enum ct_optimizer_kind optimizer,
                     struct ct_safetensors *file, struct ct_progress_point *point,
                     struct ct_buf *warnings, struct ct_err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct ct_err reason = {0};
        char *path = ct_checkpoint_dir_path(dir, steps[i]);
        if (path == NULL) {
            return out_of_memory(err);
        }
        int rc = ct_checkpoint_open(path, layout, optimizer, file, point, &reason);
        if (rc == 0 && point->step != steps[i]) {
            ct_safetensors_fini(file);
            rc = ct_err_set(&reason, CT_EFORMAT, "%s: holds step %" PRId64, path, point->step);
        }
        ct_free(path);
        if (rc == 0) {
            return 0;
        }
        if (rc == CT_ENOENT) { /* another process has removed it since the folder was read */
            continue;
        }
        if (!is_damage(&reason)) {
            return ct_err_set(err, rc, "%s", reason.text);
        }
        rc = ct_buf_printf(warnings, "passing over a damaged checkpoint: %s\n", reason.text);
        if (rc != 0) {
            return out_of_memory(err);
        }
    }
    return CT_CHECKPOINT_DIR_E_NONE;
}

int ct_checkpoint_dir_newest(const char *dir, const struct ct_layout *layout,
                             enum ct_optimizer_kind optimizer, struct ct_safetensors *file,
                             struct ct_progress_point *point, struct ct_buf *warnings,
                             struct ct_err *err)
{
    int64_t *steps;
    size_t count;
    int rc = ct_checkpoint_dir_list(dir, &steps, &count, err);
    if (rc == 0) {
        rc = newest_of(dir, steps, count, layout, optimizer, file, point, warnings, err);
        ct_free(steps);
    }
    return rc;
}

static int remove_half_written(const char *dir, struct ct_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d == NULL) {
        int saved = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot open the folder %s", dir);
    }
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        char name[sizeof entry->d_name];
        (void)snprintf(name, sizeof name, "%.*s", (int)ct_checkpoint_temporary_of(entry->d_name),
                       entry->d_name);
        if (step_of(name) >= 0) {
            (void)unlinkat(fd, entry->d_name, 0);
        }
    }
    (void)closedir(d);
    return 0;
}

static int set_aside(const char *dir, int64_t step, struct ct_err *err)
{
    char *path = ct_checkpoint_dir_path(dir, step);
    char *aside = path != NULL ? ct_asprintf("%s.torn", path) : NULL;
    int rc = 0;
    if (aside == NULL) {
        rc = out_of_memory(err);
    } else if (rename(path, aside) != 0) {
        int saved = errno;
        rc = ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot set aside %s", path);
    }
    ct_free(aside);
    ct_free(path);
    return rc;
}

int ct_checkpoint_dir_start(const char *dir, int64_t step, bool torn_beyond, struct ct_err *err)
{
    int64_t *steps;
    size_t count;
    int rc = ct_checkpoint_dir_list(dir, &steps, &count, err);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < count && steps[i] > step; i++) {
        rc = torn_beyond
                 ? set_aside(dir, steps[i], err)
                 : ct_err_set(err, CT_EINVAL,
                              "%s holds a checkpoint of step %" PRId64 ", beyond step %" PRId64
                              " where this training starts: go on from it with --resume auto, or "
                              "name another --checkpoint-dir",
                              dir, steps[i], step);
    }
    ct_free(steps);
    return rc == 0 ? remove_half_written(dir, err) : rc;
}

void ct_checkpoint_dir_prune(const char *dir, int64_t step, int keep)
{
    int64_t *steps;
    size_t count;
    if (ct_checkpoint_dir_list(dir, &steps, &count, NULL) != 0) {
        return;
    }
    int seen = 0;
    for (size_t i = 0; i < count; i++) {
        char *path =
            steps[i] <= step && seen++ >= keep ? ct_checkpoint_dir_path(dir, steps[i]) : NULL;
        if (path != NULL) {
            (void)unlink(path);
        }
        ct_free(path);
    }
    ct_free(steps);
}
