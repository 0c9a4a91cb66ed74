/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun's end of the socket. A spare is another program, so what it says is checked like anything
 * from the wire: a packet that is too long, or of an unknown word, is UNKNOWN.
 *
 * Failure modes: a spare that does not read makes a send fail at once; nothing here waits.
 */
#include "launcher/warm/spare.h"

#include "common/buf.h"
#include "common/file.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_MAX 4

static const struct {
    const char *name;
    enum ct_spare_word word;
} words[] = {
    {"ready", CT_SPARE_READY},
    {"set", CT_SPARE_SET},
    {"plan", CT_SPARE_PLAN},
    {"no", CT_SPARE_NO},
};

int ct_spare_pair(int out[2], struct ct_err *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, out) != 0) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot make a socket");
    }
    return 0;
}

int ct_spare_send(int fd, const char *const *fields, const int *fds, size_t count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control = {.bytes = {0}};
    struct ct_buf text = CT_BUF_INIT;
    for (size_t i = 0; fields[i] != NULL; i++) {
        if (i > 0) {
            ct_buf_add(&text, "", 1);
        }
        ct_buf_add(&text, fields[i], strlen(fields[i]));
    }
    CT_ASSERT(count <= FDS_MAX);
    if (ct_buf_status(&text) != 0 || text.len > CT_SPARE_MESSAGE_MAX) {
        ct_buf_fini(&text);
        return CT_ELIMIT;
    }
    struct iovec part = {.iov_base = (void *)(uintptr_t)ct_buf_bytes(&text), .iov_len = text.len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * count);
    }
    ssize_t sent;
    do {
        sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    ct_buf_fini(&text);
    return sent >= 0 ? 0 : CT_EIO;
}

/* Reads a message that has come as `len` bytes at out->bytes. */
static void parse(struct ct_spare_message *out, size_t len)
{
    out->word = CT_SPARE_UNKNOWN;
    out->text = out->bytes;
    out->len = 0;
    if (len > CT_SPARE_MESSAGE_MAX) {
        return;
    }
    out->bytes[len] = '\0';
    size_t word = strlen(out->bytes);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(out->bytes, words[i].name) == 0) {
            out->word = words[i].word;
        }
    }
    if (out->word == CT_SPARE_UNKNOWN || word == len) {
        out->text = out->bytes + word;
        return;
    }
    out->text = out->bytes + word + 1;
    out->len = len - word - 1;
    for (size_t i = 0; out->word != CT_SPARE_PLAN && i < out->len; i++) {
        unsigned char c = (unsigned char)out->text[i];
        out->text[i] = c < ' ' || c == 0x7f ? ' ' : out->text[i];
    }
}

void ct_spare_receive(int fd, struct ct_spare_message *out)
{
    out->word = CT_SPARE_NOTHING;
    out->text = out->bytes;
    out->bytes[0] = '\0';
    out->len = 0;
    ssize_t len;
    do { /* with MSG_TRUNC a packet that is cut gives its whole length */
        len = recv(fd, out->bytes, CT_SPARE_MESSAGE_MAX, MSG_DONTWAIT | MSG_TRUNC);
    } while (len < 0 && errno == EINTR);
    if (len > 0) {
        parse(out, (size_t)len);
    } else if (len == 0 || errno != EAGAIN) {
        out->word = CT_SPARE_GONE;
    }
}

int ct_spare_environment(char *const *env, int *out, struct ct_err *err)
{
    struct ct_buf block = CT_BUF_INIT;
    for (; *env != NULL; env++) {
        ct_buf_add(&block, *env, strlen(*env) + 1);
    }
    if (ct_buf_status(&block) != 0) {
        ct_buf_fini(&block);
        return ct_err_set(err, CT_ENOMEM, "out of memory for the environment of a worker");
    }
    int fd = ct_file_in_memory("ctrun-environment", false);
    int rc = fd < 0 ? CT_EIO : ct_fd_write_all(fd, ct_buf_bytes(&block), block.len);
    if (rc == 0 && lseek(fd, 0, SEEK_SET) != 0) {
        rc = CT_EIO;
    }
    if (rc != 0) {
        int error = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        rc = ct_err_sys(err, rc, error, "cannot pass the environment of a worker");
    } else {
        *out = fd;
    }
    ct_buf_fini(&block);
    return rc;
}
