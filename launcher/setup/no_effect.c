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
    if (has_flag(options, CT_OPT_ON_HANG) && options->hang_timeout_ns < 0) {
        (void)snprintf(out.list[out.count++], CT_NO_EFFECT_MAX,
                       "--on-hang has no effect without --hang-timeout");
    }
    if (resolved->mode == CT_MODE_SINGLE && has_flag(options, CT_OPT_SPARES) &&
        options->spares > 0) {
        (void)snprintf(out.list[out.count++], CT_NO_EFFECT_MAX,
                       "--spares has no effect without --nnodes in a job of this machine alone");
    }
    return out.count;
}
