/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: make the base folder, then one for this run with random letters in its name, then for
 * each generation one folder for each worker. A temporary base is removed at the end, unless
 * the caller keeps it.
 *
 * Failure modes: a folder that cannot be made fails the start and is named in the error.
 */
#include "launcher/process/logdir.h"

#include "common/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Folders in folders that ctrun makes: base, run, attempt, rank. */
#define OWN_LEVELS 4

/* Descriptors that nftw() may hold open. It walks deeper trees, too, only more slowly. */
#define WALK_FDS 16

#define RUN_RANDOM 8
/* A name of 40 random bits may be taken once in a while, but not so many times in a row. */
#define RUN_ATTEMPTS 16

static int sys_fail(struct ct_err *err, const char *path)
{
    int saved = errno;
    return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot make the folder %s", path);
}

static int no_memory(struct ct_err *err)
{
    return ct_err_set(err, CT_ENOMEM, "log folder: out of memory");
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* mkdir -p */
static int make_path(const char *path, struct ct_err *err)
{
    char *copy = ct_strdup(path);
    int rc = 0;
    if (copy == NULL) {
        return no_memory(err);
    }
    for (char *p = copy; rc == 0 && p != NULL;) {
        p = strchr(p + 1, '/');
        if (p != NULL) {
            *p = '\0';
        }
        if (mkdir(copy, 0777) != 0) {
            rc = errno != EEXIST ? sys_fail(err, copy)
                 : is_folder(copy)
                     ? 0
                     : ct_err_set(err, CT_EIO, "%s is no folder: name another one", copy);
        }
        if (p != NULL) {
            *p = '/';
        }
    }
    ct_free(copy);
    return rc;
}

static int make_temporary(const char *tmp_dir, char **out, struct ct_err *err)
{
    char *path = ct_asprintf("%s/ctrun_XXXXXX", tmp_dir);
    if (path == NULL) {
        return no_memory(err);
    }
    if (mkdtemp(path) == NULL) {
        int rc = sys_fail(err, path);
        ct_free(path);
        return rc;
    }
    *out = path;
    return 0;
}

/* Workers may change their current folder, so the paths that they get must be absolute. */
static int make_absolute(const char *path, char **out, struct ct_err *err)
{
    char real[PATH_MAX];
    if (realpath(path, real) == NULL) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot use the folder %s", path);
    }
    *out = ct_strdup(real);
    return *out != NULL ? 0 : no_memory(err);
}

static int make_base(const char *log_dir, const char *tmp_dir, struct ct_logdir *logdir,
                     struct ct_err *err)
{
    if (log_dir == NULL) {
        logdir->temporary = true;
        return make_temporary(tmp_dir != NULL && tmp_dir[0] == '/' ? tmp_dir : "/tmp",
                              &logdir->base, err);
    }
    int rc = make_path(log_dir, err);
    if (rc != 0) {
        return rc;
    }
    return make_absolute(log_dir, &logdir->base, err);
}

/* The name ends in random characters, because two jobs may have the same id. mkdtemp(3) would add 6
 * of them, but torchrun's tools look for 8. */
static int make_run(const char *base, const char *run_id, char **out, struct ct_err *err)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz012345";
    for (int attempt = 0; attempt < RUN_ATTEMPTS; attempt++) {
        unsigned char random[RUN_RANDOM];
        char suffix[RUN_RANDOM + 1] = "";
        if (getentropy(random, sizeof(random)) != 0) {
            return sys_fail(err, base);
        }
        for (int i = 0; i < RUN_RANDOM; i++) {
            suffix[i] = alphabet[random[i] % (sizeof(alphabet) - 1)];
        }
        char *path = ct_asprintf("%s/%s_%s", base, run_id, suffix);
        if (path == NULL) {
            return no_memory(err);
        }
        /* An id may have a slash, a folder's name may not. */
        for (char *p = path + strlen(base) + 1; *p != '\0'; p++) {
            *p = *p == '/' ? '_' : *p;
        }
        if (mkdir(path, 0700) == 0) {
            *out = path;
            return 0;
        }
        int rc = errno == EEXIST ? 0 : sys_fail(err, path);
        ct_free(path);
        if (rc != 0) {
            return rc;
        }
    }
    return ct_err_set(err, CT_EBUSY, "cannot find a free name for a log folder in %s", base);
}

int ct_logdir_init(const char *log_dir, const char *tmp_dir, const char *run_id,
                   struct ct_logdir *out, struct ct_err *err)
{
    struct ct_logdir logdir = {0};
    if (log_dir != NULL && strcmp(log_dir, "/dev/null") == 0) {
        *out = logdir;
        return 0;
    }
    int rc = make_base(log_dir, tmp_dir, &logdir, err);
    if (rc == 0) {
        rc = make_run(logdir.base, run_id, &logdir.run, err);
    }
    if (rc != 0) {
        ct_logdir_fini(&logdir, false);
        return rc;
    }
    *out = logdir;
    return 0;
}

/* Removes a folder with its files and with `levels` levels of folders. It is first tried as an
 * empty one, as most are after a job. False when something is left. */
static bool remove_folder(int parent, const char *name, int levels)
{
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0) {
        return true;
    }
    int fd = errno == ENOTEMPTY && levels > 0
                 ? openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                 : -1;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (entry->d_type == DT_DIR || unlinkat(fd, entry->d_name, 0) != 0) {
            (void)remove_folder(fd, entry->d_name, levels - 1);
        }
    }
    closedir(dir);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    (void)remove(path);
    return 0;
}

void ct_logdir_remove(const char *path)
{
    /* Workers may have made folders of any depth. */
    if (!remove_folder(AT_FDCWD, path, OWN_LEVELS)) {
        (void)nftw(path, remove_entry, WALK_FDS, FTW_DEPTH | FTW_PHYS);
    }
}

void ct_logdir_fini(struct ct_logdir *logdir, bool keep)
{
    if (logdir == NULL) {
        return;
    }
    if (logdir->temporary && !keep && logdir->base != NULL) {
        ct_logdir_remove(logdir->base);
    }
    ct_free(logdir->base);
    ct_free(logdir->run);
    *logdir = (struct ct_logdir){0};
}

static int make_one(char *path, struct ct_err *err)
{
    int rc = 0;
    if (path == NULL) {
        return no_memory(err);
    }
    if (mkdir(path, 0777) != 0) {
        rc = sys_fail(err, path);
    }
    ct_free(path);
    return rc;
}

int ct_logdir_make(const struct ct_logdir *logdir, int generation, int workers, struct ct_err *err)
{
    if (logdir->base == NULL) {
        return 0;
    }
    int rc = make_one(ct_asprintf("%s/attempt_%d", logdir->run, generation), err);
    for (int i = 0; rc == 0 && i < workers; i++) {
        rc = make_one(ct_logdir_path(logdir, generation, i, ""), err);
    }
    return rc;
}

char *ct_logdir_path(const struct ct_logdir *logdir, int generation, int local_rank,
                     const char *name)
{
    if (logdir->base == NULL) {
        return ct_strdup("");
    }
    return ct_asprintf("%s/attempt_%d/%d%s%s", logdir->run, generation, local_rank,
                       name[0] != '\0' ? "/" : "", name);
}

char *ct_logdir_shared_path(const struct ct_logdir *logdir, int generation, const char *name)
{
    return ct_asprintf("%s/attempt_%d/%s", logdir->run, generation, name);
}
