/* SPDX-License-Identifier: Apache-2.0
 *
 * One datagram to the socket that NOTIFY_SOCKET names.
 */
#include "rendezvous/wire/notify.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int ct_notify(const char *path, const char *state, struct ct_err *err)
{
    if (path == NULL || path[0] == '\0') {
        return 0;
    }
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len >= sizeof(addr.sun_path)) {
        return ct_err_set(err, CT_EFORMAT, "NOTIFY_SOCKET '%s' is no socket's address", path);
    }
    memcpy(addr.sun_path, path, len);
    if (path[0] == '@') {
        addr.sun_path[0] = '\0';
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return ct_err_sys(err, CT_EIO, errno, "NOTIFY_SOCKET");
    }
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    ssize_t sent =
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&addr, size);
    int errnum = errno;
    (void)close(fd);
    return sent >= 0 ? 0 : ct_err_sys(err, CT_EIO, errnum, "NOTIFY_SOCKET '%s'", path);
}
