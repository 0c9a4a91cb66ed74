/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: open two streams, start the process on their descriptors, and close the descriptors.
 * The arguments and the environment are freed as soon as the process has started.
 *
 * Failure modes: after any failure the streams are freed. Starting the process is the last step, so
 * a failure leaves no process.
 */
#include "launcher/monitor/worker_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/util/environ.h"
#include "launcher/util/template.h"
#include "launcher/worker/arguments.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Where one stream of one worker goes. */
struct route {
    bool to_file;
    bool teed;
    bool shown;
};

static struct route route_of(const struct ct_job_spec *job, int local_rank, enum ct_streams stream)
{
    const struct ct_resolved *resolved = job->resolved;
    struct route route = {.shown = ct_rank_set_has(&resolved->shown, local_rank)};
    /* As in torchrun, --log-dir /dev/null makes both options void. */
    if (job->logdir->base != NULL) {
        bool redirected = (ct_redirects_of(&resolved->redirects, local_rank) & stream) != 0;
        bool teed = (ct_redirects_of(&resolved->tee, local_rank) & stream) != 0;
        route.to_file = redirected || teed;
        route.teed = teed && route.shown;
        route.shown = route.shown && (!redirected || teed);
    }
    return route;
}

bool ct_worker_err_is_shown(const struct ct_job_spec *job, int local_rank)
{
    return route_of(job, local_rank, CT_STREAMS_STDERR).shown;
}

bool ct_worker_err_is_seen(const struct ct_job_spec *job, int local_rank)
{
    return job->resolved->workers == 1 && ct_worker_err_is_shown(job, local_rank);
}

/* Replaces torchrun's macros. A prefix that is too long is cut. */
static int fill_template(const struct ct_worker_options *options, int local_rank,
                         char out[CT_LINES_PREFIX_MAX])
{
    const struct ct_job_spec *job = options->job;
    char rank[16], local[16];
    char *host = ct_strdup(job->machine->host);
    const struct ct_template_var vars[] = {
        {"role_name", job->options->role, false},
        {"local_rank", local, false},
        {"rank", rank, false},
        {"hostname", host, false},
    };
    struct ct_buf text = CT_BUF_INIT;
    if (host == NULL) {
        return CT_ENOMEM;
    }
    host[strcspn(host, ".")] = '\0';
    (void)snprintf(rank, sizeof(rank), "%d", options->worker_env->first_rank + local_rank);
    (void)snprintf(local, sizeof(local), "%d", options->worker_env->first_local_rank + local_rank);
    int rc = ct_template_expand(job->options->prefix_template, vars, sizeof(vars) / sizeof(vars[0]),
                                &text);
    if (rc == 0 && text.len > 0) {
        size_t len = text.len < CT_LINES_PREFIX_MAX ? text.len : CT_LINES_PREFIX_MAX - 1;
        memcpy(out, ct_buf_bytes(&text), len);
        out[len] = '\0';
    }
    ct_buf_fini(&text);
    ct_free(host);
    return rc;
}

static bool has_colour(const struct ct_job_spec *job, bool terminal)
{
    return ct_lines_colour(terminal, ct_environ_get(job->env, "TERM"),
                           ct_environ_get(job->env, "NO_COLOR"));
}

/* The host name in the prefixes; NULL = they have none. */
static const char *host_of(const struct ct_worker_options *options)
{
    return options->worker_env->node_count > 1 ? options->job->machine->host : NULL;
}

/* Lines with a prefix of the user's are not folded: ctrun cannot find the rank in it. */
static struct ct_output_fold fold_of(const struct ct_worker_options *options, bool terminal)
{
    const struct ct_job_spec *job = options->job;
    bool folds = job->options->fold == CT_FOLD_MODE_AUTO && job->options->prefix_template == NULL;
    return (struct ct_output_fold){
        .first_rank = options->worker_env->first_rank,
        .workers = folds ? job->resolved->workers : 0,
        .host = host_of(options),
        .colour = has_colour(job, terminal),
    };
}

