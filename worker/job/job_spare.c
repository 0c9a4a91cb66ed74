/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's end of `ctrun --warm`; docs/WARM.md has the protocol. The spare reads the
 * environment with which it was started when it opens, and that of the worker when it is to become
 * one. Only variables that a program reads when it joins its peers may differ.
 *
 * Failure modes: when ctrun is gone, or needs no spare any more, the socket is closed, and a wait
 * fails with CT_ECLOSED. What has changed is CT_EABORTED, and ctrun is told why.
 */
#include "worker/ctworker.h"

#include "common/alloc.h"
#include "common/buf.h"
#include "common/env_names.h"
#include "common/num.h"
#include "worker/job/late_variables.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define VERSION "1:"
#define ROLE ":spare"

#define MESSAGE_MAX 65536
#define FDS_MAX 3

/* More than the kernel lets a program have (a quarter of a stack of 8 MiB, by default). */
#define ENVIRONMENT_MAX ((size_t)64 << 20)

struct ctw_spare {
    int channel;
    struct ct_buf given; /* the environment with which ctrun has started this process */
};

static const char *const late[] = {CTW_LATE_VARIABLES};

struct message {
    char text[MESSAGE_MAX + 1];
    int fds[FDS_MAX]; /* of the message; the receiver must close them */
    size_t count;
    bool too_many; /* there were more, which are closed */
};

static void spare_free(struct ctw_spare *spare)
{
    if (spare != NULL) {
        (void)close(spare->channel);
        ct_buf_fini(&spare->given);
        ct_free(spare);
    }
}

static int say(const struct ctw_spare *spare, const char *word, const char *text)
{
    char bytes[512];
    int len = text == NULL ? snprintf(bytes, sizeof(bytes), "%s", word)
                           : snprintf(bytes, sizeof(bytes), "%s%c%.400s", word, '\0', text);
    ssize_t sent;
    do {
        sent = send(spare->channel, bytes, (size_t)len, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == len ? 0 : CT_ECLOSED;
}

static void close_all(struct message *message)
{
    for (size_t i = 0; i < message->count; i++) {
        (void)close(message->fds[i]);
    }
    message->count = 0;
}

/* The padding of the control message has room for more descriptors than a message may have. */
static void take_fds(struct msghdr *header, struct message *out)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            continue;
        }
        size_t sent = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < sent; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            if (out->count < FDS_MAX) {
                out->fds[out->count++] = fd;
            } else {
                out->too_many = true;
                (void)close(fd);
            }
        }
    }
}

/* Waits for the message `word` with `count` descriptors. */
static int receive(const struct ctw_spare *spare, const char *word, size_t count,
                   struct message *out, struct ct_err *err)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control;
    struct iovec part = {.iov_base = out->text, .iov_len = MESSAGE_MAX};
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control.bytes,
                            .msg_controllen = sizeof(control.bytes)};
    ssize_t len;
    out->count = 0;
    out->too_many = false;
    do {
        len = recvmsg(spare->channel, &header, MSG_CMSG_CLOEXEC);
    } while (len < 0 && errno == EINTR);
    if (len <= 0) {
        return ct_err_set(err, CT_ECLOSED, "ctrun does not need this spare any more");
    }
    take_fds(&header, out);
    out->text[len] = '\0';
    if (strcmp(out->text, word) != 0 || out->count != count || out->too_many ||
        (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        close_all(out);
        return ct_err_set(err, CT_EPROTO, "a spare got a wrong message in place of \"%s\"", word);
    }
    return 0;
}

/* Reads all of a file of "NAME=value\0". */
static int read_block(int fd, struct ct_buf *out, struct ct_err *err)
{
    for (;;) {
        if (ct_buf_reserve(out, MESSAGE_MAX) != 0) {
            return ct_err_set(err, CT_ENOMEM, "out of memory for the environment of a worker");
        }
        ssize_t got = pread(fd, ct_buf_tail(out), MESSAGE_MAX, (off_t)out->len);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return ct_err_sys(err, CT_EIO, errno, "cannot read the environment of a worker");
        }
        out->len += (size_t)got;
        if (out->len > ENVIRONMENT_MAX ||
            (got == 0 && out->len > 0 && ct_buf_bytes(out)[out->len - 1] != '\0')) {
            return ct_err_set(err, CT_EPROTO, "the environment of a worker is malformed");
        }
        if (got == 0) {
            return 0;
        }
    }
}

