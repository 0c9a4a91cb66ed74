/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes are found by reading /proc/PID/environ, which shows the environment as it was at the
 * exec. It is read in chunks, so the cookie is matched byte by byte over their borders.
 *
 * Failure modes: a process that cannot be read, or is another user's, counts as a stranger.
 */
#include "launcher/process/cookie.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int ct_cookie_new(struct ct_cookie *out, struct ct_err *err)
{
    unsigned char random[CT_COOKIE_HEX / 2];
    if (getentropy(random, sizeof(random)) != 0) {
        return ct_err_sys(err, CT_EIO, errno, "cannot draw random bytes for the job's cookie");
    }

    static const char digits[] = "0123456789abcdef";
    size_t at = sizeof(CT_COOKIE_NAME "=") - 1;
    memcpy(out->env, CT_COOKIE_NAME "=", at);
    for (size_t i = 0; i < sizeof(random); i++) {
        out->env[at++] = digits[random[i] >> 4];
        out->env[at++] = digits[random[i] & 15];
    }
    out->env[at] = '\0';
    return 0;
}

void ct_cookie_match_init(struct ct_cookie_match *match, const struct ct_cookie *cookie)
{
    *match = (struct ct_cookie_match){.cookie = cookie};
}

bool ct_cookie_match_feed(struct ct_cookie_match *match, const char *bytes, size_t len)
{
    const char *want = match->cookie->env;
    const size_t want_len = sizeof(match->cookie->env) - 1;

    for (size_t i = 0; i < len && !match->found; i++) {
        if (bytes[i] == '\0') {
            match->found = !match->skip && match->at == want_len;
            match->at = 0;
            match->skip = false;
        } else if (!match->skip) {
            match->skip = match->at == want_len || bytes[i] != want[match->at];
            match->at++;
        }
    }
    return match->found;
}

bool ct_cookie_in_process(const struct ct_cookie *cookie, pid_t pid)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }

    struct ct_cookie_match match;
    ct_cookie_match_init(&match, cookie);
    /* The owner is that of the open file: the path may name another process a moment later. */
    struct stat st;
    uid_t self = geteuid();
    if (fstat(fd, &st) == 0 && (st.st_uid == self || self == 0)) {
        char chunk[4096];
        ssize_t n;
        /* No signal interrupts reading a process's files in /proc. */
        while ((n = read(fd, chunk, sizeof(chunk))) > 0 &&
               !ct_cookie_match_feed(&match, chunk, (size_t)n)) {
        }
    }
    close(fd);
    return match.found;
}
