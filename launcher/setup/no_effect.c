/* SPDX-License-Identifier: Apache-2.0
 *
 * Each check is independent of the others. Nothing can fail.
 */
#include "launcher/setup/no_effect.h"

#include "launcher/cli/option_table.h"

#include <stdio.h>

struct lines {
    char (*list)[CT_NO_EFFECT_MAX];
    int count;
};

static bool has_flag(const struct ct_options *options, enum ct_option_id id)
{
    return ct_option_given(options, id) == CT_GIVEN_FLAG;
}

static void add_missing_rank(struct lines *out, const char *option, int rank, int workers)
{
    char there[32];
    (void)snprintf(there, sizeof(there), workers == 1 ? "only 0" : "0 to %d", workers - 1);
    (void)snprintf(out->list[out->count++], CT_NO_EFFECT_MAX,
                   "%s: there is no local rank %d here (%s)", option, rank, there);
}

static void check_shown(struct lines *out, const struct ct_rank_set *shown, int workers)
{
    for (int rank = workers; rank < CT_WORKERS_MAX; rank++) {
        if (ct_rank_set_has(shown, rank)) {
            add_missing_rank(out, "--local-ranks-filter", rank, workers);
            return;
        }
    }
}

static void check_map(struct lines *out, const char *option, const struct ct_redirects *map,
                      int workers)
{
    for (int rank = workers; map->has_map && rank < CT_REDIRECTS_MAPPED; rank++) {
        if (map->mapped[rank] != CT_STREAMS_NONE) {
            add_missing_rank(out, option, rank, workers);
            return;
        }
    }
}

/* An option that says more about another one, which is not given. */
static void check_companions(struct lines *out, const struct ct_options *options)
{
    const struct {
        enum ct_option_id id;
        bool has_main;
        const char *option, *main;
    } companions[] = {
        {CT_OPT_ON_HANG, options->hang_timeout_ns >= 0, "--on-hang", "--hang-timeout"},
        {CT_OPT_WARM_IMPORT, options->warm != 0, "--warm-import", "--warm"},
        {CT_OPT_WARM_MEMORY, options->warm != 0, "--warm-memory", "--warm"},
        {CT_OPT_HEALTH_CHECK_TIMEOUT, options->health_check != NULL, "--health-check-timeout",
         "--health-check"},
        {CT_OPT_PREFLIGHT_LIMITS, options->preflight != CT_PREFLIGHT_OFF, "--preflight-limits",
         "--preflight"},
    };
    for (size_t i = 0; i < sizeof(companions) / sizeof(companions[0]); i++) {
        if (has_flag(options, companions[i].id) && !companions[i].has_main) {
            (void)snprintf(out->list[out->count++], CT_NO_EFFECT_MAX, "%s has no effect without %s",
                           companions[i].option, companions[i].main);
        }
    }
}

/* Stacks that are asked for at a hang, in a job in which nobody looks for one. SIGQUIT asks, too.
 */
static void check_stacks(struct lines *out, const struct ct_options *options)
{
    bool looks = options->hang_timeout_ns >= 0 || options->slow_factor > 0;
    if (has_flag(options, CT_OPT_HANG_STACKS) && options->hang_stacks_ms > 0 && !looks) {
        (void)snprintf(out->list[out->count++], CT_NO_EFFECT_MAX,
                       "--hang-stacks has no effect without --hang-timeout or --slow-factor, but "
                       "for the stacks that SIGQUIT asks for");
    }
}

/* A job that fails at once, again and again, restarts every CT_RESTART_PAUSE_MAX_MS in the end. */
static void check_budget(struct lines *out, const struct ct_options *options)
{
    char window[CT_RESTARTS_WINDOW_TEXT];
    int64_t takes_ms = (int64_t)options->limits.window_restarts * CT_RESTART_PAUSE_MAX_MS;
    if (options->limits.window_restarts > 0 && options->limits.window_ms <= takes_ms) {
        (void)snprintf(
            out->list[out->count++], CT_NO_EFFECT_MAX,
            "--restart-budget %s may bound nothing: ctrun itself pauses up to %d s before "
            "a restart, so take a longer time",
            ct_restart_limits_window(&options->limits, window), CT_RESTART_PAUSE_MAX_MS / 1000);
    }
}

