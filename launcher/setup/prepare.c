/* SPDX-License-Identifier: Apache-2.0
 *
 * Each step is a function of its own that main.c calls in order. What a step has made, main.c
 * frees.
 */
#include "launcher/setup/prepare.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/open_files.h"
#include "launcher/report/worker_end.h"
#include "launcher/util/environ.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Descriptors that ctrun itself opens, with some to spare. */
#define OPEN_FILES_BASE 40
/* A worker needs a pidfd, two pipes or log files, and a connection to the store. */
#define OPEN_FILES_PER_WORKER 6

bool ct_prepare_standard_fds(void)
{
    bool has_output = fcntl(STDOUT_FILENO, F_GETFD) >= 0;
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            break;
        }
    }
    return has_output;
}

void ct_prepare_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
}

int ct_prepare_run_id(const struct ct_resolved *resolved, char uuid[CT_UUID_TEXT], const char **out,
                      struct ct_err *err)
{
    *out = resolved->run_id != NULL ? resolved->run_id : uuid;
    return resolved->run_id != NULL ? 0 : ct_machine_uuid(uuid, err);
}

int ct_prepare_command(const struct ct_options *options, const char *own_dir, char *const *env,
                       struct ct_command *out, int *exit_code, struct ct_err *err)
{
    if (options->preflight_only) { /* a program may be given, but is not run */
        out->path = ct_strdup("no program");
        int ready = out->path != NULL ? ct_strlist_close(&out->argv) : CT_ENOMEM;
        return ready == 0 ? 0 : ct_err_set(err, ready, "out of memory");
    }
    int rc = ct_command_resolve(options, env, own_dir[0] != '\0' ? own_dir : NULL, out, err);
    if (rc != 0) {
        *exit_code = ct_worker_end_of_command(rc);
    }
    return rc;
}

int ct_prepare_open_files(int workers, struct rlimit *original, struct ct_err *err)
{
    size_t need = OPEN_FILES_BASE + OPEN_FILES_PER_WORKER * (size_t)workers;
    return ct_open_files_raise(need, original, err);
}

/* Reads the first line of standard input, byte by byte, to leave what follows unread. */
static int read_token(struct ct_token *out, struct ct_err *err)
{
    char line[CT_TOKEN_MAX + 2];
    size_t len = 0;
    if (isatty(STDIN_FILENO)) {
        /* A terminal shows the token, and its input does not end when our launcher ends. */
        return ct_err_set(err, CT_EINVAL,
                          "the launch agent gives ctrun a terminal here, where a pipe is needed: "
                          "leave out ssh's -t, or use --launch-agent 'ssh -T'");
    }
    while (len < sizeof(line) - 1) {
        ssize_t n = read(STDIN_FILENO, &line[len], 1);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0 || line[len] == '\n') {
            break;
        }
        len++;
    }
    line[len] = '\0';
    int rc = ct_token_parse(line, "--agent-stdin", out, err);
    explicit_bzero(line, sizeof(line));
    return rc;
}

void ct_prepare_wipe_token(char *const *env)
{
    for (char *const *var = env; *var != NULL; var++) {
        if (strncmp(*var, CT_TOKEN_ENV "=", sizeof(CT_TOKEN_ENV)) == 0) {
            explicit_bzero(*var + sizeof(CT_TOKEN_ENV), strlen(*var + sizeof(CT_TOKEN_ENV)));
        }
    }
}

bool ct_prepare_has_token(const struct ct_options *options, char *const *env)
{
    const char *token = ct_environ_get(env, CT_TOKEN_ENV);
    return options->agent_stdin || options->token_file != NULL ||
           (token != NULL && token[0] != '\0');
}

int ct_prepare_etcd_check(const struct ct_options *options, const struct ct_resolved *resolved,
                          char *const *env, struct ct_err *err)
{
    if (!ct_prepare_has_token(options, env)) {
        return ct_err_set(err, CT_EINVAL,
                          "a job that meets through etcd needs a token: give all machines the same "
                          "--token-file or CTRUN_TOKEN");
    }
    if (!resolved->run_id_given) {
        return ct_err_set(err, CT_EINVAL,
                          "a job that meets through etcd needs an id: give all machines the same "
                          "--rdzv-id, which no other job in that etcd has");
    }
    return 0;
}

