/* SPDX-License-Identifier: Apache-2.0
 *
 * An entry is a file named by the process id, with five lines: the time at which that process
 * began, the namespace of its id, the address, the name and the program. Another process may have
 * the same id later, but not the same time; an id of another namespace, as in a container that
 * shares the folder, says nothing here. An older ctrun writes no program.
 *
 * Every file is opened below the checked folder and without following links. Failure modes: a
 * folder that is not safe is an error; an entry that makes no sense is skipped.
 */
#include "common/job_registry.h"

#include "common/file.h"
#include "common/num.h"
#include "common/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENTRY_MAX 1024
#define TIME_MAX 24
#define NAMESPACE_MAX 64

void ct_job_registry_folder(const char *runtime_dir, uid_t uid, char out[CT_JOB_FOLDER_MAX])
{
    if (runtime_dir != NULL && runtime_dir[0] == '/' &&
        strlen(runtime_dir) < CT_JOB_FOLDER_MAX - sizeof("/ctrun")) {
        (void)snprintf(out, CT_JOB_FOLDER_MAX, "%s/ctrun", runtime_dir);
    } else {
        (void)snprintf(out, CT_JOB_FOLDER_MAX, "/tmp/ctrun-%lu", (unsigned long)uid);
    }
}

/* Returns the folder's descriptor. */
static int open_folder(const char *folder, struct ct_err *err)
{
    struct stat st;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int code = errno == ELOOP || errno == ENOTDIR ? CT_EPERM : ct_code_from_errno(errno);
        return ct_err_sys(err, code, errno, "cannot open the folder of jobs %s", folder);
    }
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        (void)close(fd);
        return ct_err_set(err, CT_EPERM, "the folder of jobs %s is not this user's alone", folder);
    }
    return fd;
}

static ssize_t read_some(int fd, char *out, size_t size)
{
    ssize_t n;
    do {
        n = read(fd, out, size - 1);
    } while (n < 0 && errno == EINTR);
    out[n > 0 ? n : 0] = '\0';
    return n;
}

