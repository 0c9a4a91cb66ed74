/* SPDX-License-Identifier: Apache-2.0
 *
 * Each folder and file is opened first and then checked through its descriptor, so that nobody can
 * exchange it between the two.
 *
 * Failure modes: what is not this user's alone is refused by name; a file of a job that is missing
 * or no regular file counts as not there.
 */
#include "launcher/detach/state_folder.h"

#include "common/file.h"
#include "launcher/util/environ.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRAFT ".draft"

static int too_long(const char *name, struct ct_err *err)
{
    return ct_err_set(err, CT_ELIMIT, "%s is too long for the folder of detached jobs", name);
}

int ct_state_folder_path(char *const *env, char out[CT_STATE_FOLDER_MAX], struct ct_err *err)
{
    const char *state = ct_environ_get(env, "XDG_STATE_HOME");
    const char *home = ct_environ_get(env, "HOME");
    int len;
    if (state != NULL && state[0] == '/') {
        len = snprintf(out, CT_STATE_FOLDER_MAX, "%s/ctrun", state);
        return len < CT_STATE_FOLDER_MAX ? 0 : too_long("XDG_STATE_HOME", err);
    }
    if (home == NULL || home[0] != '/') {
        return ct_err_set(err, CT_ENOENT,
                          "there is no folder for detached jobs: set HOME or XDG_STATE_HOME to an "
                          "absolute path");
    }
    len = snprintf(out, CT_STATE_FOLDER_MAX, "%s/.local/state/ctrun", home);
    return len < CT_STATE_FOLDER_MAX ? 0 : too_long("HOME", err);
}

int ct_state_folder_advise(struct ct_err *err, int code)
{
    if (err == NULL) {
        return code;
    }
    const struct ct_err why = *err;
    return ct_err_set(err, code, "%s; set XDG_STATE_HOME to a folder where you may write",
                      why.text);
}

/* mkdir -p, of folders that are this user's alone. */
static int make_path(const char *path, struct ct_err *err)
{
    char part[CT_STATE_FOLDER_MAX];
    size_t len = strlen(path);
    if (len >= sizeof(part)) {
        return too_long(path, err);
    }
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST) {
            int saved = errno;
            (void)ct_err_sys(err, ct_code_from_errno(saved), saved,
                             "cannot make the folder %s for detached jobs", part);
            return ct_state_folder_advise(err, ct_code_from_errno(saved));
        }
    }
    return 0;
}

/* Opens the folder `name` of the folder `at`; messages call it `shown`. */
static int open_own(int at, const char *name, const char *shown, struct ct_err *err)
{
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int saved = errno;
        if (saved == ELOOP || saved == ENOTDIR) { /* of a link either, by the kernel */
            bool is_link = fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
            return ct_err_set(err, CT_EPERM, "the folder %s of detached jobs is %s", shown,
                              is_link ? "a symbolic link, which ctrun does not follow" : "a file");
        }
        return ct_err_sys(err, ct_code_from_errno(saved), saved,
                          "cannot open the folder %s of detached jobs", shown);
    }
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid()) {
        (void)close(fd);
        return ct_err_set(err, CT_EPERM, "the folder %s of detached jobs belongs to another user",
                          shown);
    }
    if ((st.st_mode & 077) != 0) {
        (void)close(fd);
        return ct_err_set(err, CT_EPERM,
                          "the folder %s of detached jobs is open to other users: chmod 700 it, or "
                          "remove it",
                          shown);
    }
    return fd;
}

int ct_state_folder_open(const char *path, bool make, struct ct_err *err)
{
    int rc = make ? make_path(path, err) : 0;
    if (rc != 0) {
        return rc;
    }
    int fd = open_own(AT_FDCWD, path, path, err);
    return fd < 0 ? ct_state_folder_advise(err, fd) : fd;
}

int ct_state_folder_make_job(int root, const char *name, struct ct_err *err)
{
    if (mkdirat(root, name, 0700) != 0) {
        int saved = errno;
        return ct_err_sys(err, saved == EEXIST ? CT_EBUSY : ct_code_from_errno(saved), saved,
                          "cannot make the folder %s of a detached job", name);
    }
    int fd = open_own(root, name, name, err);
    if (fd < 0) {
        (void)unlinkat(root, name, AT_REMOVEDIR);
    }
    return fd;
}

int ct_state_folder_open_job(int root, const char *name, struct ct_err *err)
{
    return open_own(root, name, name, err);
}

int ct_state_folder_open_file(int job, const char *name, int flags, struct ct_err *err)
{
    struct stat st;
    int fd = openat(job, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) {
        int saved = errno;
        int code = saved == ELOOP ? CT_EPERM : ct_code_from_errno(saved);
        return ct_err_sys(err, code, saved, "cannot open its %s", name);
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        (void)close(fd);
        return ct_err_set(err, CT_EPERM, "its %s is no file of this user", name);
    }
    return fd;
}

bool ct_state_folder_read_fd(int fd, char *out, size_t size)
{
    ssize_t n;
    do {
        n = pread(fd, out, size - 1, 0);
    } while (n < 0 && errno == EINTR);
    out[n > 0 ? n : 0] = '\0';
    return n >= 0;
}

bool ct_state_folder_read(int job, const char *name, char *out, size_t size)
{
    int fd = ct_state_folder_open_file(job, name, O_RDONLY, NULL);
    if (fd < 0) {
        return false;
    }
    bool read = ct_state_folder_read_fd(fd, out, size);
    (void)close(fd);
    return read;
}

int ct_state_folder_write(int job, const char *name, const char *text, size_t len,
                          struct ct_err *err)
{
    (void)unlinkat(job, DRAFT, 0);
    int fd = ct_state_folder_open_file(job, DRAFT, O_WRONLY | O_CREAT | O_EXCL, err);
    if (fd < 0) {
        return fd;
    }
    int rc = ct_fd_write_all(fd, text, len);
    int saved = errno;
    (void)close(fd);
    if (rc == 0 && renameat(job, DRAFT, job, name) != 0) {
        saved = errno;
        rc = CT_EIO;
    }
    if (rc != 0) {
        (void)unlinkat(job, DRAFT, 0);
        return ct_err_sys(err, rc, saved, "cannot write its %s", name);
    }
    return 0;
}

void ct_state_folder_remove_job(int root, const char *name)
{
    static const char *const files[] = {CT_STATE_CONSOLE, CT_STATE_JOB, CT_STATE_EXIT, DRAFT};
    int job = ct_state_folder_open_job(root, name, NULL);
    if (job < 0) {
        return;
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        (void)unlinkat(job, files[i], 0);
    }
    (void)close(job);
    (void)unlinkat(root, name, AT_REMOVEDIR);
}