static int fill_prefix(const struct ct_worker_options *options, int local_rank, bool terminal,
                       char out[CT_LINES_PREFIX_MAX])
{
    if (options->job->options->prefix_template != NULL) {
        return fill_template(options, local_rank, out);
    }
    ct_lines_prefix(host_of(options), options->worker_env->first_rank + local_rank,
                    has_colour(options->job, terminal), out);
    return 0;
}

/* What the options of one stream point to; the two paths must be freed. */
struct stream_texts {
    char prefix[CT_LINES_PREFIX_MAX];
    char *log_path;
    char *filter_path;
    char filter_prefix[CT_LINES_PREFIX_MAX];
    struct ct_line_filter_options filter;
};

static int name_files(const struct ct_worker_options *options, int local_rank, bool is_out,
                      const struct route *route, struct ct_output_stream_options *stream,
                      struct stream_texts *texts)
{
    const struct ct_job_spec *job = options->job;
    const char *words = is_out ? job->options->out_filter : job->options->err_filter;
    int generation = options->worker_env->generation;
    if (route->to_file) {
        texts->log_path = ct_logdir_path(job->logdir, generation, local_rank,
                                         is_out ? "stdout.log" : "stderr.log");
        if (texts->log_path == NULL) {
            return CT_ENOMEM;
        }
        stream->log_path = texts->log_path;
    }
    /* As in torchrun, the file exists even if no line can come. */
    if (words != NULL && job->logdir->base != NULL) {
        texts->filter_path = ct_logdir_shared_path(
            job->logdir, generation, is_out ? "filtered_stdout.log" : "filtered_stderr.log");
        if (texts->filter_path == NULL ||
            fill_prefix(options, local_rank, false, texts->filter_prefix) != 0) {
            return CT_ENOMEM;
        }
        texts->filter = (struct ct_line_filter_options){route->teed ? words : "",
                                                        texts->filter_path, texts->filter_prefix};
        stream->filter = &texts->filter;
    }
    return 0;
}

/* Does output pass unchanged, as if there were no ctrun? It does if all of it comes from one
 * worker: from the only worker, or from the only one that --local-ranks-filter shows. The latter
 * only if it does not go to a terminal, because another program may read it. */
static bool passes_unchanged(const struct ct_worker_options *options, bool terminal)
{
    const struct ct_job_spec *job = options->job;
    const char *template = job->options->prefix_template;
    /* With --hosts the workers of all machines write to one place. */
    bool meets_others = job->options->agent_stdin && options->worker_env->node_count > 1;
    if (meets_others || (template != NULL && template[0] != '\0')) {
        return false;
    }
    int shown = 0;
    for (int i = 0; i < job->resolved->workers; i++) {
        shown += ct_rank_set_has(&job->resolved->shown, i);
    }
    return job->resolved->workers == 1 || (shown == 1 && !terminal);
}

bool ct_worker_inherits_stdout(const struct ct_worker_options *options, int local_rank)
{
    struct route route = route_of(options->job, local_rank, CT_STREAMS_STDOUT);
    return options->job->resolved->workers == 1 && route.shown && !route.to_file &&
           passes_unchanged(options, ct_output_is_terminal(options->output, CT_OUTPUT_OUT));
}

/* Fills in where this generation's output goes. CT_ENOMEM. */
static int describe_stream(const struct ct_worker_options *options, int local_rank,
                           enum ct_output_fd to, struct ct_output_stream_options *stream,
                           struct stream_texts *texts)
{
    const struct ct_job_spec *job = options->job;
    bool is_out = to == CT_OUTPUT_OUT;
    struct route route = route_of(job, local_rank, is_out ? CT_STREAMS_STDOUT : CT_STREAMS_STDERR);
    bool terminal = ct_output_is_terminal(options->output, to);
    *stream = (struct ct_output_stream_options){
        .to = to,
        .prefix = texts->prefix,
        .rank = options->worker_env->first_rank + local_rank,
        .slow = job->options->slow_output,
    };
    if (!route.shown) {
        stream->mode = CT_LINES_TAIL_ONLY;
    } else if (passes_unchanged(options, terminal)) {
        stream->mode = CT_LINES_RAW;
        /* A single worker has ctrun's stdout, perhaps a terminal. The report needs its stderr. */
        stream->inherit = is_out && ct_worker_inherits_stdout(options, local_rank);
    } else {
        stream->mode = terminal ? CT_LINES_TERMINAL : CT_LINES_PLAIN;
        stream->fold = fold_of(options, terminal);
        int rc = fill_prefix(options, local_rank, terminal, texts->prefix);
        if (rc != 0) {
            return rc;
        }
    }
    return name_files(options, local_rank, is_out, &route, stream, texts);
}

