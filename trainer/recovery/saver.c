/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread and one buffer, which caller and thread hand to each other under a lock. A failed
 * write is remembered until ct_saver_news() or ct_saver_wait() reports it; the next write is tried
 * all the same. ct_saver_free() waits for the write under way and frees all.
 */
#include "trainer/recovery/saver.h"

#include "common/alloc.h"
#include "trainer/recovery/checkpoint_dir.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/statvfs.h>

enum slot { SLOT_FREE, SLOT_COMMITTED };

struct ct_saver {
    struct ct_saver_options options;
    struct ct_state_view view; /* of the snapshot */
    float *snapshot;           /* the caller's if FREE, the thread's if COMMITTED */
    size_t arrays;
    struct ct_progress_point point;

    pthread_t thread;
    pthread_mutex_t lock;   /* protects the fields below */
    pthread_cond_t changed; /* signals a change of slot or closing */
    enum slot slot;
    bool closing;
    struct ct_saver_counts counts;
    struct ct_err last; /* of the newest write; code 0 = it succeeded */
    bool told;          /* `last` has been reported, or there is nothing to report */
};

/* ---- the thread ------------------------------------------------------------------------------ */

/* Without this check a diverged model could replace the last good one. */
static bool all_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i])) {
            return false;
        }
    }
    return true;
}

/* Adds how many bytes are missing, which "No space left on device" does not say. */
static void add_space(const struct ct_saver *saver, const char *path, struct ct_err *err)
{
    struct statvfs fs;
    if (err == NULL || (err->sys != ENOSPC && err->sys != EDQUOT && err->sys != EFBIG)) {
        return;
    }
    char *folder = ct_strdup(path);
    char *slash = folder != NULL ? strrchr(folder, '/') : NULL;
    if (slash != NULL) {
        slash[slash == folder ? 1 : 0] = '\0';
    }
    if (folder != NULL && statvfs(slash != NULL ? folder : ".", &fs) == 0) {
        double needed = (double)(saver->arrays * saver->options.layout->count * sizeof(float));
        double space = (double)fs.f_bavail * (double)fs.f_frsize;
        const struct ct_err old = *err;
        (void)ct_err_set(err, old.code, "%s (%.1f MB needed, %.1f MB free)", old.text, needed / 1e6,
                         space / 1e6);
    }
    ct_free(folder);
}

static int write_one(struct ct_saver *saver, const char *path, struct ct_err *err)
{
    int rc = ct_checkpoint_save(path, &saver->view, &saver->point, err);
    if (rc != 0) {
        add_space(saver, path, err);
    }
    return rc;
}

static int write_into_dir(struct ct_saver *saver, struct ct_err *err)
{
    char *path = ct_checkpoint_dir_path(saver->options.dir, saver->point.step);
    if (path == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = write_one(saver, path, err);
    if (rc == 0) {
        ct_checkpoint_dir_prune(saver->options.dir, saver->point.step, saver->options.keep);
    }
    ct_free(path);
    return rc;
}

static int write_snapshot(struct ct_saver *saver, struct ct_err *err)
{
    if (!all_finite(saver->snapshot, saver->options.layout->count)) {
        return ct_err_set(err, CT_ELIMIT,
                          "checkpoint of step %lld: its parameters contain NaN or infinity",
                          (long long)saver->point.step);
    }
    /* Both are tried, because one file system may be full and the other not. The first failure is
     * the one that is told. */
    int rc = saver->options.file != NULL ? write_one(saver, saver->options.file, err) : 0;
    if (saver->options.dir != NULL) {
        int dir_rc = write_into_dir(saver, rc == 0 ? err : NULL);
        if (rc == 0) {
            rc = dir_rc;
        }
    }
    return rc;
}

static void note_outcome(struct ct_saver *saver, int rc, const struct ct_err *err)
{
    bool was_good = saver->last.code == 0;
    saver->counts.written += rc == 0;
    saver->counts.failed += rc != 0;
    saver->last = *err;
    saver->last.code = rc;
    saver->told = rc == 0 || (!was_good && saver->told);
}

static void *run(void *data)
{
    struct ct_saver *saver = data;
    (void)pthread_mutex_lock(&saver->lock);
    for (;;) {
        while (saver->slot == SLOT_FREE && !saver->closing) {
            (void)pthread_cond_wait(&saver->changed, &saver->lock);
        }
        if (saver->slot == SLOT_FREE) {
            break;
        }
        (void)pthread_mutex_unlock(&saver->lock);
        struct ct_err err = {0};
        int rc = write_snapshot(saver, &err);
        (void)pthread_mutex_lock(&saver->lock);
        note_outcome(saver, rc, &err);
        saver->slot = SLOT_FREE;
        (void)pthread_cond_broadcast(&saver->changed);
    }
    (void)pthread_mutex_unlock(&saver->lock);
    return NULL;
}

/* ---- the caller ------------------------------------------------------------------------------ */

/* Blocks all signals in the thread, so that they interrupt the training and never a write. */
static int start_thread(struct ct_saver *saver)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&saver->thread, NULL, run, saver);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