/* Finds when a process began, in clock ticks since the start of the machine, and its state. */
static bool read_process(pid_t pid, char start[TIME_MAX], char *state)
{
    char path[64], text[ENTRY_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read_some(fd, text, sizeof(text));
    (void)close(fd);
    /* The name in parentheses may have any bytes; the state is the first field behind it, the time
     * the 20th. */
    char *field = n > 0 ? strrchr(text, ')') : NULL;
    *state = field != NULL && field[1] == ' ' ? field[2] : '\0';
    for (int i = 0; i < 20 && field != NULL; i++) {
        field = strchr(field + 1, ' ');
    }
    if (field == NULL) {
        return false;
    }
    size_t len = strcspn(field + 1, " \n");
    (void)snprintf(start, TIME_MAX, "%.*s", (int)(len < TIME_MAX ? len : TIME_MAX - 1), field + 1);
    return len > 0;
}

/* The seconds since `start`, or -1. Both count from the start of the machine. */
static int64_t age_of(const char *start)
{
    struct timespec now;
    int64_t ticks;
    long per_second = sysconf(_SC_CLK_TCK);
    if (per_second <= 0 || ct_parse_i64(start, 0, INT64_MAX, &ticks) != 0 ||
        clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
        return -1;
    }
    int64_t age_s = (int64_t)now.tv_sec - ticks / per_second;
    return age_s >= 0 ? age_s : 0;
}

static void read_link(const char *path, char out[NAMESPACE_MAX])
{
    ssize_t n = readlink(path, out, NAMESPACE_MAX - 1);
    out[n > 0 ? n : 0] = '\0';
}

static void read_namespace(char out[NAMESPACE_MAX])
{
    read_link("/proc/self/ns/pid", out);
}

/* Is the process in another network namespace? Where that cannot be read, it is not. */
static bool is_elsewhere(pid_t pid)
{
    char path[64], theirs[NAMESPACE_MAX], ours[NAMESPACE_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%ld/ns/net", (long)pid);
    read_link(path, theirs);
    read_link("/proc/self/ns/net", ours);
    return theirs[0] != '\0' && ours[0] != '\0' && strcmp(theirs, ours) != 0;
}

int ct_job_registry_add(const char *folder, const char *address, const char *name,
                        const char *program, struct ct_err *err)
{
    char start[TIME_MAX], space[NAMESPACE_MAX], clean[CT_JOB_NAME_MAX];
    char cut[CT_JOB_PROGRAM_MAX], state;
    char file[32], draft[32], text[ENTRY_MAX];
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno,
                          "cannot make the folder of jobs %s", folder);
    }
    int dir = open_folder(folder, err);
    if (dir < 0) {
        return dir;
    }
    (void)ct_text_fit(name, CT_JOB_NAME_MAX, clean, sizeof(clean));
    (void)ct_text_cut(program, CT_JOB_PROGRAM_MAX, cut, sizeof(cut));
    read_namespace(space);
    (void)snprintf(file, sizeof(file), "%ld", (long)getpid());
    (void)snprintf(draft, sizeof(draft), ".%ld", (long)getpid());
    int rc = CT_EIO, fd = -1;
    if (read_process(getpid(), start, &state)) {
        (void)unlinkat(dir, draft, 0); /* of an earlier process with this id */
        fd = openat(dir, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    }
    if (fd >= 0) {
        int len = snprintf(text, sizeof(text), "%s\n%s\n%.*s\n%s\n%s\n", start, space,
                           CT_JOB_ADDRESS_MAX - 1, address, clean, cut);
        rc = ct_fd_write_all(fd, text, (size_t)len);
        (void)close(fd);
    }
    /* Whoever lists the jobs sees the whole entry or none. */
    if (rc == 0 && renameat(dir, draft, dir, file) != 0) {
        rc = CT_EIO;
    }
    if (rc != 0) {
        rc = ct_err_sys(err, CT_EIO, errno, "cannot enter the job in %s", folder);
        (void)unlinkat(dir, draft, 0);
    }
    (void)close(dir);
    return rc;
}

void ct_job_registry_remove(const char *folder)
{
    char file[32];
    int dir = open_folder(folder, NULL);
    (void)snprintf(file, sizeof(file), "%ld", (long)getpid());
    if (dir >= 0) {
        (void)unlinkat(dir, file, 0);
        (void)close(dir);
    }
}

/* Splits off the next line; NULL if it has no end. */
static char *next_line(char **text)
{
    char *line = *text, *end = strchr(line, '\n');
    if (end == NULL) {
        return NULL;
    }
    *end = '\0';
    *text = end + 1;
    return line;
}

/* Reads the entry `file`. Sets *stale if its process does not run any more. */
static bool read_entry(int dir, const char *file, struct ct_job_entry *out, bool *stale)
{
    char text[ENTRY_MAX], start[TIME_MAX], space[NAMESPACE_MAX];
    struct stat st;
    int pid;
    *stale = false;
    if (ct_parse_int(file, 1, INT_MAX, &pid) != 0) {
        return false;
    }
    int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid();
    ssize_t n = regular ? read_some(fd, text, sizeof(text)) : 0;
    (void)close(fd);
    char *rest = text;
    char *began = n > 0 ? next_line(&rest) : NULL;
    char *where_from = began != NULL ? next_line(&rest) : NULL;
    char *address = where_from != NULL ? next_line(&rest) : NULL;
    char *name = address != NULL ? next_line(&rest) : NULL;
    char *program = name != NULL ? next_line(&rest) : NULL;
    if (name == NULL || address[0] == '\0' || strlen(address) >= sizeof(out->address)) {
        return false;
    }
    read_namespace(space);
    if (strcmp(space, where_from) != 0) {
        return false;
    }
    *out = (struct ct_job_entry){.pid = (pid_t)pid, .age_s = -1};
    *stale = !read_process((pid_t)pid, start, &out->state) || strcmp(start, began) != 0;
    if (*stale) {
        return false;
    }
    out->age_s = age_of(start);
    out->elsewhere = is_elsewhere((pid_t)pid);
    (void)ct_text_fit(address, sizeof(out->address), out->address, sizeof(out->address));
    (void)ct_text_fit(name, sizeof(out->name), out->name, sizeof(out->name));
    (void)ct_text_cut(program != NULL ? program : "", sizeof(out->program), out->program,
                      sizeof(out->program));
    return true;
}

static int by_pid(const void *a, const void *b)
{
    const struct ct_job_entry *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

int ct_job_registry_list(const char *folder, struct ct_job_entry out[CT_JOBS_MAX],
                         struct ct_err *err)
{
    struct stat st;
    if (lstat(folder, &st) != 0 && errno == ENOENT) {
        return 0;
    }
    int dir = open_folder(folder, err);
    if (dir < 0) {
        return dir;
    }
    DIR *names = fdopendir(dir);
    if (names == NULL) {
        int error = errno;
        (void)close(dir);
        return ct_err_sys(err, CT_EIO, error, "cannot read the folder of jobs %s", folder);
    }
    int count = 0;
    for (const struct dirent *name; count < CT_JOBS_MAX && (name = readdir(names)) != NULL;) {
        bool stale;
        count += read_entry(dir, name->d_name, &out[count], &stale);
        if (stale) {
            (void)unlinkat(dir, name->d_name, 0);
        }
    }
    (void)closedir(names);
    qsort(out, (size_t)count, sizeof(*out), by_pid);
    return count;
}
