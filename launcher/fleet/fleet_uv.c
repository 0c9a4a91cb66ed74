/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: open the store with the membership, start a launch agent for each machine, write the
 * job's token as the first line of its standard input, show its output, and wait until all launch
 * agents have ended.
 *
 * Other paths: a signal is sent as a line "signal N" to each ctrun that still runs; the membership
 * makes one event of these lines. Their standard input stays open as long as this process lives.
 * Its end tells them that this process is gone, even if it was killed.
 *
 * Failure modes: a launch agent that ends before its ctrun has joined (no such host, no ssh key)
 * ends the job, because the others would wait for it in vain. It may end so with code 0, because
 * not every launch agent passes on the code of what it has started. If it ends later, its machine
 * is a lost node, which the membership deals with. A launch agent that does not end is killed. The
 * time for that runs from the end of the job, from a signal, or from join_timeout: EXIT_MS if its
 * ctrun has not joined, otherwise --shutdown-timeout more.
 *
 * Who frees: everything lives in struct fleet on the stack of ct_fleet_run(). close_all() closes
 * it.
 */
#include "launcher/fleet/fleet_uv.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "common/clock.h"
#include "common/host_list.h"
#include "common/list.h"
#include "launcher/cli/option_table.h"
#include "launcher/fleet/fleet.h"
#include "launcher/fleet/fleet_address.h"
#include "launcher/fleet/fleet_start.h"
#include "launcher/output/output_uv.h"
#include "launcher/process/proc_uv.h"
#include "launcher/report/job_story.h"
#include "launcher/report/report.h"
#include "launcher/report/worker_end.h"
#include "launcher/setup/page_url.h"
#include "launcher/util/environ.h"
#include "launcher/util/signals_uv.h"
#include "launcher/util/store_end.h"
#include "rendezvous/admission/access.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/control/control.h"
#include "rendezvous/server/server_uv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How long a launch agent may take to end when nothing is left to end on its machine. */
#define EXIT_MS 1000

/* How long launch agents may take after a second SIGINT. It is enough for the signal to reach the
 * machines, and for their answer. */
#define HURRY_MS 200

/* How long the last lines of output may take after a signal, or after launch agents were killed. */
#define DRAIN_MS 1000

struct node {
    struct fleet *fleet;
    int index;
    struct ct_proc *proc; /* NULL = never started */
    struct ct_output_stream *out, *err;
    uv_pipe_t in; /* to its standard input */
    bool in_open, ended;
    bool joined; /* its ctrun has joined the membership */
    bool killed; /* its launch agent did not end and was killed, so its exit code means nothing */
};

struct fleet {
    const struct ct_fleet_job *job;
    struct ct_log log;
    uv_loop_t loop;
    struct ct_signals_watch signals;
    uv_timer_t exit_timer; /* how long launch agents may still take to end */
    uv_timer_t join_timer; /* how long machines may take to join: join_timeout */
    uv_timer_t end_timer;  /* looks when the store may end */
    bool timers_open, end_timer_open;
    struct ct_store_end end;
    struct ct_output *output;
    struct ct_procs *procs;
    struct ct_server *server;
    struct ct_token token;
    char address[CT_HOST_MAX];
    struct node *nodes;
    const char **expected; /* the hosts' names */
    int running;
    bool ending;  /* all machines were told to end */
    bool waited;  /* EXIT_MS is over: launch agents of machines that have not joined were killed */
    bool closing; /* close_all() was called */
    bool killed;  /* some launch agents had to be killed */
    bool drained; /* nothing but the store is left */
    bool killed_joined; /* one of them was that of a machine that had joined */
    int signo;          /* the first signal that asked us to end; 0 = none */
    int exit_code;
};

static void close_all(struct fleet *fleet);
static void close_store(struct fleet *fleet);

/* ---- messages -------------------------------------------------------------------------------- */

static void say(struct fleet *fleet, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct fleet *fleet, const char *fmt, ...)
{
    char line[CT_ERR_TEXT_MAX + 128];
    va_list args;
    va_start(args, fmt);
    size_t size = ct_report_line(line, sizeof(line), fmt, args);
    va_end(args);
    if (fleet->output != NULL) {
        ct_output_say(fleet->output, CT_OUTPUT_ERR, line, size);
    }
}

static void emit_log(void *data, enum ct_log_level level, const char *line)
{
    say(data, "%s: %s", ct_log_level_name(level), line);
}

