/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: ask for the job's name, let rank 0 put its host, wait in the barrier, get the host,
 * and say goodbye. One deadline holds for the whole talk. Failure modes: the launcher closes the
 * descriptor, stays silent, or answers with an error or a line that is too long.
 */
#include "launcher/scheduler/pmi.h"

#include "common/clock.h"
#include "common/text.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* mpiexec starts all ranks at once; a host that takes longer than this has not been reached. */
#define ASK_MS 30000
/* Other programs use no such key in the job's key space. */
#define KEY "ctrun-first-host"

static int failed(struct ct_err *err, int code, const char *why)
{
    return ct_err_set(err, code, "the MPI launcher (PMI_FD) %s", why);
}

static int wait_for(const struct ct_pmi *pmi, short events, struct ct_err *err)
{
    for (;;) {
        int left_ms = ct_deadline_left_ms(NULL, pmi->deadline_ns);
        struct pollfd entry = {.fd = pmi->fd, .events = events};
        int rc = left_ms != 0 ? poll(&entry, 1, left_ms) : 0;
        if (rc > 0) {
            return 0;
        }
        if (rc == 0) {
            return failed(err, CT_ETIMEDOUT, "does not answer; have all ranks been started?");
        }
        if (errno != EINTR) {
            return ct_err_sys(err, CT_EIO, errno, "PMI_FD");
        }
    }
}

static int send_line(const struct ct_pmi *pmi, const char *line, struct ct_err *err)
{
    size_t len = strlen(line), sent = 0;
    while (sent < len) {
        int rc = wait_for(pmi, POLLOUT, err);
        if (rc != 0) {
            return rc;
        }
        ssize_t n = send(pmi->fd, line + sent, len - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return errno == EPIPE || errno == ECONNRESET
                       ? failed(err, CT_ECLOSED, "has closed the line")
                       : ct_err_sys(err, CT_EIO, errno, "PMI_FD");
        }
        sent += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Reads byte by byte, to leave what follows the line unread. */
static int read_line(const struct ct_pmi *pmi, char line[CT_PMI_LINE_MAX], struct ct_err *err)
{
    size_t len = 0;
    while (len < CT_PMI_LINE_MAX - 1) {
        int rc = wait_for(pmi, POLLIN, err);
        if (rc != 0) {
            return rc;
        }
        ssize_t n = recv(pmi->fd, line + len, 1, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) {
            return failed(err, CT_ECLOSED, "has closed the line");
        }
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return ct_err_sys(err, CT_EIO, errno, "PMI_FD");
        }
        if (n > 0 && line[len++] == '\n') {
            line[len - 1] = '\0';
            return 0;
        }
    }
    return failed(err, CT_EPROTO, "sends longer lines than PMI-1 has");
}

/* Sends `line` and reads an answer that begins with "cmd=<answer>" and has no rc but 0. */
static int ask(const struct ct_pmi *pmi, const char *line, const char *answer,
               char reply[CT_PMI_LINE_MAX], struct ct_err *err)
{
    int rc = send_line(pmi, line, err);
    if (rc != 0) {
        return rc;
    }
    rc = read_line(pmi, reply, err);
    if (rc != 0) {
        return rc;
    }
    size_t len = strlen(answer);
    const char *code = strstr(reply, " rc=");
    if (strncmp(reply, "cmd=", 4) != 0 || strncmp(reply + 4, answer, len) != 0 ||
        (reply[4 + len] != '\0' && reply[4 + len] != ' ') ||
        (code != NULL && (code[4] != '0' || (code[5] != ' ' && code[5] != '\0')))) {
        ct_text_clean(reply);
        return ct_err_set(err, CT_EPROTO, "the MPI launcher (PMI_FD) answers '%.200s'", reply);
    }
    return 0;
}

/* The word behind " <name>=". */
static int take_value(const char *reply, const char *name, char *out, size_t size,
                      struct ct_err *err)
{
    const char *at = strstr(reply, name);
    size_t len = at != NULL ? strcspn(at + strlen(name), " ") : 0;
    if (len == 0 || len >= size) {
        return failed(err, CT_EPROTO, "gives no value, or one that is too long");
    }
    memcpy(out, at + strlen(name), len);
    out[len] = '\0';
    return 0;
}

int ct_pmi_open(int fd, int64_t timeout_ms, struct ct_pmi *out, struct ct_err *err)
{
    struct ct_pmi pmi = {.fd = fd, .deadline_ns = ct_deadline_in(NULL, timeout_ms)};
    char reply[CT_PMI_LINE_MAX];
    int rc = ask(&pmi, "cmd=get_my_kvsname\n", "my_kvsname", reply, err);
    if (rc != 0) {
        return rc;
    }
    rc = take_value(reply, " kvsname=", pmi.space, sizeof(pmi.space), err);
    if (rc != 0) {
        return rc;
    }
    *out = pmi;
    return 0;
}

/* All ranks call it. One passes a value without blanks, the others NULL; all get that value in
 * `out`, which has `size` bytes. */
static int share_value(struct ct_pmi *pmi, const char *value, char *out, size_t size,
                       struct ct_err *err)
{
    char line[CT_PMI_LINE_MAX], reply[CT_PMI_LINE_MAX];
    int rc = 0;
    if (value != NULL) {
        int len = snprintf(line, sizeof(line), "cmd=put kvsname=%s key=" KEY " value=%s\n",
                           pmi->space, value);
        if (len < 0 || (size_t)len >= sizeof(line) || strpbrk(value, " \n") != NULL) {
            return ct_err_set(err, CT_EINVAL, "'%.64s' is no value for PMI", value);
        }
        rc = ask(pmi, line, "put_result", reply, err);
    }
    if (rc != 0) {
        return rc;
    }
    rc = ask(pmi, "cmd=barrier_in\n", "barrier_out", reply, err);
    if (rc != 0) {
        return rc;
    }
    (void)snprintf(line, sizeof(line), "cmd=get kvsname=%s key=" KEY "\n", pmi->space);
    rc = ask(pmi, line, "get_result", reply, err);
    if (rc != 0) {
        return rc;
    }
    return take_value(reply, " value=", out, size, err);
}

/* Ends the talk. Without it Hydra takes the end of this process for a crash and kills the job. */
static int finalize(struct ct_pmi *pmi, struct ct_err *err)
{
    char reply[CT_PMI_LINE_MAX];
    return ask(pmi, "cmd=finalize\n", "finalize_ack", reply, err);
}

int ct_pmi_ask(void *data, int fd, bool share, bool is_first, char space[CT_SCHEDULER_JOB_ID_MAX],
               char first_host[CT_HOST_MAX], struct ct_err *err)
{
    struct ct_pmi pmi;
    (void)data;
    int rc = ct_pmi_open(fd, ASK_MS, &pmi, err);
    if (rc == 0 && share) {
        char own[CT_HOST_MAX];
        memcpy(own, first_host, sizeof(own));
        rc = share_value(&pmi, is_first ? own : NULL, first_host, CT_HOST_MAX, err);
    }
    if (rc != 0) {
        return rc;
    }
    rc = finalize(&pmi, err);
    if (rc != 0) {
        return rc;
    }
    memcpy(space, pmi.space, sizeof(pmi.space));
    return 0;
}
