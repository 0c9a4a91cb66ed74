/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks `ssh -G HOST`, which prints its configuration and connects to nobody. The question is
 * bounded in time, and an answer that makes no sense counts as none.
 */
#include "launcher/fleet/ssh.h"

#include "common/alloc.h"
#include "common/buf.h"
#include "common/clock.h"
#include "launcher/process/spawn.h"
#include "launcher/worker/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How long the answer may take. ssh reads a few files for it. */
#define ASK_MS 5000
/* The size of an answer, which has about a hundred lines. */
#define ANSWER_MAX ((size_t)1 << 18)

bool ct_ssh_parse(const char *answer, char out[CT_HOST_MAX])
{
    static const char keyword[] = "hostname ";
    for (const char *line = answer; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        if (strncmp(line, keyword, sizeof(keyword) - 1) == 0) {
            const char *name = line + sizeof(keyword) - 1;
            size_t len = strcspn(name, " \t\r\n");
            if (len == 0 || len >= CT_HOST_MAX) {
                return false;
            }
            memcpy(out, name, len);
            out[len] = '\0';
            return true;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return false;
}

/* Reads to the end. Returns false if the answer is too long, or does not come in time. */
static bool read_answer(int fd, struct ct_buf *out)
{
    int64_t deadline = ct_deadline_in(NULL, ASK_MS);
    char bytes[4096];
    for (;;) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int n = poll(&ready, 1, ct_deadline_left_ms(NULL, deadline));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        ssize_t got = n > 0 ? read(fd, bytes, sizeof(bytes)) : -1;
        if (got == 0) {
            return true;
        }
        if (got < 0 || out->len + (size_t)got > ANSWER_MAX ||
            ct_buf_append(out, bytes, (size_t)got) != 0) {
            return false;
        }
    }
}

static bool ask(const char *path, char *const *argv, char *const *env, struct ct_buf *answer)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return false;
    }
    const struct ct_spawn_options options = {
        .path = path, .argv = argv, .envp = env, .stdio = {-1, fds[1], -1}};
    struct ct_child child;
    bool started = ct_spawn(&options, &child, NULL) == 0;
    (void)close(fds[1]);
    bool told = started && read_answer(fds[0], answer);
    (void)close(fds[0]);
    if (started) {
        /* After the whole answer the process is ending anyway. */
        (void)kill(-child.pid, SIGKILL);
        while (waitpid(child.pid, NULL, 0) < 0 && errno == EINTR) {
        }
        (void)close(child.pidfd);
    }
    return told;
}

static bool is_ssh(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strcmp(slash != NULL ? slash + 1 : program, "ssh") == 0;
}

bool ct_ssh_host_name(const struct ct_fleet_spec *spec, int index, char *const *env,
                      char out[CT_HOST_MAX])
{
    struct ct_strlist argv = {0};
    struct ct_buf answer = CT_BUF_INIT;
    char *path = NULL;
    /* ssh takes options behind the host, too. */
    bool told = ct_fleet_argv(spec, index, false, "-G", &argv, NULL) == 0 && is_ssh(argv.list[0]) &&
                ct_command_find(argv.list[0], env, &path, NULL) == 0 &&
                ask(path, argv.list, env, &answer) && ct_buf_cstr(&answer) != NULL &&
                ct_ssh_parse(ct_buf_cstr(&answer), out);
    ct_free(path);
    ct_strlist_fini(&argv);
    ct_buf_fini(&answer);
    return told;
}