/* ---- lines to the machines ------------------------------------------------------------------- */

static void on_in_closed(uv_handle_t *handle)
{
    (void)handle;
}

/* The ctrun there takes the end of its standard input for the end of this process. */
static void close_stdin(struct node *node)
{
    if (node->in_open) {
        node->in_open = false;
        uv_close((uv_handle_t *)&node->in, on_in_closed);
    }
}

/* A full pipe belongs to an ssh that no longer reads, so the machine counts as lost. */
static void send_line(struct node *node, const char *line)
{
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)line, (unsigned)strlen(line));
    if (node->in_open && uv_try_write((uv_stream_t *)&node->in, &buf, 1) < 0) {
        close_stdin(node);
    }
}

/* Kills launch agents that have not ended: all of them, or only those whose ctrun never joined. */
static void kill_agents(struct fleet *fleet, bool all)
{
    const struct ct_hosts *hosts = fleet->job->hosts;
    char text[CT_HOST_LIST_MAX];
    const char **names = ct_calloc((size_t)hosts->count, sizeof(*names));
    int count = 0;
    for (int i = 0; i < hosts->count; i++) {
        struct node *node = &fleet->nodes[i];
        if (node->proc == NULL || node->ended || node->killed || (node->joined && !all)) {
            continue;
        }
        node->killed = true;
        fleet->killed = true;
        fleet->killed_joined = fleet->killed_joined || node->joined;
        if (names != NULL) {
            names[count++] = hosts->list[i].name;
        }
        ct_proc_signal_group(node->proc, SIGKILL);
    }
    if (count > 0) {
        ct_host_list_text(names, count, text, sizeof(text));
        say(fleet, "killed the launch agent%s (%s) for %s, which did not end", count > 1 ? "s" : "",
            fleet->job->options->launch_agent, text);
    }
    ct_free(names);
}

static void on_exit_timer(uv_timer_t *timer)
{
    struct fleet *fleet = CT_CONTAINER_OF(timer, struct fleet, exit_timer);
    kill_agents(fleet, fleet->waited);
    if (!fleet->waited) {
        fleet->waited = true;
        (void)uv_timer_start(&fleet->exit_timer, on_exit_timer,
                             (uint64_t)fleet->job->options->shutdown_timeout_ms, 0);
    } else if (!fleet->closing) {
        close_all(fleet); /* a process that the kernel keeps alive is not waited for */
    }
}

/* From here on every launch agent must end. */
static void start_exit_timer(struct fleet *fleet)
{
    if (!fleet->waited && !uv_is_active((uv_handle_t *)&fleet->exit_timer)) {
        uv_update_time(&fleet->loop);
        (void)uv_timer_start(&fleet->exit_timer, on_exit_timer, EXIT_MS, 0);
    }
}

static void end_all(struct fleet *fleet)
{
    fleet->ending = true;
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        close_stdin(&fleet->nodes[i]);
    }
    start_exit_timer(fleet);
}

/* Have all machines that joined ended, and has one joined? */
static bool is_over(const struct fleet *fleet)
{
    bool any = false;
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        const struct node *node = &fleet->nodes[i];
        if (node->joined && !node->ended) {
            return false;
        }
        any = any || node->joined;
    }
    return any;
}

static int nodes_needed(const struct fleet *fleet)
{
    const struct ct_options *options = fleet->job->options;
    return ct_option_given(options, CT_OPT_NNODES) != CT_GIVEN_NOT ? options->min_nodes
                                                                   : fleet->job->hosts->count;
}

static void say_who_is_missing(struct fleet *fleet, const char **names, int joined, int count)
{
    const struct ct_options *options = fleet->job->options;
    char here[CT_HOST_LIST_MAX], missing[CT_HOST_LIST_MAX];
    if (joined > 0) {
        ct_host_list_text(names, joined, here, sizeof(here));
    }
    ct_host_list_text(names + joined, count - joined, missing, sizeof(missing));
    say(fleet, "join_timeout (%g s) is over: no ctrun has joined from %s%s%s",
        (double)options->rdzv_conf.join_ms / 1000, missing, joined > 0 ? ", only from " : "",
        joined > 0 ? here : "");
    say(fleet,
        "what to do: see whether `%s HOST true` ends by itself, and whether %s:%d can be reached "
        "from there; --rdzv-conf join_timeout=SECONDS waits longer",
        options->launch_agent, fleet->address, ct_server_port(fleet->server));
}