/* Opens the stream, or changes an open one for this generation. */
static int open_stream(const struct ct_worker_options *options, int local_rank,
                       enum ct_output_fd to, struct ct_output_stream **out, int *child_fd,
                       struct ct_err *err)
{
    struct ct_output_stream_options stream;
    struct stream_texts texts = {0};
    int rc = describe_stream(options, local_rank, to, &stream, &texts);
    if (rc != 0) {
        rc = ct_err_set(err, rc, "worker %d: out of memory", local_rank);
    } else if (*out != NULL) {
        rc = ct_output_stream_next(*out, &stream, err);
    } else {
        rc = ct_output_stream_open(options->output, &stream, out, child_fd, err);
    }
    ct_free(texts.log_path);
    ct_free(texts.filter_path);
    return rc;
}

/* Returns the path of the worker's error file in this generation; NULL without memory. */
static char *error_file_of(const struct ct_worker_options *options, int local_rank)
{
    return ct_logdir_path(options->job->logdir, options->worker_env->generation, local_rank,
                          "error.json");
}

/* Decides where the worker's server may listen. The process keeps the place if it goes on in a
 * later generation. There is no place where the user has chosen one, and none in a folder of the
 * user's, which others may read, or whose file system may have no sockets: a program whose server
 * cannot listen fails. */
static void choose_socket(const struct ct_worker_options *options, int local_rank,
                          char socket[CT_PROBE_SOCKET_MAX])
{
    const struct ct_job_spec *job = options->job;
    socket[0] = '\0';
    if (!job->logdir->temporary || ct_environ_get(job->env, CT_SERVER_SOCKET_ENV) != NULL) {
        return;
    }
    char *path = ct_logdir_path(job->logdir, options->worker_env->generation, local_rank,
                                "worker_server.sock");
    if (path != NULL && strlen(path) < CT_PROBE_SOCKET_MAX) {
        memcpy(socket, path, strlen(path) + 1);
    }
    ct_free(path);
}

int ct_worker_describe(const struct ct_worker_options *options, int local_rank,
                       char socket[CT_PROBE_SOCKET_MAX], struct ct_strlist *args,
                       struct ct_strlist *vars, struct ct_err *err)
{
    const struct ct_job_spec *job = options->job;
    struct ct_worker_env env = *options->worker_env;
    choose_socket(options, local_rank, socket);
    env.server_socket = socket;
    char *error_file = error_file_of(options, local_rank);
    int rc = CT_ENOMEM;
    if (error_file != NULL) {
        rc = ct_worker_env_make(&env, &job->gpus, local_rank, error_file, job->env, vars);
    }
    ct_free(error_file);
    if (rc != 0) {
        return ct_err_set(err, rc, "worker %d: out of memory", local_rank);
    }
    rc = ct_arguments_expand(job->command->argv.list, &env, local_rank, args, err);
    if (rc != 0) {
        ct_err_wrap(err, "worker %d", local_rank);
    }
    return rc;
}

