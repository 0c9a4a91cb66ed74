/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints one row for each fact: its name, its value, and where the value comes from. The caller
 * frees the buffer, also after a failure.
 */
#include "launcher/setup/config.h"

#include "common/exit_code.h"
#include "common/ranges.h"
#include "common/text.h"
#include "launcher/binding/binder.h"
#include "launcher/cli/option_table.h"
#include "launcher/setup/misspelt_env.h"
#include "launcher/setup/no_effect.h"
#include "launcher/setup/prepare.h"
#include "launcher/setup/store_address.h"
#include "launcher/util/environ.h"
#include "launcher/worker/worker_env.h"
#include "rendezvous/admission/token.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Longer than every option's name with its dashes. */
#define SOURCE_MAX 64
/* So many hosts are named; of the rest only the number is printed. */
#define HOSTS_SHOWN 16
/* As many as the largest machines have GPUs. */
#define WORKERS_SHOWN 16
/* Longer than any value that is shown in a column; the rest of a longer one is cut. */
#define VALUE_MAX 320

static const char *const mode_texts[] = {
    [CT_MODE_SINGLE] = "single: this ctrun starts all workers",
    [CT_MODE_AGENT] = "agent: one ctrun on each node, each starts its workers",
    [CT_MODE_SHIM] = "shim: each task is one rank, its ctrun starts one worker",
};

struct table {
    const struct ct_config *config;
    struct ct_buf *out;
    int exit_code; /* with which the job would fail to start; CT_EXIT_OK if it would start */
    int rc;
};

/* Prints "name value from"; does nothing after a failure. A value may quote the environment, so
 * control characters are removed from it. */