static void on_join_timeout(uv_timer_t *timer)
{
    struct fleet *fleet = CT_CONTAINER_OF(timer, struct fleet, join_timer);
    const struct ct_hosts *hosts = fleet->job->hosts;
    const char **names = ct_calloc((size_t)hosts->count, sizeof(*names));
    int joined = 0, missing = 0;
    for (int i = 0; i < hosts->count; i++) {
        bool here = fleet->nodes[i].joined;
        int at = here ? joined++ : hosts->count - ++missing;
        if (names != NULL) {
            names[at] = hosts->list[i].name;
        }
    }
    if (joined < nodes_needed(fleet) && !fleet->ending && !fleet->closing) {
        if (names != NULL) {
            say_who_is_missing(fleet, names, joined, hosts->count);
        }
        fleet->exit_code = CT_EXIT_RDZV_TIMEOUT;
        end_all(fleet);
    }
    ct_free(names);
}

static void on_signal(uv_signal_t *handle, int signo)
{
    struct fleet *fleet = handle->data;
    if (fleet->end.lingers) {
        fleet->end.lingers = false;
        if (fleet->drained) {
            close_store(fleet);
        }
        return;
    }
    bool hurry = fleet->signo != 0 && signo == SIGINT;
    char line[32];
    (void)snprintf(line, sizeof(line), "signal %d\n", signo);
    say(fleet, "received SIG%s: passing it on to %d machine%s%s", sigabbrev_np(signo),
        fleet->running, fleet->running == 1 ? "" : "s",
        hurry             ? " and ending at once"
        : signo == SIGINT ? " (once more ends all at once)"
                          : "");
    if (fleet->signo == 0) {
        fleet->signo = signo;
    }
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        send_line(&fleet->nodes[i], line);
    }
    start_exit_timer(fleet);
    if (hurry && !fleet->closing) {
        fleet->waited = true;
        (void)uv_timer_start(&fleet->exit_timer, on_exit_timer, HURRY_MS, 0);
    }
}

/* ---- launch agents --------------------------------------------------------------------------- */

static bool has_message(const struct ct_output_stream *stream)
{
    struct ct_buf tail = CT_BUF_INIT;
    const char *line = ct_output_stream_tail(stream, "\n", &tail) == 0 ? ct_buf_cstr(&tail) : NULL;
    bool found = line != NULL && strstr(line, "\n" CT_REPORT_PREFIX) != NULL;
    ct_buf_fini(&tail);
    return found;
}

/* Has ctrun started on that machine? Then lines with its prefix say why it ended. */
static bool has_spoken(struct node *node)
{
    ct_output_stream_catch_up(node->out); /* of a launch agent that gives a terminal */
    ct_output_stream_catch_up(node->err);
    return has_message(node->out) || has_message(node->err);
}

/* The launch agent of a machine that has not joined has ended. */
static void say_not_started(struct node *node, int code)
{
    struct fleet *fleet = node->fleet;
    char why[CT_FLEET_WHY_MAX];
    fleet->exit_code = ct_fleet_start_failed(fleet->job, node->index, code, has_spoken(node), why);
    if (fleet->output != NULL) {
        ct_output_say(fleet->output, CT_OUTPUT_ERR, why, strlen(why));
    }
}

/* Is a machine still needed that has not joined? */
static bool lacks_nodes(const struct fleet *fleet)
{
    int joined = 0;
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        joined += fleet->nodes[i].joined;
    }
    return joined < nodes_needed(fleet);
}

static void on_exit_of(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    struct node *node = data;
    struct fleet *fleet = node->fleet;
    int code = ct_proc_exit_code(end);
    (void)proc;
    node->ended = true;
    close_stdin(node);
    fleet->running--;
    if (code != 0 && fleet->exit_code == 0 && !node->killed) {
        fleet->exit_code = code;
    }
    bool unexpected = fleet->signo == 0 && !node->joined && !fleet->ending;
    if (unexpected && (code != 0 || lacks_nodes(fleet))) {
        say_not_started(node, code);
        end_all(fleet);
    } else if (is_over(fleet) && !fleet->ending) {
        end_all(fleet); /* the job is over, and the other machines were not needed */
    }
    if (fleet->running == 0 && !fleet->closing) {
        close_all(fleet);
    }
}

