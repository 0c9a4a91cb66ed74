/* SPDX-License-Identifier: Apache-2.0
 *
 * /proc/net/tcp and tcp6 give the address and the inode of each listening socket. The process that
 * has it open shows it as /proc/<pid>/fd/<n> -> "socket:[<inode>]". This costs one readlink(2) for
 * each open file that we may look at, but it is only done after a bind(2) has failed.
 */
#include "rendezvous/wire/port_holder.h"

#include "common/addr.h"
#include "common/num.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* State column of /proc/net/tcp: TCP_LISTEN of the kernel's net/tcp_states.h. */
#define STATE_LISTEN 0x0A

/* An IPv6 address as the kernel prints it: four words, each in the byte order of this machine. */
struct ip {
    uint32_t words[4];
};

/* ::ffff:0:0/96 is IPv4, as RFC 4291 maps it (2.5.5.2). */
static struct ip from_ipv4(uint32_t address)
{
    return (struct ip){.words = {0, 0, htonl(0xffff), address}};
}

static struct ip ip_of(const struct sockaddr *at)
{
    struct ip ip;
    if (at->sa_family != AF_INET6) {
        return from_ipv4(((const struct sockaddr_in *)at)->sin_addr.s_addr);
    }
    memcpy(ip.words, &((const struct sockaddr_in6 *)at)->sin6_addr, sizeof(ip.words));
    return ip;
}

/* Reads the address of /proc/net/tcp (8 digits) or tcp6 (32 digits). */
static bool read_ip(const char *digits, struct ip *out)
{
    uint32_t *words = out->words;
    int count = sscanf(digits, "%8" SCNx32 "%8" SCNx32 "%8" SCNx32 "%8" SCNx32, &words[0],
                       &words[1], &words[2], &words[3]);
    if (count == 1) {
        *out = from_ipv4(words[0]);
    }
    return count == 1 || count == 4;
}

static bool is_any(const struct ip *ip)
{
    bool ipv4 = ip->words[2] == htonl(0xffff);
    return ip->words[0] == 0 && ip->words[1] == 0 && (ipv4 || ip->words[2] == 0) &&
           ip->words[3] == 0;
}

/* A socket at every address keeps the port of each single one, and the other way round. */
static bool are_in_conflict(const struct ip *a, const struct ip *b)
{
    return is_any(a) || is_any(b) || memcmp(a, b, sizeof(*a)) == 0;
}

static bool find_inode(const char *path, const struct sockaddr *at, uint64_t *inode)
{
    const struct ip wanted = ip_of(at);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    bool found = false;
    char line[512];
    while (!found && fgets(line, sizeof(line), f) != NULL) {
        unsigned local_port = 0, state = 0;
        uint64_t n = 0;
        char digits[33];
        struct ip ip;
        /* sl: local:port remote:port state tx:rx tr:when retrnsmt uid timeout inode */
        found = sscanf(line,
                       " %*u: %32[0-9A-Fa-f]:%4x %*[0-9A-Fa-f]:%*4x %2x %*s %*s %*s %*u %*u "
                       "%20" SCNu64,
                       digits, &local_port, &state, &n) == 4 &&
                local_port == ct_addr_port(at) && state == STATE_LISTEN && n != 0 &&
                read_ip(digits, &ip) && are_in_conflict(&ip, &wanted);
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

void ct_port_holder(const struct sockaddr *at, char *out, size_t size)
{
    uint64_t inode = 0;
    out[0] = '\0';
    if (!find_inode("/proc/net/tcp", at, &inode) && !find_inode("/proc/net/tcp6", at, &inode)) {
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