static int spawn(struct ct_worker *worker, int local_rank, const struct ct_worker_options *options,
                 const int stdio[3], struct ct_err *err)
{
    const struct ct_job_spec *job = options->job;
    struct ct_strlist args = {0}, vars = {0};
    int rc = ct_worker_describe(options, local_rank, worker->server_socket, &args, &vars, err);
    if (rc != 0) {
        worker->report.end.value = rc == CT_ENOMEM ? 0 : CT_END_NO_LACK;
        goto out;
    }
    if (options->take_spare != NULL) {
        worker->proc = options->take_spare(options->spares, local_rank, args.list, vars.list, stdio,
                                           options->on_exit, options->data);
    }
    if (worker->proc != NULL) {
        goto out;
    }
    const struct ct_spawn_options spawned = {
        .path = job->command->path,
        .argv = args.list,
        .envp = vars.list,
        .stdio = {stdio[0], stdio[1], stdio[2]},
        .cpus = ct_binder_cpus(&job->binder, local_rank),
        .nofile = &job->nofile,
    };
    rc = ct_proc_start(options->procs, &spawned, options->on_exit, options->data, &worker->proc,
                       err);
    worker->report.end.value = rc != 0 && err != NULL ? err->sys : 0;
out:
    ct_strlist_fini(&args);
    ct_strlist_fini(&vars);
    return rc;
}

static struct ct_report_worker new_report(const struct ct_worker_options *options, int local_rank)
{
    return (struct ct_report_worker){
        .rank = options->worker_env->first_rank + local_rank,
        .end = {CT_END_NOT_STARTED},
    };
}

/* On failure streams that were opened stay in *worker. */
static int open_streams(struct ct_worker *worker, int local_rank,
                        const struct ct_worker_options *options, int child_fds[2],
                        struct ct_err *err)
{
    int rc = open_stream(options, local_rank, CT_OUTPUT_OUT, &worker->out, &child_fds[0], err);
    if (rc != 0) {
        return rc;
    }
    return open_stream(options, local_rank, CT_OUTPUT_ERR, &worker->err, &child_fds[1], err);
}

int ct_worker_start(struct ct_worker *worker, int local_rank,
                    const struct ct_worker_options *options, struct ct_err *err)
{
    /* Only the first worker reads ctrun's input. Several readers would each get a part of it. */
    bool reads = local_rank == 0 && !options->job->options->agent_stdin;
    int stdio[3] = {reads ? STDIN_FILENO : -1, -1, -1};
    *worker = (struct ct_worker){.report = new_report(options, local_rank)};
    int rc = open_streams(worker, local_rank, options, &stdio[1], err);
    if (rc == 0) {
        rc = spawn(worker, local_rank, options, stdio, err);
    }
    if (rc != 0) {
        ct_worker_clear(worker);
        return rc;
    }
    ct_output_stream_spawned(worker->out);
    ct_output_stream_spawned(worker->err);
    worker->report.pid = ct_proc_pid(worker->proc);
    worker->started_ns = ct_clock_now(NULL);
    return 0;
}

static int hand_over(const struct ct_worker_options *options, int local_rank,
                     struct ct_order_writer *orders, struct ct_err *err)
{
    const struct ct_job_spec *job = options->job;
    const struct ct_worker_env *env = options->worker_env;
    struct ct_strlist vars = {0};
    char *error_file = error_file_of(options, local_rank);
    int rc = CT_ENOMEM;
    if (error_file != NULL &&
        ct_worker_env_vars(env, &job->gpus, local_rank, error_file, job->env, &vars) == 0) {
        rc = ct_order_writer_go(orders, local_rank, env->generation, &vars);
    }
    if (rc != 0) {
        rc = ct_err_set(err, rc, "worker %d cannot be told of the next generation: %s", local_rank,
                        ct_code_text(rc));
    }
    ct_free(error_file);
    ct_strlist_fini(&vars);
    return rc;
}

/* Kills the process of a worker that cannot go on, because nobody else will stop it. */
static void end_kept(struct ct_worker *worker)
{
    if (worker->proc != NULL && ct_proc_alive(worker->proc)) {
        ct_proc_signal_group(worker->proc, SIGKILL);
    }
    ct_worker_clear(worker);
}

int ct_worker_go_on(struct ct_worker *worker, int local_rank,
                    const struct ct_worker_options *options, struct ct_order_writer *orders,
                    struct ct_err *err)
{
    int none[2];
    int rc = open_streams(worker, local_rank, options, none, err);
    if (rc == 0) {
        rc = hand_over(options, local_rank, orders, err);
    }
    if (rc != 0) {
        end_kept(worker);
        return rc;
    }
    worker->report = new_report(options, local_rank);
    worker->report.pid = ct_proc_pid(worker->proc);
    worker->ended_for = (struct ct_worker_end){0};
    ct_worker_forget_stack(worker);
    worker->uninterruptible = (struct ct_uninterruptible){0};
    worker->told_to_park = worker->parked = worker->kept = false;
    return 0;
}