/* Waits for the message `word`, whose descriptor is a file with an environment. */
static int receive_block(const struct ctw_spare *spare, const char *word, struct ct_buf *out,
                         struct ct_err *err)
{
    struct message *message = ct_malloc(sizeof(*message));
    if (message == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = receive(spare, word, 1, message, err);
    if (rc == 0) {
        rc = read_block(message->fds[0], out, err);
        close_all(message);
    }
    ct_free(message);
    return rc;
}

/* Reads "1:FD:spare". */
static int read_variable(const char *text, int *channel)
{
    char number[16];
    size_t len = strlen(text), rest = strlen(VERSION) + strlen(ROLE);
    if (len <= rest || len - rest >= sizeof(number) ||
        strncmp(text, VERSION, strlen(VERSION)) != 0 ||
        strcmp(text + len - strlen(ROLE), ROLE) != 0) {
        return CT_EFORMAT;
    }
    memcpy(number, text + strlen(VERSION), len - rest);
    number[len - rest] = '\0';
    return ct_parse_int(number, 3, 1 << 20, channel);
}

int ctw_spare_open(struct ctw_spare **out, struct ct_err *err)
{
    if (out == NULL) {
        return ct_err_set(err, CT_EINVAL, "ctw_spare_open: out is NULL");
    }
    const char *text = getenv(CT_WARM_ENV);
    int channel;
    *out = NULL;
    if (text == NULL) {
        return 0;
    }
    if (read_variable(text, &channel) != 0 || fcntl(channel, F_SETFD, FD_CLOEXEC) != 0) {
        return ct_err_set(err, CT_EFORMAT, CT_WARM_ENV "=\"%.40s\" is of another version of ctrun",
                          text);
    }
    struct ctw_spare *spare = ct_calloc(1, sizeof(*spare));
    if (spare == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    spare->channel = channel;
    (void)unsetenv(CT_WARM_ENV);
    int rc = receive_block(spare, "import", &spare->given, err);
    if (rc != 0) {
        spare_free(spare);
        return rc;
    }
    *out = spare;
    return 0;
}

void ctw_spare_refuse(struct ctw_spare *spare, const char *why)
{
    if (spare != NULL) {
        (void)say(spare, "no", why != NULL ? why : "it cannot get ready");
        spare_free(spare);
    }
}

/* ---- becoming a worker ----------------------------------------------------------------------- */

static bool is_late(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(late) / sizeof(late[0]); i++) {
        if (strlen(late[i]) == len && memcmp(late[i], name, len) == 0) {
            return true;
        }
    }
    return false;
}

/* `len` is of the name. */
static bool is_entry_of(const char *entry, const char *name, size_t len)
{
    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

/* Returns the entry of this name in the block, or NULL. */
static const char *entry_of(const struct ct_buf *block, const char *name, size_t len)
{
    const char *at = (const char *)ct_buf_bytes(block);
    const char *end = at + block->len;
    for (; block->len > 0 && at < end; at += strlen(at) + 1) {
        if (is_entry_of(at, name, len)) {
            return at;
        }
    }
    return NULL;
}

/* Calls `visit` for each entry of `block` that `other` has not, or has with another value. Nearly
 * all entries of both are in the same order. To search for each would take minutes where there are
 * a hundred thousand. */
static int each_new(const struct ct_buf *block, const struct ct_buf *other,
                    int (*visit)(const char *entry, size_t name_len, struct ct_err *err),
                    struct ct_err *err)
{
    const char *at = (const char *)ct_buf_bytes(block);
    const char *end = at + block->len;
    const char *next = (const char *)ct_buf_bytes(other);
    const char *other_end = next + other->len;
    for (; block->len > 0 && at < end; at += strlen(at) + 1) {
        size_t len = strcspn(at, "=");
        if (len == 0 || at[len] != '=') {
            continue;
        }
        bool follows = other->len > 0 && next < other_end && is_entry_of(next, at, len);
        const char *there = follows ? next : entry_of(other, at, len);
        next = there != NULL ? there + strlen(there) + 1 : next;
        int rc = there == NULL || strcmp(there, at) != 0 ? visit(at, len, err) : 0;
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int check_late(const char *entry, size_t name_len, struct ct_err *err)
{
    return is_late(entry, name_len) ? 0
                                    : ct_err_set(err, CT_EABORTED, "%.*s is another one now",
                                                 (int)(name_len < 100 ? name_len : 100), entry);
}

static int set_variable(const char *entry, size_t name_len, struct ct_err *err)
{
    char name[64]; /* only late ones come here */
    (void)snprintf(name, sizeof(name), "%.*s", (int)name_len, entry);
    if (setenv(name, entry + name_len + 1, 1) != 0) { /* lint-ok: the caller asks for it */
        return ct_err_sys(err, CT_ENOMEM, errno, "cannot set %s", name);
    }
    return 0;
}

/* Removes what has no entry any more. A value that is another one is set again afterwards. */
static int unset_variable(const char *entry, size_t name_len, struct ct_err *err)
{
    char name[64];
    (void)err;
    (void)snprintf(name, sizeof(name), "%.*s", (int)name_len, entry);
    (void)unsetenv(name);
    return 0;
}

/* The program or a library is another file now when the one that is executed has no name any more.
 */
static int check_mapped(struct ct_err *err)
{
    static const char deleted[] = " (deleted)\n";
    char line[4400]; /* a path and what is before it */
    int rc = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (rc == 0 && maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        size_t len = strlen(line);
        const char *path = strchr(line, '/');
        const char *rights = strchr(line, ' ');
        if (path != NULL && rights != NULL && rights[3] == 'x' && len > strlen(deleted) &&
            strcmp(line + len - strlen(deleted), deleted) == 0) {
            line[len - strlen(deleted)] = '\0';
            rc = ct_err_set(err, CT_EABORTED, "%.300s has changed", path);
        }
    }
    if (maps != NULL) {
        (void)fclose(maps);
    }
    return rc;
}

/* The kernel leaves descriptors out of a message for which there is no room. */
static int check_room(const struct ctw_spare *spare, struct ct_err *err)
{
    int copies[FDS_MAX], count = 0, rc = 0;
    while (count < FDS_MAX && rc == 0) {
        int copy = fcntl(spare->channel, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) {
            rc = ct_err_sys(err, CT_EABORTED, errno, "it cannot take over its streams");
        } else {
            copies[count++] = copy;
        }
    }
    while (count > 0) {
        (void)close(copies[--count]);
    }
    return rc;
}

static int become(struct ctw_spare *spare, ctw_spare_check_fn check, void *data,
                  const struct ct_buf *block, struct ct_err *err)
{
    int rc = each_new(block, &spare->given, check_late, err);
    if (rc != 0) {
        return rc;
    }
    rc = each_new(&spare->given, block, check_late, err);
    if (rc != 0) {
        return rc;
    }
    rc = check_mapped(err);
    if (rc != 0) {
        return rc;
    }
    rc = check_room(spare, err);
    if (rc != 0) {
        return rc;
    }
    const char *why = check != NULL ? check(data) : NULL;
    if (why != NULL) {
        return ct_err_set(err, CT_EABORTED, "%s", why);
    }
    rc = each_new(&spare->given, block, unset_variable, err);
    if (rc != 0) {
        return rc;
    }
    return each_new(block, &spare->given, set_variable, err);
}

static int take_streams(const struct ctw_spare *spare, struct ct_err *err)
{
    struct message *message = ct_malloc(sizeof(*message));
    if (message == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = receive(spare, "start", 3, message, err);
    for (int i = 0; rc == 0 && i < 3; i++) {
        if (dup2(message->fds[i], i) < 0) {
            rc = ct_err_sys(err, CT_EIO, errno, "cannot take over descriptor %d", i);
        }
    }
    close_all(message);
    ct_free(message);
    return rc;
}

int ctw_spare_wait(struct ctw_spare *spare, ctw_spare_check_fn check, void *data,
                   struct ct_err *err)
{
    struct ct_err why = {0};
    struct ct_buf block = CT_BUF_INIT;
    if (spare == NULL) {
        return ct_err_set(err, CT_EINVAL, "ctw_spare_wait: spare is NULL");
    }
    int rc = say(spare, "ready", "");
    if (rc == 0) {
        rc = receive_block(spare, "go", &block, &why);
    }
    if (rc == 0) {
        rc = become(spare, check, data, &block, &why);
    }
    if (rc == 0) {
        rc = say(spare, "set", NULL);
    } else {
        (void)say(spare, "no", why.text);
    }
    if (rc == 0) {
        rc = take_streams(spare, &why);
    }
    if (rc != 0) {
        rc = ct_err_set(err, rc, "%s", why.text[0] != '\0' ? why.text : "ctrun is gone");
    }
    ct_buf_fini(&block);
    spare_free(spare);
    return rc;
}