/* Opens a pipe; *child gets the end for the launch agent's input. Both close on exec. */
static int open_stdin(struct node *node, int *child, struct ct_err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot make a pipe");
    }
    CT_ASSERT(uv_pipe_init(&node->fleet->loop, &node->in, 0) == 0); /* cannot fail */
    node->in_open = true;
    int rc = uv_pipe_open(&node->in, fds[1]);
    if (rc != 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return ct_err_set(err, CT_EIO, "cannot use a pipe: %s", uv_strerror(rc));
    }
    *child = fds[0];
    return 0;
}

static int open_stream(struct node *node, enum ct_output_fd to, struct ct_output_stream **out,
                       int *child, struct ct_err *err)
{
    struct ct_output *output = node->fleet->output;
    const struct ct_options *job = node->fleet->job->options;
    bool folds = job->fold == CT_FOLD_MODE_AUTO && job->prefix_template == NULL;
    int workers = ct_hosts_workers(node->fleet->job->hosts);
    const struct ct_output_stream_options options = {
        .to = to,
        .mode = ct_output_is_terminal(output, to) ? CT_LINES_TERMINAL : CT_LINES_PLAIN,
        .prefix = "",
        .slow =
            CT_SLOW_OUTPUT_WAIT, /* if lines were dropped here, nobody could say whose they were */
        .fold = {.workers = folds ? workers : 0, .forwarded = true},
    };
    return ct_output_stream_open(output, &options, out, child, err);
}

static int spawn(struct node *node, const struct ct_fleet_spec *spec, const int stdio[3],
                 struct ct_err *err)
{
    struct fleet *fleet = node->fleet;
    const struct ct_fleet_job *job = fleet->job;
    struct ct_fleet_start start;
    int rc = ct_fleet_start_command(job, spec, node->index, &start, err);
    if (rc != 0) {
        return rc;
    }
    const struct ct_spawn_options options = {
        .path = start.path,
        .argv = start.argv.list,
        .envp = job->env,
        .stdio = {stdio[0], stdio[1], stdio[2]},
        .nofile = &job->nofile,
    };
    rc = ct_proc_start(fleet->procs, &options, on_exit_of, node, &node->proc, err);
    ct_fleet_start_fini(&start);
    return rc;
}

static int open_streams(struct node *node, int stdio[3], struct ct_err *err)
{
    int rc = open_stdin(node, &stdio[0], err);
    if (rc != 0) {
        return rc;
    }
    rc = open_stream(node, CT_OUTPUT_OUT, &node->out, &stdio[1], err);
    if (rc != 0) {
        return rc;
    }
    return open_stream(node, CT_OUTPUT_ERR, &node->err, &stdio[2], err);
}

static int start_node(struct fleet *fleet, const struct ct_fleet_spec *spec, int index,
                      struct ct_err *err)
{
    struct node *node = &fleet->nodes[index];
    int stdio[3] = {-1, -1, -1};
    node->fleet = fleet;
    node->index = index;
    int rc = open_streams(node, stdio, err);
    if (rc == 0) {
        rc = spawn(node, spec, stdio, err);
    }
    if (stdio[0] >= 0) {
        (void)close(stdio[0]);
    }
    if (node->out != NULL) {
        ct_output_stream_spawned(node->out);
    }
    if (node->err != NULL) {
        ct_output_stream_spawned(node->err);
    }
    if (rc != 0) {
        return ct_err_wrap(err, "%s", fleet->job->hosts->list[index].name);
    }
    fleet->running++;
    char line[CT_TOKEN_MAX + 2];
    (void)snprintf(line, sizeof(line), "%.*s\n", (int)fleet->token.len, fleet->token.text);
    send_line(node, line);
    explicit_bzero(line, sizeof(line));
    return 0;
}

