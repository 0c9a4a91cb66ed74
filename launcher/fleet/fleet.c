/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line that starts a ctrun on another machine. The launch agent hands it to a shell
 * there, so each word is quoted.
 */
#include "launcher/fleet/fleet.h"

#include "rendezvous/admission/token.h"

#include <string.h>

#define BLANKS " \t"

bool ct_fleet_exports(const char *variable)
{
    static const char *const prefixes[] = {"CTRUN_",    "CUBLAS_", "GLOO_",       "KMP_",
                                           "LOGLEVEL=", "NCCL_",   "OMP_",        "PET_",
                                           "PYTHON",    "TORCH",   "VIRTUAL_ENV="};
    if (strncmp(variable, CT_TOKEN_ENV "=", sizeof(CT_TOKEN_ENV)) == 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

bool ct_fleet_is_here(const char *host, const char *own)
{
    return strcmp(host, "localhost") == 0 || strcmp(host, "127.0.0.1") == 0 ||
           strcmp(host, "::1") == 0 || strcmp(host, own) == 0;
}

void ct_fleet_quote(struct ct_buf *out, const char *word)
{
    ct_buf_addf(out, "'");
    for (const char *at = word; *at != '\0';) {
        size_t plain = strcspn(at, "'");
        ct_buf_add(out, at, plain);
        at += plain;
        if (*at == '\'') {
            ct_buf_addf(out, "'\\''");
            at++;
        }
    }
    ct_buf_addf(out, "'");
}

static void add_word(struct ct_buf *out, const char *word)
{
    ct_buf_addf(out, " ");
    ct_fleet_quote(out, word);
}

static void add_env(struct ct_buf *out, char *const *env)
{
    bool any = false;
    for (size_t i = 0; env[i] != NULL; i++) {
        if (ct_fleet_exports(env[i])) {
            ct_buf_addf(out, "%s", any ? "" : " env");
            any = true;
            add_word(out, env[i]);
        }
    }
}

/* Adds an option with its value behind an equals sign: as a word of its own, a value that begins
 * with a dash would be taken for an option. */
static void add_option(struct ct_buf *out, const char *name, const char *value)
{
    ct_buf_addf(out, " --%s=", name);
    ct_fleet_quote(out, value);
}

/* Adds the options that tell a ctrun its node rank and the job's store. An IPv6 address is in
 * brackets, which are a pattern to a shell. */
static void add_rendezvous(const struct ct_fleet_spec *spec, int index, struct ct_buf *out)
{
    char endpoint[CT_ADDR_JOIN_MAX];
    ct_addr_join(spec->address, spec->port, endpoint, sizeof(endpoint));
    int workers = spec->hosts->list[index].workers;
    ct_buf_addf(out,
                " --agent-stdin --node-rank=%d"
                " --rdzv-backend=c10d --rdzv-conf=is_host=%d",
                index, spec->job_id != NULL && index == 0);
    add_option(out, "rdzv-endpoint", endpoint);
    if (spec->job_id != NULL) {
        ct_buf_addf(out, " --agent-job=%s-%d", spec->job_id, index);
    }
    if (!spec->nnodes_given) {
        ct_buf_addf(out, " --nnodes=%d", spec->hosts->count);
    }
    if (workers > 0) {
        ct_buf_addf(out, " --nproc-per-node=%d", workers);
    }
    add_option(out, "rdzv-id", spec->run_id);
}

int ct_fleet_command(const struct ct_fleet_spec *spec, int index, struct ct_buf *out)
{
    ct_buf_addf(out, "cd");
    add_word(out, spec->folder);
    ct_buf_addf(out, " && exec");
    add_env(out, spec->env);
    add_word(out, spec->ctrun);
    for (int i = 0; i < spec->num_options; i++) {
        add_word(out, spec->options[i]);
    }
    add_rendezvous(spec, index, out);
    ct_buf_addf(out, " --");
    for (size_t i = 0; spec->command[i] != NULL; i++) {
        add_word(out, spec->command[i]);
    }
    return ct_buf_status(out);
}

/* Adds the words of --launch-agent. The list owns them. */
static int add_agent(struct ct_strlist *out, const char *agent)
{
    int rc = 0;
    for (const char *at = agent + strspn(agent, BLANKS); rc == 0 && *at != '\0';
         at += strspn(at, BLANKS)) {
        size_t len = strcspn(at, BLANKS);
        rc = ct_strlist_printf(out, "%.*s", (int)len, at);
        at += len;
    }
    return rc;
}

static int fill_argv(const struct ct_fleet_spec *spec, int index, bool here, const char *command,
                     struct ct_strlist *out)
{
    int rc = here ? ct_strlist_borrow(out, "/bin/sh") : add_agent(out, spec->agent);
    if (rc != 0) {
        return rc;
    }
    rc = ct_strlist_borrow(out, here ? "-c" : spec->hosts->list[index].name);
    if (rc != 0) {
        return rc;
    }
    rc = ct_strlist_borrow(out, command);
    if (rc != 0) {
        return rc;
    }
    return ct_strlist_close(out);
}

int ct_fleet_argv(const struct ct_fleet_spec *spec, int index, bool here, const char *command,
                  struct ct_strlist *out, struct ct_err *err)
{
    if (!here && spec->agent[strspn(spec->agent, BLANKS)] == '\0') {
        return ct_err_set(err, CT_EINVAL, "--launch-agent needs a program, such as ssh");
    }
    int rc = fill_argv(spec, index, here, command, out);
    return rc != 0 ? ct_err_set(err, rc, "out of memory for the launch agents") : 0;
}