static void row(struct table *table, const char *name, const char *from, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void row(struct table *table, const char *name, const char *from, const char *fmt, ...)
{
    char value[VALUE_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(value, sizeof(value), fmt, ap);
    va_end(ap);
    ct_text_clean(value);
    if (table->rc == 0) {
        table->rc = from != NULL ? ct_buf_printf(table->out, "%-13s%-32s %s\n", name, value, from)
                                 : ct_buf_printf(table->out, "%-13s%s\n", name, value);
    }
}

static void print_nodes(struct table *table)
{
    const struct ct_scheduler *scheduler = table->config->scheduler;
    const struct ct_resolved *resolved = table->config->resolved;
    if (resolved->mode == CT_MODE_SHIM) {
        row(table, "world size", resolved->nnodes_from, "%d", resolved->max_nodes);
        row(table, "rank", resolved->node_rank_from, "%d", resolved->node_rank);
        row(table, "local rank", scheduler->local_rank.from, "%d of %d", resolved->local_rank,
            resolved->local_size);
        row(table, "node", scheduler->node_rank.from, "%d of %d", resolved->group_rank,
            resolved->group_count);
        return;
    }
    if (resolved->min_nodes < resolved->max_nodes) {
        row(table, "nodes", resolved->nnodes_from, "%d to %d", resolved->min_nodes,
            resolved->max_nodes);
    } else {
        row(table, "nodes", resolved->nnodes_from, "%d", resolved->max_nodes);
    }
    if (resolved->mode == CT_MODE_AGENT) {
        if (resolved->node_rank >= 0) {
            row(table, "node rank", resolved->node_rank_from, "%d", resolved->node_rank);
        } else {
            row(table, "node rank", "default", "by the order of the host names");
        }
    }
}

/* Ranks are known only if all nodes start equally many workers, which shows at the rendezvous. */
static void print_workers(struct table *table)
{
    const struct ct_resolved *resolved = table->config->resolved;
    static const char *const kinds[] = {
        [CT_NPROC_COUNT] = "",
        [CT_NPROC_AUTO] = " (auto)",
        [CT_NPROC_CPU] = " (cpu)",
        [CT_NPROC_GPU] = " (gpu)",
    };
    int workers = resolved->workers;
    row(table, "workers here", resolved->workers_from, "%d%s", workers,
        kinds[table->config->options->nproc_kind]);
    if (resolved->mode == CT_MODE_SINGLE) {
        row(table, "ranks here", NULL, "0 to %d of %d", workers - 1, workers);
    } else if (resolved->mode == CT_MODE_AGENT && resolved->node_rank >= 0 &&
               resolved->min_nodes == resolved->max_nodes) {
        long long first = (long long)resolved->node_rank * workers;
        row(table, "ranks here", NULL, "%lld to %lld of %lld, if all nodes start as many", first,
            first + workers - 1, (long long)resolved->max_nodes * workers);
    }
}

/* "--max-restarts", "PET_MAX_RESTARTS" or "default". Returns `out`. */
static const char *source(const struct table *table, enum ct_option_id id, char out[SOURCE_MAX])
{
    enum ct_given given = ct_option_given(table->config->options, id);
    const char *name = "";
    for (size_t i = 0; i < ct_option_count; i++) {
        name = ct_option_table[i].id == id ? ct_option_table[i].name : name;
    }
    if (given == CT_GIVEN_NOT) {
        (void)snprintf(out, SOURCE_MAX, "default");
        return out;
    }
    (void)snprintf(out, SOURCE_MAX, "%s%s", given == CT_GIVEN_ENV ? "PET_" : "--", name);
    for (char *p = out; given == CT_GIVEN_ENV && *p != '\0'; p++) {
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    }
    return out;
}

/* The port is one at which every machine listens if it can, in case it hosts the store. */
static void print_etcd(struct table *table)
{
    const struct ct_resolved *resolved = table->config->resolved;
    char from[SOURCE_MAX];
    row(table, "meets at", source(table, CT_OPT_RDZV_ENDPOINT, from), "etcd at %s", resolved->etcd);
    if (resolved->master_port > 0) {
        row(table, "own port", resolved->port_from, "%d, or a free one", resolved->master_port);
    } else {
        row(table, "own port", resolved->port_from, "a free one");
    }
    row(table, "hosted by", NULL, "the ctrun that etcd names");
}

static void print_store(struct table *table)
{
    const struct ct_resolved *resolved = table->config->resolved;
    if (resolved->etcd != NULL) {
        print_etcd(table);
        return;
    }
    const struct ct_store_address *address = &resolved->store_address;
    bool single = resolved->mode == CT_MODE_SINGLE;
    bool computed = resolved->port_from == table->config->scheduler->job_id_from;
    char text[CT_ADDR_JOIN_MAX];
    ct_addr_join(address->host, address->port, text, sizeof(text));
    if (address->port != 0) {
        row(table, "store", resolved->master_from, "%s", text);
    } else {
        row(table, "store", resolved->master_from, "%s, a free port", address->host);
    }
    row(table, "its port", resolved->port_from, "%s",
        address->port == 0 ? "chosen by the kernel"
        : computed         ? "computed from the job's id"
                           : "as given");
    if (address->duty == CT_HOST_HERE || (address->duty == CT_HOST_IF_OURS && single)) {
        row(table, "hosted by", NULL, "this ctrun");
    } else if (address->duty == CT_HOST_ELSEWHERE) {
        row(table, "hosted by", NULL, "%s",
            resolved->mode == CT_MODE_SHIM ? "rank 0's ctrun" : "another machine's ctrun");
    } else {
        row(table, "hosted by", NULL,
            "the ctrun whose machine has this address, told by binding it");
    }
}

/* Prints which interface a library will use: the user's choice, ours, or the library's own. */
static void print_interface(struct table *table, const struct ct_interface_facts *facts,
                            const char *library, const char *name, const char *sign,
                            char *const *env)
{
    const char *interface = facts->local[0] != '\0' ? facts->local : facts->way;
    const char *given = ct_environ_get(env, name);
    char why[2 * CT_HOST_MAX + 64];
    (void)snprintf(why, sizeof(why), "%s%s means %s here",
                   facts->named              ? ""
                   : facts->local[0] != '\0' ? "--local-addr: "
                                             : "the way to the store: ",
                   facts->name, facts->means[0] != '\0' ? facts->means : "nothing");
    ct_text_clean(why);
    if (given != NULL) {
        row(table, library, name, "%s", given);
    } else if (facts->named) {
        row(table, library, why, "as it finds it");
    } else if (sign[0] != '\0' && facts->nccl_configured) {
        row(table, library, "its configuration file", "as it finds it");
    } else if (interface[0] != '\0') {
        row(table, library, why, "%s%s", sign, interface);
    } else {
        row(table, library, why, "known with the store");
    }
}

static void print_interfaces(struct table *table, char *const *env)
{
    const struct ct_config *config = table->config;
    struct ct_interface_facts facts;
    if (config->interface != NULL) {
        facts = *config->interface;
    } else {
        ct_interface_expect(config->options, config->resolved, config->machine, env, &facts);
    }
    if (facts.name[0] != '\0') {
        print_interface(table, &facts, "gloo uses", CT_GLOO_INTERFACE_ENV, "", env);
        print_interface(table, &facts, "NCCL uses", CT_NCCL_INTERFACE_ENV, "=", env);
    }
}

static void print_hosts(struct table *table)
{
    const struct ct_scheduler *scheduler = table->config->scheduler;
    if (scheduler->hosts_from == NULL || table->rc != 0) {
        return;
    }
    table->rc = ct_buf_printf(table->out, "%-13s", "expected");
    for (size_t i = 0; table->rc == 0 && i < scheduler->hosts.count && i < HOSTS_SHOWN; i++) {
        char name[CT_HOST_MAX];
        (void)snprintf(name, sizeof(name), "%s", scheduler->hosts.list[i]);
        ct_text_clean(name);
        table->rc = ct_buf_printf(table->out, "%s ", name);
    }
    if (table->rc == 0 && scheduler->hosts.count > HOSTS_SHOWN) {
        table->rc =
            ct_buf_printf(table->out, "and %zu more ", scheduler->hosts.count - HOSTS_SHOWN);
    }
    if (table->rc == 0) {
        table->rc = ct_buf_printf(table->out, "(%s)\n", scheduler->hosts_from);
    }
}

/* Prints the command that would be executed. If there is no such program, prints the words of the
 * command line, and why it cannot be executed. */
static void print_command(struct table *table, char *const *env)
{
    const struct ct_config *config = table->config;
    struct ct_command command = {0};
    struct ct_err err = {0};
    /* A job looks for its program before it looks at the devices, so this exit code wins. */
    int rc = ct_prepare_command(config->options, config->machine->own_dir, env, &command,
                                &table->exit_code, &err);
    char *const *words = rc == 0 ? command.argv.list : config->options->command;
    table->rc = rc == CT_ENOMEM ? rc : table->rc;
    if (table->rc == 0) {
        table->rc = ct_buf_printf(table->out, "%-13s", "command");
    }
    if (table->rc == 0 && *words == NULL) {
        table->rc = ct_buf_printf(table->out, "none, because of --preflight-only\n");
    }
    for (; table->rc == 0 && *words != NULL; words++) {
        table->rc = ct_buf_printf(table->out, "%s%s", *words, words[1] != NULL ? " " : "\n");
    }
    if (rc != 0) {
        row(table, "problem", NULL, "%s", err.text);
    }
    ct_command_fini(&command);
}

static void print_rest(struct table *table)
{
    const struct ct_config *config = table->config;
    const char *run_id = config->resolved->run_id;
    row(table, "run id", config->resolved->run_id_from, "%s",
        run_id != NULL ? run_id : "a random one");
    print_hosts(table);
    struct tm tm;
    time_t end = (time_t)config->scheduler->end_time;
    char text[64];
    if (config->scheduler->end_time_from != NULL && gmtime_r(&end, &tm) != NULL &&
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &tm) > 0) {
        row(table, "ends", config->scheduler->end_time_from, "%s", text);
    }
}

/* ---- failures ------------------------------------------------------------------------------- */

static bool has_code(const void *set, int code)
{
    return ct_code_set_has(set, code);
}

static void print_limits(struct table *table)
{
    const struct ct_options *options = table->config->options;
    const struct ct_restart_limits *limits = &options->limits;
    const struct ct_ranges codes = {has_code, &options->no_restart_on, 256, 0};
    struct ct_buf list = CT_BUF_INIT;
    char from[SOURCE_MAX], window[CT_RESTARTS_WINDOW_TEXT];
    if (options->max_restarts > 0 && options->max_restarts < INT_MAX) {
        row(table, "restarts", source(table, CT_OPT_MAX_RESTARTS, from), "at most %d",
            options->max_restarts);
    }
    if (limits->window_restarts > 0) {
        row(table, "restarts", source(table, CT_OPT_RESTART_BUDGET, from), "at most %s",
            ct_restart_limits_window(limits, window));
    }
    if (limits->max_no_progress > 0) {
        row(table, "no progress", source(table, CT_OPT_MAX_NO_PROGRESS, from),
            "ends the job after %d in a row", limits->max_no_progress);
    }
    ct_ranges_add(&codes, ",", &list);
    if (list.len > 0 && ct_buf_status(&list) == 0) {
        row(table, "no restart", source(table, CT_OPT_NO_RESTART_ON, from), "after exit code %s",
            ct_buf_cstr(&list));
    }
    table->rc = table->rc != 0 ? table->rc : ct_buf_status(&list);
    ct_buf_fini(&list);
    if (limits->ban_after > 0) {
        row(table, "left out", source(table, CT_OPT_BAN_AFTER, from),
            "a machine after %d failure%s", limits->ban_after, limits->ban_after == 1 ? "" : "s");
    }
}

/* What watches over the job, and what makes it outlive a failure. */
static void print_failures(struct table *table, char *const *env)
{
    const struct ct_options *options = table->config->options;
    const struct ct_resolved *resolved = table->config->resolved;
    bool has_any = ct_prepare_has_token(options, env);
    char from[SOURCE_MAX];
    print_limits(table);
    if (options->health_check != NULL) {
        row(table, "health check", source(table, CT_OPT_HEALTH_CHECK, from), "%s",
            options->health_check);
    }
    if (options->warm != 0) {
        char count[32] = "one for each worker";
        if (options->warm > 0) {
            (void)snprintf(count, sizeof(count), "%d interpreter%s", options->warm,
                           options->warm == 1 ? "" : "s");
        }
        row(table, "warm", source(table, CT_OPT_WARM, from), "%s", count);
    }
    if (options->token_file != NULL) {
        row(table, "token", source(table, CT_OPT_TOKEN_FILE, from), "%s", options->token_file);
    } else if (has_any || resolved->shared) {
        row(table, "token",
            options->agent_stdin ? "standard input"
            : has_any            ? CT_TOKEN_ENV
                                 : "default",
            "%s", has_any ? "given" : "none");
    }
    if (resolved->shared) {
        row(table, "failover", options->rdzv_conf.failover >= 0 ? "--rdzv-conf" : "default", "%s",
            !resolved->failover ? "off"
            : has_any           ? "on"
                                : "off, because there is no token");
    }
}

/* ---- devices -------------------------------------------------------------------------------- */

/* Prints the devices of one worker: "sees GPU 2 only, CPUs 0-7". */
static void print_worker(struct table *table, const struct ct_gpu_masks *gpus,
                         const struct ct_binder *binder, int index)
{
    const struct ct_config *config = table->config;
    const struct ct_cpus *cpus = ct_binder_cpus(binder, index);
    int local_rank = config->resolved->local_rank + index;
    struct ct_buf list = CT_BUF_INIT;
    struct ct_gpu_share gpu;
    char name[VALUE_MAX], device[VALUE_MAX] = "", share[32] = "";
    ct_gpu_masks_of(gpus, local_rank, &gpu);
    if (gpu.assigned && gpu.token != NULL) {
        (void)snprintf(device, sizeof(device), "sees GPU %.*s only", (int)gpu.token_len, gpu.token);
    } else if (gpu.assigned) {
        (void)snprintf(device, sizeof(device), "GPU %d of those it sees", gpu.index);
    }
    if (gpu.assigned && gpu.ranks > 1) {
        (void)snprintf(share, sizeof(share), ", 1/%d of it", gpu.ranks);
    }
    int rc = cpus != NULL ? ct_cpus_print(cpus, &list) : 0;
    table->rc = table->rc != 0 ? table->rc : rc;
    const char *text = cpus != NULL && rc == 0 ? ct_buf_cstr(&list) : NULL;
    (void)snprintf(name, sizeof(name), "local rank %d", local_rank);
    row(table, name, NULL, " %s%s%s%s%s", device, share,
        device[0] != '\0' && text != NULL ? ", " : "", text != NULL ? "CPUs " : "",
        text != NULL ? text : "");
    ct_buf_fini(&list);
}

static void print_gpus(struct table *table, const struct ct_gpu_masks *gpus)
{
    const struct ct_gpu_facts *facts = &table->config->machine->gpu_facts;
    if (gpus->devices > 0) {
        row(table, "GPUs",
            facts->visible != NULL ? "CUDA_VISIBLE_DEVICES"
            : facts->mig != NULL   ? "NVIDIA_VISIBLE_DEVICES"
                                   : "/dev/nvidia*",
            "%d, %s", gpus->devices,
            gpus->masked ? "one for each worker to see" : "all workers see all");
    }
    if (gpus->note[0] != '\0') {
        row(table, gpus->note_level <= CT_LOG_WARNING ? "warning" : "note", NULL, "%s", gpus->note);
    }
}

static void print_devices(struct table *table, char *const *env)
{
    const struct ct_config *config = table->config;
    struct ct_gpu_masks gpus = {0};
    struct ct_binder binder = {0};
    struct ct_err gpu_err = {0}, bind_err = {0};
    int workers = config->resolved->workers;
    bool refused =
        ct_machine_gpus(config->machine, config->options, config->resolved, &gpus, &gpu_err) != 0;
    int rc = ct_binder_open_here(config->options->bind, env, workers, &binder, &bind_err);
    table->rc = rc == CT_ENOMEM ? rc : table->rc;
    print_gpus(table, &gpus);
    int shown = gpus.devices > 0 || binder.workers > 0 ? workers : 0;
    for (int i = 0; i < shown && i < WORKERS_SHOWN; i++) {
        print_worker(table, &gpus, &binder, i);
    }
    if (shown > WORKERS_SHOWN) {
        row(table, "", NULL, "and so on to local rank %d",
            config->resolved->local_rank + shown - 1);
    }
    table->exit_code = refused || rc != 0 ? CT_EXIT_SETUP : table->exit_code;
    if (refused) {
        row(table, "problem", NULL, "%s", gpu_err.text);
    }
    if (rc != 0) {
        row(table, "problem", NULL, "%s", bind_err.text);
    }
    ct_binder_fini(&binder);
}

/* Makes the same check as launcher/main.c before it starts the job, and tells also of a name for
 * which the job would wait. */
static void print_store_problem(struct table *table, char *const *env)
{
    struct ct_err err = {0};
    const struct ct_resolved *resolved = table->config->resolved;
    int rc = resolved->etcd != NULL
                 ? ct_prepare_etcd_check(table->config->options, resolved, env, &err)
                 : ct_store_address_check(&resolved->store_address, resolved->shared, &err);
    if (rc == CT_ENOENT && resolved->shared) {
        row(table, "warning", NULL, "%s so far: ctrun waits for it", err.text);
    } else if (rc != 0) {
        row(table, "problem", NULL, "%s", err.text);
        table->exit_code = rc == CT_EINVAL ? CT_EXIT_USAGE : CT_EXIT_SETUP;
    }
}

static void print_no_effect(struct table *table, char *const *env)
{
    char names[CT_MISSPELT_ENV_LINES][CT_MISSPELT_ENV_MAX];
    char lines[CT_NO_EFFECT_LINES][CT_NO_EFFECT_MAX];
    int count = ct_no_effect(table->config->options, table->config->resolved, lines);
    for (int i = 0; i < count; i++) {
        row(table, "warning", NULL, "%s", lines[i]);
    }
    count = ct_misspelt_env(env, names);
    for (int i = 0; i < count; i++) {
        row(table, "warning", NULL, "%s", names[i]);
    }
}

int ct_config_print(const struct ct_config *config, char *const *env, int *exit_code,
                    struct ct_buf *out)
{
    struct table table = {.config = config, .out = out, .exit_code = CT_EXIT_OK};
    row(&table, "host", NULL, "%s", config->machine->host);
    row(&table, "found", NULL, "%s: %s", config->scheduler->name, config->scheduler->reason);
    row(&table, "mode", NULL, "%s", mode_texts[config->resolved->mode]);
    print_nodes(&table);
    print_workers(&table);
    print_store(&table);
    print_interfaces(&table, env);
    print_devices(&table, env);
    print_rest(&table);
    print_failures(&table, env);
    print_command(&table, env);
    if (config->resolved->warning[0] != '\0') {
        row(&table, "warning", NULL, "%s", config->resolved->warning);
    }
    print_store_problem(&table, env);
    print_no_effect(&table, env);
    *exit_code = table.exit_code;
    return table.rc;
}
