/* SPDX-License-Identifier: Apache-2.0
 *
 * A verdict of the membership is the first one on a hang, or the last one, which follows after the
 * machines have told where their workers stand.
 */
#include "launcher/hang/hang_standing.h"

int64_t ct_hang_standing_ms(const struct ct_hang_standing *standing, int64_t now_ns)
{
    int64_t end_ns = standing->went_on_ns != 0 ? standing->went_on_ns : now_ns;
    return standing->report.still_ms + (end_ns - standing->since_ns) / CT_NS_PER_MS;
}

bool ct_hang_standing_take_sample(struct ct_hang_standing *standing, bool went_on, int64_t now_ns)
{
    if (!standing->report.stands || standing->failed) {
        return false;
    }
    if (went_on && standing->went_on_ns == 0) {
        standing->went_on_ns = now_ns;
    }
    return standing->went_on_ns != 0 && now_ns - standing->went_on_ns >= CT_HANG_OVER_NS;
}

bool ct_hang_standing_take_end(struct ct_hang_standing *standing, bool success)
{
    if (!standing->report.stands || standing->acted) {
        return false;
    }
    standing->failed = standing->failed || !success;
    return standing->went_on_ns != 0 && !standing->failed;
}

/* Does the verdict show that ranks have made progress since the hang was told? Of a suspect on this
 * machine, the machine's own samples tell that. */
static bool is_past(const struct ct_hang_standing *standing, const struct ct_hang_news *news)
{
    bool is_ours = standing->is_here && standing->report.rank >= 0;
    int64_t told_ms = (news->now_ns - standing->since_ns) / CT_NS_PER_MS;
    return !is_ours && news->verdict->still_ms < told_ms;
}

static void take_first(const struct ct_hang_standing *standing, const struct ct_hang_news *news,
                       struct ct_hang_todo *out)
{
    const struct ct_hang_vote *verdict = news->verdict;
    bool stands = standing->report.stands;
    out->ends = stands && is_past(standing, news);
    stands = stands && !out->ends;
    out->answers = verdict->asks;
    out->tells = !stands || (standing->report.rank < 0 && verdict->kind != CT_HANG_VOTE_ALL);
    if (news->is_here && !verdict->asks) {
        out->objects = !news->stand_still;
        out->tells = out->tells && news->stand_still;
        out->acts = news->stand_still && !(stands && standing->acted);
    }
}

static void take_last(const struct ct_hang_standing *standing, const struct ct_hang_news *news,
                      struct ct_hang_todo *out)
{
    bool is_named = news->verdict->kind == CT_HANG_VOTE_NAMED;
    bool is_told = is_named ? standing->report.rank == news->verdict->rank : standing->says_nobody;
    if (!news->stand_still) {
        out->objects = true;
        return;
    }
    out->tells = !standing->report.stands || !is_told;
    out->acts = news->is_here && !(standing->report.stands && standing->acted);
}

void ct_hang_standing_take(const struct ct_hang_standing *standing, const struct ct_hang_news *news,
                           struct ct_hang_todo *out)
{
    const struct ct_hang_vote *verdict = news->verdict;
    bool is_last = !verdict->asks && news->awaits &&
                   (verdict->kind == CT_HANG_VOTE_NAMED || verdict->kind == CT_HANG_VOTE_ALL);
    *out = (struct ct_hang_todo){.is_last = is_last};
    if (is_last) {
        take_last(standing, news, out);
    } else if (verdict->kind != CT_HANG_VOTE_NAMED) { /* else it is of a hang that is over */
        take_first(standing, news, out);
    }
}
