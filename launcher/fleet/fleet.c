/* SPDX-License-Identifier: Apache-2.0 */
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

int ct_fleet_quote(struct ct_buf *out, const char *word)
{
    int rc = ct_buf_append(out, "'", 1);
    for (const char *at = word; rc == 0 && *at != '\0';) {
        size_t plain = strcspn(at, "'");
        rc = ct_buf_append(out, at, plain);
        at += plain;
        if (rc == 0 && *at == '\'') {
            rc = ct_buf_append(out, "'\\''", 4);
            at++;
        }
    }
    return rc != 0 ? rc : ct_buf_append(out, "'", 1);
}

static int add_word(struct ct_buf *out, const char *word)
{
    int rc = ct_buf_append(out, " ", 1);
    return rc != 0 ? rc : ct_fleet_quote(out, word);
}

static int add_env(struct ct_buf *out, char *const *env)
{
    int rc = 0;
    bool any = false;
    for (size_t i = 0; rc == 0 && env[i] != NULL; i++) {
        if (ct_fleet_exports(env[i])) {
            rc = any ? 0 : ct_buf_printf(out, " env");
            any = true;
            rc = rc != 0 ? rc : add_word(out, env[i]);
        }
    }
    return rc;
}

/* Where the machine stands in the job, by the options that say so. */
static int add_place(const struct ct_fleet_plan *plan, int index, struct ct_buf *out)
{
    char endpoint[CT_ADDR_JOIN_MAX];
    ct_addr_join(plan->address, plan->port, endpoint, sizeof(endpoint));
    int workers = plan->hosts->list[index].workers;
    int rc = ct_buf_printf(out,
                           " --agent-stdin --node-rank=%d"
                           " --rdzv-backend=c10d --rdzv-conf=is_host=0 --rdzv-endpoint=%s",
                           index, endpoint);
    if (rc == 0 && !plan->nnodes_given) {
        rc = ct_buf_printf(out, " --nnodes=%d", plan->hosts->count);
    }
    if (rc == 0 && workers > 0) {
        rc = ct_buf_printf(out, " --nproc-per-node=%d", workers);
    }
    rc = rc != 0 ? rc : ct_buf_printf(out, " --rdzv-id");
    return rc != 0 ? rc : add_word(out, plan->run_id);
}

int ct_fleet_command(const struct ct_fleet_plan *plan, int index, struct ct_buf *out)
{
    int rc = ct_buf_printf(out, "cd");
    rc = rc != 0 ? rc : add_word(out, plan->folder);
    rc = rc != 0 ? rc : ct_buf_printf(out, " && exec");
    rc = rc != 0 ? rc : add_env(out, plan->env);
    rc = rc != 0 ? rc : add_word(out, plan->ctrun);
    for (int i = 0; rc == 0 && i < plan->num_options; i++) {
        rc = add_word(out, plan->options[i]);
    }
    rc = rc != 0 ? rc : add_place(plan, index, out);
    rc = rc != 0 ? rc : ct_buf_printf(out, " --");
    for (size_t i = 0; rc == 0 && plan->command[i] != NULL; i++) {
        rc = add_word(out, plan->command[i]);
    }
    return rc;
}

/* The words of --launch-agent, each a string of the list's own. */
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

int ct_fleet_argv(const struct ct_fleet_plan *plan, int index, bool here, const char *command,
                  struct ct_strlist *out, struct ct_err *err)
{
    int rc;
    if (here) {
        rc = ct_strlist_borrow(out, "/bin/sh");
        rc = rc != 0 ? rc : ct_strlist_borrow(out, "-c");
    } else {
        rc = add_agent(out, plan->agent);
        if (rc == 0 && out->count == 0) {
            return ct_err_set(err, CT_EINVAL, "--launch-agent needs a program, such as ssh");
        }
        rc = rc != 0 ? rc : ct_strlist_borrow(out, plan->hosts->list[index].name);
    }
    rc = rc != 0 ? rc : ct_strlist_borrow(out, command);
    rc = rc != 0 ? rc : ct_strlist_close(out);
    return rc != 0 ? ct_err_set(err, rc, "out of memory for the launch agents") : 0;
}
