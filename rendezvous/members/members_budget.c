/* SPDX-License-Identifier: Apache-2.0
 *
 * A restart is taken from the budget of the job and from that of its window of time. A generation
 * without a new step counts towards --max-no-progress. Failures at the start delay the next one.
 */
#include "rendezvous/members/members_budget.h"

#include "common/exit_code.h"
#include "rendezvous/members/members_history.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

/* After more than EARLY_FREE early failures in a row the next start is delayed: by EARLY_FIRST_MS
 * at first, and by EARLY_LAST_MS at most. */
#define EARLY_FREE 1
#define EARLY_FIRST_MS 1000
#define EARLY_LAST_MS CT_RESTART_PAUSE_MAX_MS

bool members_budget_take(struct ct_members *m, int64_t now_ns)
{
    char window[CT_RESTARTS_WINDOW_TEXT];
    if (m->charged) {
        return true;
    }
    if (m->restarts >= m->job.max_restarts) {
        if (m->job.max_restarts > 0) { /* else nobody has asked for restarts */
            (void)snprintf(m->no_restart, sizeof(m->no_restart),
                           "no restarts are left (--max-restarts %d)", m->job.max_restarts);
        }
        return false;
    }
    if (!ct_restarts_allowed(&m->counts, &m->job.limits, now_ns / CT_NS_PER_MS)) {
        (void)snprintf(m->no_restart, sizeof(m->no_restart),
                       "no restart is left in this window of time (--restart-budget %s)",
                       ct_restart_limits_window(&m->job.limits, window));
        return false;
    }
    ct_restarts_take(&m->counts, now_ns / CT_NS_PER_MS);
    m->restarts++;
    m->charged = true;
    return true;
}

/* Adds what the last beats say to the steps of a failure. A beat does not say where its worker
 * began, so it counts only if it is beyond all steps so far. */
static struct ct_steps steps_of_world(const struct ct_members *m, const struct ct_failure *failure)
{
    struct ct_steps steps = failure->steps;
    int64_t high = m->counts.stepped ? m->counts.high : 0;
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        for (int i = 0; member->in_world && i < member->num_rows; i++) {
            const struct ct_worker_row *row = &member->rows[i];
            if (row->generation != m->generation || row->phase == CT_ROW_UNTOLD ||
                row->step <= high) {
                continue;
            }
            if (!steps.any) {
                steps = (struct ct_steps){true, row->step, row->step};
            }
            steps.last = row->step > steps.last ? row->step : steps.last;
        }
    }
    return steps;
}

bool members_budget_is_stuck(struct ct_members *m, const struct ct_failure *failure)
{
    int max = m->job.limits.max_no_progress;
    if (max > 0 && !m->judged) {
        const struct ct_steps steps = steps_of_world(m, failure);
        m->judged = true;
        (void)ct_restarts_judge(&m->counts, &steps);
    }
    if (max == 0 || m->counts.no_progress < max) {
        return false;
    }
    (void)snprintf(m->no_restart, sizeof(m->no_restart),
                   "%d generations in a row came no further than step %" PRId64
                   " (--max-no-progress %d)",
                   m->counts.no_progress, m->counts.high, max);
    m->no_restart_code = CT_EXIT_NO_REQUEUE;
    return true;
}

static void say_pause(struct ct_members *m, bool unfit, int64_t pause_ms)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_WAITING);
    (void)snprintf(msg->text, sizeof(msg->text),
                   "%d generations in a row failed %s: the next one starts in %d s, and the pause "
                   "doubles with each that follows, up to %d s",
                   m->early_row,
                   unfit ? "at their start, the last one by a check"
                         : "within a second of their start",
                   (int)(pause_ms / 1000), EARLY_LAST_MS / 1000);
    members_send_all(m);
}

int64_t members_budget_pause_ms(struct ct_members *m, const struct ct_failure *first)
{
    const struct ct_history_round *round = members_history_round(m);
    /* A machine that is not fit, and stays in, would use up all restarts at once. */
    bool unfit = first != NULL && first->unfit && m->charged;
    bool early = first != NULL && first->kind == CT_FAILURE_WORKER && (first->early || unfit);
    bool ran = round->formed_ms > 0 && round->ended_ms - round->formed_ms >= EARLY_FIRST_MS;
    if (!early) {
        /* A generation that newcomers stop in its first second does not end the series. */
        m->early_row = first != NULL || ran ? 0 : m->early_row;
        return 0;
    }
    m->early_row += m->early_row < INT_MAX;
    if (m->early_row <= EARLY_FREE) {
        return 0;
    }
    int64_t pause = EARLY_FIRST_MS;
    for (int i = EARLY_FREE + 1; i < m->early_row && pause < EARLY_LAST_MS; i++) {
        pause *= 2;
    }
    pause = pause < EARLY_LAST_MS ? pause : EARLY_LAST_MS;
    if (m->early_row == EARLY_FREE + 1) {
        say_pause(m, unfit, pause);
    }
    return pause;
}