/* Options about restarts in a job that cannot have any, or whose machines cannot be replaced. */
static void check_restarts(struct lines *out, const struct ct_options *options,
                           const struct ct_resolved *resolved)
{
    const char *ban = NULL;
    if (!resolved->shared) {
        ban = "has no effect in a job of this machine alone";
    } else if (resolved->min_nodes == resolved->max_nodes && options->spares == 0) {
        ban = "can leave out no machine without --spares or --nnodes MIN:MAX";
    }
    if (has_flag(options, CT_OPT_BAN_AFTER) && options->limits.ban_after > 0 && ban != NULL) {
        (void)snprintf(out->list[out->count++], CT_NO_EFFECT_MAX, "--ban-after %s", ban);
    }
    if (has_flag(options, CT_OPT_NO_RESTART_ON) && options->max_restarts == 0) {
        (void)snprintf(out->list[out->count++], CT_NO_EFFECT_MAX,
                       "--no-restart-on only sets the exit code to 119 here: there are no "
                       "restarts without --max-restarts or --restart-budget");
    }
    if (has_flag(options, CT_OPT_MAX_NO_PROGRESS) && options->limits.max_no_progress > 0 &&
        options->max_restarts == 0 && !resolved->shared) {
        (void)snprintf(out->list[out->count++], CT_NO_EFFECT_MAX,
                       "--max-no-progress has no effect without --max-restarts or "
                       "--restart-budget");
    }
}

/* Options that say where the store is, in a job whose machines learn it from etcd. */
static void check_etcd(struct lines *out, const struct ct_options *options,
                       const struct ct_resolved *resolved)
{
    static const char form[] = "%s has no effect with --rdzv-backend etcd";
    if (resolved->etcd == NULL) {
        return;
    }
    if (has_flag(options, CT_OPT_MASTER_ADDR)) {
        (void)snprintf(out->list[out->count++], CT_NO_EFFECT_MAX, form, "--master-addr");
    }
    if (has_flag(options, CT_OPT_RDZV_CONF) && options->rdzv_conf.is_host >= 0) {
        (void)snprintf(out->list[out->count++], CT_NO_EFFECT_MAX, form, "is_host of --rdzv-conf");
    }
}

int ct_no_effect(const struct ct_options *options, const struct ct_resolved *resolved,
                 char lines[CT_NO_EFFECT_LINES][CT_NO_EFFECT_MAX])
{
    struct lines out = {lines, 0};
    /* If a scheduler has started one ctrun for each rank, the rank may exist in another ctrun. */
    bool has_all_ranks = resolved->mode != CT_MODE_SHIM;
    if (has_all_ranks && has_flag(options, CT_OPT_LOCAL_RANKS_FILTER) && options->shown.given) {
        check_shown(&out, &options->shown, resolved->workers);
    }
    if (has_all_ranks && has_flag(options, CT_OPT_REDIRECTS)) {
        check_map(&out, "--redirects", &options->redirects, resolved->workers);
    }
    if (has_all_ranks && has_flag(options, CT_OPT_TEE)) {
        check_map(&out, "--tee", &options->tee, resolved->workers);
    }
    check_companions(&out, options);
    check_stacks(&out, options);
    check_budget(&out, options);
    check_restarts(&out, options, resolved);
    check_etcd(&out, options, resolved);
    if (has_flag(options, CT_OPT_WARM) && options->warm != 0 && options->max_restarts == 0 &&
        !resolved->shared) {
        (void)snprintf(
            out.list[out.count++], CT_NO_EFFECT_MAX,
            "--warm has no effect without --max-restarts or --restart-budget in a job of "
            "this machine alone");
    }
    if (resolved->mode == CT_MODE_SINGLE && has_flag(options, CT_OPT_SPARES) &&
        options->spares > 0) {
        (void)snprintf(out.list[out.count++], CT_NO_EFFECT_MAX,
                       "--spares has no effect without --nnodes in a job of this machine alone");
    }
    return out.count;
}