int ct_prepare_token(const struct ct_options *options, char *const *env, struct ct_token *out,
                     struct ct_err *err)
{
    int rc = options->agent_stdin
                 ? read_token(out, err)
                 : ct_token_find(options->token_file, ct_environ_get(env, CT_TOKEN_ENV), out, err);
    ct_prepare_wipe_token(env);
    return rc;
}

/* Is it a file that neither --report nor --trace has written? Theirs are JSON, and an empty one has
 * nothing to lose. What cannot be read is judged when it is to be written. */
static bool is_of_somebody_else(const char *path)
{
    struct stat st;
    unsigned char first = '{';
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0) {
        return false;
    }
    bool found = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && read(fd, &first, 1) == 1 &&
                 first != '{' && first != '[';
    (void)close(fd);
    return found;
}

int ct_prepare_outputs(const struct ct_options *options, struct ct_err *err)
{
    const struct {
        const char *option, *path;
    } outputs[] = {{"--report", options->report}, {"--trace", options->trace}};
    for (size_t i = 0; i < sizeof(outputs) / sizeof(outputs[0]); i++) {
        if (is_of_somebody_else(outputs[i].path)) {
            return ct_err_set(
                err, CT_EINVAL,
                "%s: %.400s is there and is no JSON, so it is kept: name another file "
                "behind %s, or remove that one",
                outputs[i].option, outputs[i].path, outputs[i].option);
        }
    }
    return 0;
}

static int check_file(const char *path, const char *option, struct ct_err *err)
{
    int rc = path != NULL ? ct_file_replace_check(path, err) : 0;
    if (rc != 0) {
        (void)ct_err_wrap(err, "%s", option);
    }
    return rc;
}

bool ct_prepare_wants_logs(const struct ct_resolved *resolved)
{
    return ct_redirects_any(&resolved->redirects) || ct_redirects_any(&resolved->tee);
}

/* Makes the folder of a job whose user has asked for no files. It may be anywhere, because it is
 * only read if the job fails. */
static bool make_temporary(const char *tmp_dir, const char *run_id, struct ct_logdir *out)
{
    /* Memory comes before disks, where a folder for each worker takes milliseconds. */
    const char *const folders[] = {tmp_dir != NULL ? tmp_dir : "/dev/shm", "/tmp", "/var/tmp",
                                   "/dev/shm"};
    bool made = false;
    for (size_t i = 0; !made && i < sizeof(folders) / sizeof(folders[0]); i++) {
        made = ct_logdir_init(NULL, folders[i], run_id, out, NULL) == 0;
    }
    return made;
}

int ct_prepare_logdir(const struct ct_options *options, const struct ct_resolved *resolved,
                      char *const *env, const char *run_id, struct ct_logdir *out,
                      struct ct_err *err)
{
    const char *tmp_dir = ct_environ_get(env, "TMPDIR");
    int rc = check_file(options->report, "--report", err);
    if (rc != 0) {
        return rc;
    }
    rc = check_file(options->trace, "--trace", err);
    if (rc != 0) {
        return rc;
    }
    if (options->log_dir == NULL && !ct_prepare_wants_logs(resolved) &&
        make_temporary(tmp_dir, run_id, out)) {
        return 0;
    }
    rc = ct_logdir_init(options->log_dir, tmp_dir, run_id, out, err);
    if (rc != 0 && options->log_dir != NULL) {
        return ct_err_wrap(err, "--log-dir");
    }
    if (rc != 0) {
        rc = ct_err_set(err, rc, "%.700s; set TMPDIR or --log-dir to a folder for temporary files",
                        err->text);
    }
    return rc;
}

int ct_prepare_guard(const struct ct_resolved *resolved, const struct ct_logdir *logdir,
                     const struct ct_cookie *cookie, struct ct_guard **out, struct ct_err *err)
{
    bool removes = logdir->temporary && !ct_prepare_wants_logs(resolved);
    return ct_guard_start(cookie, removes ? logdir->base : NULL, out, err);
}