int ct_saver_open(const struct ct_saver_options *options, struct ct_saver **out, struct ct_err *err)
{
    CT_ASSERT(options->file != NULL || options->dir != NULL);
    struct ct_saver *saver = ct_calloc(1, sizeof *saver);
    if (saver == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    size_t count = options->layout->count;
    saver->options = *options;
    saver->told = true;
    saver->arrays = 1;
    while (ct_optimizer_state_name(options->optimizer, saver->arrays - 1) != NULL) {
        saver->arrays++;
    }
    saver->snapshot = ct_calloc(saver->arrays * count, sizeof *saver->snapshot);
    if (saver->snapshot == NULL) {
        ct_free(saver);
        return ct_err_set(err, CT_ENOMEM, "out of memory for a copy of the model (checkpoints)");
    }
    saver->view = (struct ct_state_view){
        .layout = options->layout, .optimizer = options->optimizer, .params = saver->snapshot};
    for (size_t i = 1; i < saver->arrays; i++) {
        saver->view.state[i - 1] = saver->snapshot + i * count;
    }
    (void)pthread_mutex_init(&saver->lock, NULL);
    (void)pthread_cond_init(&saver->changed, NULL);
    int failed = start_thread(saver);
    if (failed != 0) {
        (void)pthread_cond_destroy(&saver->changed);
        (void)pthread_mutex_destroy(&saver->lock);
        ct_free(saver->snapshot);
        ct_free(saver);
        return ct_err_sys(err, ct_code_from_errno(failed), failed,
                          "cannot start a thread for checkpoints");
    }
    *out = saver;
    return 0;
}

void ct_saver_free(struct ct_saver *saver)
{
    if (saver == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&saver->lock);
    saver->closing = true;
    (void)pthread_cond_broadcast(&saver->changed);
    (void)pthread_mutex_unlock(&saver->lock);
    (void)pthread_join(saver->thread, NULL);
    (void)pthread_cond_destroy(&saver->changed);
    (void)pthread_mutex_destroy(&saver->lock);
    ct_free(saver->snapshot);
    ct_free(saver);
}

/* Needs the lock. */
static void wait_until_free(struct ct_saver *saver)
{
    while (saver->slot != SLOT_FREE) {
        (void)pthread_cond_wait(&saver->changed, &saver->lock);
    }
}

float *ct_saver_begin(struct ct_saver *saver, bool wait)
{
    (void)pthread_mutex_lock(&saver->lock);
    if (wait) {
        wait_until_free(saver);
    }
    bool available = saver->slot == SLOT_FREE;
    saver->counts.skipped += !available;
    (void)pthread_mutex_unlock(&saver->lock);
    return available ? saver->snapshot : NULL;
}

void ct_saver_commit(struct ct_saver *saver, const struct ct_progress_point *point)
{
    (void)pthread_mutex_lock(&saver->lock);
    CT_ASSERT(saver->slot == SLOT_FREE);
    saver->point = *point;
    saver->slot = SLOT_COMMITTED;
    (void)pthread_cond_broadcast(&saver->changed);
    (void)pthread_mutex_unlock(&saver->lock);
}

int ct_saver_wait(struct ct_saver *saver, struct ct_err *err)
{
    (void)pthread_mutex_lock(&saver->lock);
    wait_until_free(saver);
    struct ct_err last = saver->last;
    saver->told = true;
    (void)pthread_mutex_unlock(&saver->lock);
    return last.code == 0 ? 0 : ct_err_set(err, last.code, "%s", last.text);
}

bool ct_saver_news(struct ct_saver *saver, struct ct_err *reason)
{
    (void)pthread_mutex_lock(&saver->lock);
    bool news = !saver->told;
    if (news) {
        *reason = saver->last;
        saver->told = true;
    }
    (void)pthread_mutex_unlock(&saver->lock);
    return news;
}

struct ct_saver_counts ct_saver_count(struct ct_saver *saver)
{
    (void)pthread_mutex_lock(&saver->lock);
    struct ct_saver_counts counts = saver->counts;
    (void)pthread_mutex_unlock(&saver->lock);
    return counts;
}