/* Called for a SIGKILL that ctrun did not send. */
static void look_for_memory(struct ct_worker *worker, struct ct_oom *oom)
{
    struct ct_buf text = CT_BUF_INIT;
    if (ct_oom_find(oom, worker->report.pid, &text) == 0 && text.len > 0) {
        (void)snprintf(worker->report.memory, sizeof(worker->report.memory), "%.*s", (int)text.len,
                       (const char *)ct_buf_bytes(&text));
    }
    ct_buf_fini(&text);
}

void ct_worker_keep_stack(struct ct_worker *worker, const struct ct_stack *stack)
{
    struct ct_buf place = CT_BUF_INIT, text = CT_BUF_INIT;
    if (ct_stack_print_where(stack, &place) == 0 && place.len > 0) {
        (void)snprintf(worker->hang.place, sizeof(worker->hang.place), "%s", ct_buf_cstr(&place));
    }
    if (ct_stack_print(stack, "", &text) == 0 && text.len > 0) {
        ct_free(worker->hang.stack);
        worker->hang.stack = ct_strdup(ct_buf_cstr(&text));
    }
    ct_buf_fini(&place);
    ct_buf_fini(&text);
}

void ct_worker_forget_stack(struct ct_worker *worker)
{
    ct_free(worker->hang.stack);
    ct_free(worker->hang.kernel_stack);
    worker->hang = (struct ct_worker_hang){.stack = NULL};
}

/* Takes the stack that Python's faulthandler writes at SIGABRT, if no other way gave one. */
static void take_last_words(struct ct_worker *worker)
{
    static const char begin[] = "Fatal Python error: Aborted";
    struct ct_stack stack = {0};
    size_t len = 0;
    if (worker->err == NULL || worker->hang.stack != NULL) {
        return;
    }
    ct_output_stream_catch_up(worker->err);
    const char *bytes = ct_output_stream_tail_bytes(worker->err, &len);
    const char *found = bytes != NULL ? memmem(bytes, len, begin, sizeof(begin) - 1) : NULL;
    if (found != NULL &&
        ct_stack_parse_faulthandler(found, len - (size_t)(found - bytes), &stack) == 0) {
        ct_worker_keep_stack(worker, &stack);
    }
    ct_stack_fini(&stack);
}

void ct_worker_ended(struct ct_worker *worker, const struct ct_exit *end, bool was_asked,
                     bool permanent, struct ct_oom *oom)
{
    struct ct_report_worker *report = &worker->report;
    report->ended = true;
    report->was_asked = was_asked;
    report->max_rss_kib = end->max_rss_kib;
    if (worker->ended_for.kind == CT_END_HUNG) {
        take_last_words(worker);
        memcpy(worker->ended_for.detail, worker->hang.place, sizeof(worker->hang.place));
    }
    if (worker->ended_for.kind != CT_END_EXITED) {
        report->end = worker->ended_for;
    } else if (end->signal != 0) {
        report->end = (struct ct_worker_end){CT_END_SIGNALED, end->signal, end->core};
        report->killed = end->signal == SIGKILL && was_asked;
        if (end->signal == SIGKILL && !was_asked) {
            look_for_memory(worker, oom);
        }
    } else {
        report->end =
            (struct ct_worker_end){CT_END_EXITED, end->code, .final = permanent && end->code != 0};
    }
}

void ct_worker_clear(struct ct_worker *worker)
{
    worker->told_to_park = worker->parked = worker->kept = false;
    ct_proc_free(worker->proc);
    ct_output_stream_free(worker->out);
    ct_output_stream_free(worker->err);
    ct_worker_forget_stack(worker);
    worker->proc = NULL;
    worker->out = NULL;
    worker->err = NULL;
}
