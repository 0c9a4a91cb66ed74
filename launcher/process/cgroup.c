/* SPDX-License-Identifier: Apache-2.0
 *
 * The code looks for cgroup v2 in the two places where distributions mount it, because the list of
 * mounts can be long.
 */
#include "launcher/process/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Bytes of /proc/self/cgroup: a process is in a dozen hierarchies at most. */
#define OWN_MAX 8192
/* Levels of cgroups below a job's, which nested jobs and workers may have made. */
#define DEPTH_MAX 16
/* How many digits of the cookie the name has. The pid alone is unique only in its namespace. */
#define COOKIE_DIGITS 8

bool ct_cgroup_own_path(const char *text, char *out, size_t size)
{
    static const char v2[] = "0::/";
    for (const char *line = text; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        if (len >= sizeof(v2) - 1 && strncmp(line, v2, sizeof(v2) - 1) == 0) {
            const char *path = line + sizeof(v2) - 2;
            size_t path_len = len - (sizeof(v2) - 2);
            if (path_len >= size) {
                return false;
            }
            memcpy(out, path, path_len);
            out[path_len] = '\0';
            /* "/../x" is outside of our namespace, and "/x (deleted)" no longer exists. */
            return strstr(out, "/..") == NULL && strstr(out, " (deleted)") == NULL;
        }
        line += len + (line[len] == '\n');
    }
    return false;
}

static const char *find_mount(void)
{
    static const char *const places[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct statfs fs;
        if (statfs(places[i], &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC) {
            return places[i];
        }
    }
    return NULL;
}

/* Reads the first size - 1 bytes of a file and adds a NUL. False when there are none. */
static bool read_start(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* Gives the folder of ctrun's own cgroup. */
static bool find_own(char *out, size_t size)
{
    const char *mount = find_mount();
    char text[OWN_MAX], path[CT_CGROUP_PATH_MAX];
    if (mount == NULL || !read_start("/proc/self/cgroup", text, sizeof(text)) ||
        !ct_cgroup_own_path(text, path, sizeof(path))) {
        return false;
    }
    int len = snprintf(out, size, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path);
    return len > 0 && (size_t)len < size;
}

/* Does the file of that folder name a limit? */
static bool has_limit(const char *folder, const char *name)
{
    char path[CT_CGROUP_PATH_MAX + 32], text[4];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return read_start(path, text, sizeof(text)) && strcmp(text, "max") != 0;
}

void ct_cgroup_make(struct ct_cgroup *cgroup, const struct ct_cookie *cookie)
{
    char own[CT_CGROUP_PATH_MAX];
    *cgroup = (struct ct_cgroup){.fd = -1};
    if (!find_own(own, sizeof(own)) || has_limit(own, "memory.max") || has_limit(own, "cpu.max")) {
        return;
    }
    int len = snprintf(cgroup->path, sizeof(cgroup->path), "%s/ctrun-%ld-%.*s", own, (long)getpid(),
                       COOKIE_DIGITS, cookie->env + sizeof(CT_COOKIE_NAME));
    if (len <= 0 || (size_t)len >= sizeof(cgroup->path) || mkdir(cgroup->path, 0755) != 0) {
        cgroup->path[0] = '\0';
        return;
    }
    cgroup->fd = open(cgroup->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroup->fd < 0 || faccessat(cgroup->fd, "cgroup.kill", W_OK, 0) != 0) {
        (void)rmdir(cgroup->path);
        if (cgroup->fd >= 0) {
            close(cgroup->fd);
        }
        *cgroup = (struct ct_cgroup){.fd = -1};
    }
}

void ct_cgroup_kill(const char *path)
{
    char name[CT_CGROUP_PATH_MAX + 16];
    if (path[0] == '\0') {
        return;
    }
    (void)snprintf(name, sizeof(name), "%s/cgroup.kill", path);
    int fd = open(name, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "1", 1);
        close(fd);
    }
}

/* Removes the cgroups below a folder, since one that has others below it cannot be removed. Takes
 * `fd`. */
static void remove_below(int fd, int depth)
{
    DIR *folder = fdopendir(fd);
    if (folder == NULL) {
        close(fd);
        return;
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.') {
            continue;
        }
        if (unlinkat(dirfd(folder), entry->d_name, AT_REMOVEDIR) == 0 || depth >= DEPTH_MAX) {
            continue;
        }
        int below = openat(dirfd(folder), entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (below >= 0) {
            remove_below(below, depth + 1);
            (void)unlinkat(dirfd(folder), entry->d_name, AT_REMOVEDIR);
        }
    }
    closedir(folder);
}

bool ct_cgroup_remove(const char *path)
{
    if (path[0] == '\0' || rmdir(path) == 0 || errno == ENOENT) {
        return true;
    }
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        remove_below(fd, 0);
    }
    return rmdir(path) == 0 || errno == ENOENT;
}
