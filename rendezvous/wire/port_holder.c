/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/net/tcp and tcp6 give the inode of the listening socket. The process that has it open shows
 * it as /proc/<pid>/fd/<n> -> "socket:[<inode>]". This costs one readlink(2) for each open file
 * that we may look at, but it is only done after a bind(2) has failed.
 */
#include "rendezvous/wire/port_holder.h"

#include "common/num.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* State column of /proc/net/tcp: TCP_LISTEN of the kernel's net/tcp_states.h. */
#define STATE_LISTEN 0x0A

static bool find_inode(const char *path, uint16_t port, uint64_t *inode)
{
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    bool found = false;
    char line[512];
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        unsigned local_port = 0, state = 0;
        uint64_t n = 0;
        /* sl: local:port remote:port state tx:rx tr:when retrnsmt uid timeout inode */
        found = sscanf(line,
                       " %*u: %*[0-9A-Fa-f]:%4x %*[0-9A-Fa-f]:%*4x %2x %*s %*s %*s %*u %*u "
                       "%20" SCNu64,
                       &local_port, &state, &n) == 3 &&
                local_port == port && state == STATE_LISTEN && n != 0;
        if (found) {
            *inode = n;
        }
    }
    (void)fclose(f);
    return found;
}

static bool process_has(int proc_fd, const char *pid, const char *link_text)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%.20s/fd", pid);
    int fd = openat(proc_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return false;
    }
    bool found = false;
    const struct dirent *entry;
    while (!found && (entry = readdir(dir)) != NULL) {
        char text[64];
        ssize_t n = readlinkat(fd, entry->d_name, text, sizeof(text) - 1);
        if (n > 0) {
            text[n] = '\0';
            found = strcmp(text, link_text) == 0;
        }
    }
    (void)closedir(dir);
    return found;
}

/* Writes the command line, with blanks between arguments and '?' for unprintable bytes. */
static void describe(int proc_fd, const char *pid, char *out, size_t size)
{
    char path[64], text[200];
    (void)snprintf(path, sizeof(path), "%.20s/cmdline", pid);
    int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    size_t len = n > 0 ? (size_t)n : 0;
    while (len > 0 && text[len - 1] == '\0') {
        len--;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\0') {
            text[i] = ' ';
        } else if (text[i] < ' ' || text[i] > '~') {
            text[i] = '?';
        }
    }
    text[len] = '\0';
    (void)snprintf(out, size, "pid %s (%s)", pid, len > 0 ? text : "no command line");
}

void ct_port_holder(uint16_t port, char *out, size_t size)
{
    uint64_t inode = 0;
    out[0] = '\0';
    if (!find_inode("/proc/net/tcp", port, &inode) && !find_inode("/proc/net/tcp6", port, &inode)) {
        return;
    }
    char link_text[48];
    (void)snprintf(link_text, sizeof(link_text), "socket:[%" PRIu64 "]", inode);
    DIR *proc = opendir("/proc");
    if (proc == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(proc)) != NULL) {
        int64_t pid;
        if (ct_parse_i64(entry->d_name, 1, INT32_MAX, &pid) == 0 &&
            process_has(dirfd(proc), entry->d_name, link_text)) {
            describe(dirfd(proc), entry->d_name, out, size);
            break;
        }
    }
    (void)closedir(proc);
}