static int start_nodes(struct fleet *fleet, struct ct_err *err)
{
    const struct ct_fleet_job *job = fleet->job;
    struct ct_fleet_paths paths;
    struct ct_fleet_spec spec;
    int rc = ct_fleet_start_spec(job, &paths, &spec, err);
    if (rc != 0) {
        return rc;
    }
    spec.address = fleet->address;
    spec.port = ct_server_port(fleet->server);
    rc = ct_fleet_start_find_agent(job, &spec, err);
    for (int i = 0; rc == 0 && i < job->hosts->count; i++) {
        rc = start_node(fleet, &spec, i, err);
    }
    return rc;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void on_join(void *data, const struct ct_msg_join *join)
{
    struct fleet *fleet = data;
    if (join->node_rank >= 0 && join->node_rank < fleet->job->hosts->count) {
        fleet->nodes[join->node_rank].joined = true;
    }
}

static int open_store(struct fleet *fleet, struct ct_err *err)
{
    static const struct ct_access this_machine;
    const struct ct_hosts *hosts = fleet->job->hosts;
    int rc = ct_token_make(&fleet->token);
    if (rc != 0) {
        return ct_err_set(err, rc, "no random numbers for the job's token");
    }
    rc = ct_fleet_address(fleet->job, fleet->address, err);
    if (rc != 0) {
        return rc;
    }
    fleet->expected = ct_calloc((size_t)hosts->count, sizeof(*fleet->expected));
    if (fleet->expected == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for %d hosts", hosts->count);
    }
    for (int i = 0; i < hosts->count; i++) {
        fleet->expected[i] = hosts->list[i].name;
    }
    const char *const bind_to[] = {fleet->address};
    const struct ct_server_agents agents = {
        .token = &fleet->token,
        .run_id = fleet->job->run_id,
        .expected = fleet->expected,
        .num_expected = hosts->count,
        .on_join = on_join,
        .data = fleet,
        .keep_job = true, /* at the end its failures are told to those who watch */
    };
    const struct ct_server_options options = {
        .hosts = bind_to,
        .num_hosts = 1,
        .log = &fleet->log,
        .access = &this_machine,
        .own_user = !fleet->job->options->open,
        .page_name = fleet->address,
        .agents = &agents,
    };
    return ct_server_open(&fleet->loop, &options, &fleet->server, err);
}

static int open_all(struct fleet *fleet, struct ct_err *err)
{
    const struct ct_output_options output = {.out_fd = 1, .err_fd = 2, .log = &fleet->log};
    fleet->nodes = ct_calloc((size_t)fleet->job->hosts->count, sizeof(*fleet->nodes));
    if (fleet->nodes == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for %d hosts", fleet->job->hosts->count);
    }
    CT_ASSERT(uv_timer_init(&fleet->loop, &fleet->exit_timer) == 0); /* cannot fail */
    CT_ASSERT(uv_timer_init(&fleet->loop, &fleet->join_timer) == 0);
    CT_ASSERT(uv_timer_init(&fleet->loop, &fleet->end_timer) == 0);
    fleet->timers_open = fleet->end_timer_open = true;
    int rc = ct_output_open(&fleet->loop, &output, &fleet->output, err);
    if (rc != 0) {
        return rc;
    }
    rc = open_store(fleet, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_procs_open(&fleet->loop, fleet->job->guard, &fleet->log, &fleet->procs, err);
    if (rc != 0) {
        return rc;
    }
    return ct_signals_watch_open(&fleet->signals, &fleet->loop, fleet->job->options->signals,
                                 &fleet->log, on_signal, fleet, err);
}

static int64_t drain_ms(const struct fleet *fleet)
{
    return fleet->signo != 0 || fleet->killed ? DRAIN_MS : -1;
}

static void say_page(struct fleet *fleet, bool at_end)
{
    char line[CT_PAGE_LINE_MAX];
    if (ct_page_url_line(fleet->server, fleet->address, fleet->job->options, at_end, line)) {
        say(fleet, "%s", line);
    }
}

/* From now on a signal has its usual effect. */
static void close_waits(struct fleet *fleet)
{
    ct_signals_watch_close(&fleet->signals);
    if (fleet->timers_open) {
        fleet->timers_open = false;
        uv_close((uv_handle_t *)&fleet->exit_timer, NULL);
        uv_close((uv_handle_t *)&fleet->join_timer, NULL);
    }
}

static void close_store(struct fleet *fleet)
{
    close_waits(fleet);
    if (fleet->end_timer_open) {
        fleet->end_timer_open = false;
        uv_close((uv_handle_t *)&fleet->end_timer, NULL);
    }
    ct_server_close(fleet->server, NULL, NULL);
    ct_output_close(fleet->output, drain_ms(fleet), NULL, NULL);
    fleet->output = NULL;
}

static void on_end_timer(uv_timer_t *timer)
{
    struct fleet *fleet = CT_CONTAINER_OF(timer, struct fleet, end_timer);
    if (ct_store_end_is_over(&fleet->end, ct_server_is_telling_end(fleet->server),
                             ct_clock_now(NULL))) {
        close_store(fleet);
    }
}

/* Returns the exit code of a machine, or one that says why its launch agent was killed. */
static int exit_code_of(const struct fleet *fleet)
{
    if (fleet->exit_code != 0 || !fleet->killed) {
        return fleet->exit_code;
    }
    if (fleet->signo != 0) {
        return CT_EXIT_SIGNAL_BASE + fleet->signo;
    }
    return fleet->killed_joined ? CT_EXIT_NODE_LOST : 0;
}

static void tell_end(const struct fleet *fleet)
{
    int code = exit_code_of(fleet);
    char text[64];
    const struct ct_job_end end = {.exit_code = code, .signo = fleet->signo};
    (void)snprintf(text, sizeof(text), "was ended by SIG%s, exit code %d",
                   fleet->signo != 0 ? sigabbrev_np(fleet->signo) : "", code);
    ct_server_tell_end(fleet->server,
                       &(struct ct_server_end){.run_id = fleet->job->run_id,
                                               .outcome = ct_job_story_outcome(&end),
                                               .exit_code = code,
                                               .text = fleet->signo != 0 ? text : NULL});
}

static void on_drained(void *data)
{
    struct fleet *fleet = data;
    for (int i = 0; i < fleet->job->hosts->count; i++) {
        ct_output_stream_free(fleet->nodes[i].out);
        ct_output_stream_free(fleet->nodes[i].err);
        ct_proc_free(fleet->nodes[i].proc);
    }
    ct_procs_close(fleet->procs, NULL, NULL);
    fleet->drained = true;
    tell_end(fleet);
    if (fleet->end.lingers) {
        ct_server_page_sample(fleet->server);
        say_page(fleet, true);
    }
    ct_store_end_begin(&fleet->end, fleet->job->options->linger, ct_clock_now(NULL));
    (void)uv_timer_start(&fleet->end_timer, on_end_timer, 0, ct_store_end_poll_ms(&fleet->end));
}

static void on_stopped(void *data, const struct ct_procs_stopped *result)
{
    struct fleet *fleet = data;
    (void)result;
    ct_output_drain(fleet->output, drain_ms(fleet), on_drained, fleet);
}

/* Called when no launch agent is left, or when none is waited for any more. */
static void close_all(struct fleet *fleet)
{
    fleet->closing = true;
    fleet->end.lingers = fleet->job->options->linger > 0 && fleet->signo == 0 &&
                         fleet->procs != NULL && ct_server_has_page(fleet->server) &&
                         is_over(fleet);
    if (fleet->end.lingers) {
        (void)uv_timer_stop(&fleet->exit_timer);
        (void)uv_timer_stop(&fleet->join_timer);
    } else {
        close_waits(fleet);
    }
    for (int i = 0; fleet->nodes != NULL && i < fleet->job->hosts->count; i++) {
        close_stdin(&fleet->nodes[i]);
    }
    if (fleet->procs != NULL) {
        ct_procs_stop(fleet->procs, SIGTERM, 0, on_stopped, fleet);
    } else {
        close_store(fleet);
    }
}

int ct_fleet_run(const struct ct_fleet_job *job, int *exit_code, struct ct_err *err)
{
    struct fleet fleet = {.job = job, .log = {emit_log, NULL, ct_environ_log_level(job->env)}};
    fleet.log.data = &fleet;
    int rc = uv_loop_init(&fleet.loop);
    if (rc != 0) {
        return ct_err_set(err, CT_EIO, "cannot make an event loop: %s", uv_strerror(rc));
    }
    rc = open_all(&fleet, err);
    if (rc == 0) {
        rc = start_nodes(&fleet, err);
    }
    if (rc != 0 && fleet.running > 0) {
        end_all(&fleet); /* the last of them closes everything */
    } else if (rc != 0) {
        close_all(&fleet);
    } else {
        say_page(&fleet, false);
        uv_update_time(&fleet.loop);
        (void)uv_timer_start(&fleet.join_timer, on_join_timeout,
                             (uint64_t)job->options->rdzv_conf.join_ms, 0);
    }
    (void)uv_run(&fleet.loop, UV_RUN_DEFAULT);
    CT_ASSERT(uv_loop_close(&fleet.loop) == 0);
    ct_token_wipe(&fleet.token);
    ct_free(fleet.nodes);
    ct_free(fleet.expected);
    if (rc == 0) {
        *exit_code = exit_code_of(&fleet);
    }
    return rc;
}
