/* SPDX-License-Identifier: Apache-2.0
 *
 * How a sample becomes a verdict: take_sample() notes for each rank when it last moved, measure()
 * finds how long all of them have stood still, and find_suspect() goes through the reasons from the
 * certain to the doubtful until one fits.
 *
 * A wrong verdict ends a healthy job. So there is no verdict after a pause in sampling, or while a
 * rank has not begun, or while the state of a process is unknown.
 */
#include "launcher/hang/hang.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <string.h>

/* Threads that watch and send heartbeats in a sleeping process use less of a CPU than this. */
#define QUIET_PERCENT 2
/* Two ticks of 10 ms, in which the kernel counts CPU time. */
#define QUIET_MIN_NS (20 * CT_NS_PER_MS)

/* A rank is starved when it has waited for a CPU for so much of the time since the last sample, and
 * so many times as long as it had one. A thread that wakes up to look for something waits less. */
#define STARVED_PERCENT 10
#define STARVED_FACTOR 4

/* CPU time that warms up a program without a page: an interpreter has read its modules. To import
 * PyTorch takes 0.9 s on a fast processor. */
#define WARM_UP_CPU_NS (500 * CT_NS_PER_MS)

/* So many steps must be measured before `auto` knows the usual time of a step. */
#define USUAL_STEPS 3

/* Samples come each second or faster. In a pause, as of a suspend, nobody was watched. */
#define PAUSE_NS (3 * CT_NS_PER_S)

/* Samples of state and CPU time in a row on which a verdict may rest. */
#define KNOWN_SAMPLES 2

/* CPU time that a rank had used at a moment. */
struct cpu_mark {
    int64_t ns, cpu_ns;
};

struct ct_hang_rank {
    bool warmed_up;
    bool has_page;
    struct ct_progress page; /* as last seen */
    int64_t moved_ns;        /* when it last made progress, or its time began anew; 0 = not seen */
    int64_t progress_ns;     /* when it last made progress */
    int64_t stopped_ns;      /* since when its process is stopped; 0 = it is not */
    int64_t step_ns;         /* when the step of `page` was first seen */
    int64_t slowest_ns; /* the longest step; without a page, the longest time without CPU use */
    int usual;          /* the number of steps measured in slowest_ns */
    bool unmeasured;    /* what it does now may span a time that does not count */
    bool has_cpu;
    int64_t busy_ns; /* when it was last found busy, or at the first look */
    /* The CPU time that it has used is measured from `from` on, which is at most a window ago (see
     * window_of()). `next` takes the place of `from` when it is half a window old. */
    struct cpu_mark from, next;
    int known;                  /* how many samples in a row had cpu_ns */
    int64_t queued_ns, used_ns; /* of the last sample, if its time is not 0 */
    int64_t queued_at_ns;
    bool wrote, worked; /* as the last sample says: on its page; with the CPU, where that counts */
};

int ct_hang_init(struct ct_hang *hang, int ranks, bool whole_job, int64_t timeout_ns)
{
    struct ct_hang_rank *rank = ct_calloc((size_t)ranks, sizeof(*rank));
    if (rank == NULL) {
        return CT_ENOMEM;
    }
    *hang = (struct ct_hang){
        .ranks = ranks, .whole_job = whole_job, .timeout_ns = timeout_ns, .rank = rank};
    return 0;
}

void ct_hang_fini(struct ct_hang *hang)
{
    if (hang != NULL) {
        ct_free(hang->rank);
        *hang = (struct ct_hang){0};
    }
}

void ct_hang_reset(struct ct_hang *hang)
{
    memset(hang->rank, 0, (size_t)hang->ranks * sizeof(*hang->rank));
    hang->last_ns = 0;
    hang->suspended = false;
    hang->tells_waits = false;
    hang->standing = (struct ct_hang_verdict){.reason = CT_HANG_NONE};
}

/* ---- what a sample says of one rank ---------------------------------------------------------- */

/* INT64_MAX means that the timeout is not known yet. */
static int64_t timeout_of(const struct ct_hang *hang, const struct ct_hang_rank *rank)
{
    if (!rank->warmed_up) {
        return INT64_MAX;
    }
    if (hang->timeout_ns > 0) {
        return hang->timeout_ns;
    }
    if (rank->has_page && rank->usual < USUAL_STEPS) {
        return INT64_MAX;
    }
    bool told = rank->has_page && (hang->tells_waits || hang->ranks == 1);
    int64_t floor = told ? CT_HANG_AUTO_MIN_NS : CT_HANG_AUTO_MIN_QUIET_NS;
    int64_t wanted = rank->slowest_ns < INT64_MAX / CT_HANG_AUTO_FACTOR
                         ? rank->slowest_ns * CT_HANG_AUTO_FACTOR
                         : INT64_MAX;
    return wanted > floor ? wanted : floor;
}

static bool works_alone(enum ct_phase phase)
{
    return phase == CT_PHASE_DATA || phase == CT_PHASE_CHECKPOINT;
}

/* May this rank compute or wait, and does nobody know which? */
static bool is_untold(const struct ct_hang *hang, const struct ct_hang_sample *sample)
{
    bool alone = hang->ranks == 1 && hang->whole_job;
    return sample->has_page && sample->page.phase == CT_PHASE_COMPUTE && !hang->tells_waits &&
           !alone;
}

/* Returns the time in which the use of the CPU is measured. To count as busy, a rank must use a
 * share of that time; without a limit, one that was idle for an hour would need a minute of CPU. */
static int64_t window_of(const struct ct_hang *hang, const struct ct_hang_rank *rank)
{
    int64_t timeout_ns = timeout_of(hang, rank);
    return timeout_ns != INT64_MAX ? timeout_ns : CT_HANG_AUTO_MIN_QUIET_NS;
}

/* Has it used the CPU, since it was last found busy or within the last timeout? */
static bool take_cpu(const struct ct_hang *hang, struct ct_hang_rank *rank,
                     const struct ct_hang_sample *sample, int64_t now)
{
    if (sample->cpu_ns < 0) {
        rank->has_cpu = false;
        rank->known = 0;
        return false;
    }
    rank->known++;
    const struct cpu_mark mark = {now, sample->cpu_ns};
    int64_t window = window_of(hang, rank);
    int64_t used = sample->cpu_ns - rank->from.cpu_ns, idle = now - rank->busy_ns;
    int64_t quiet = (idle < window ? idle : window) / 100 * QUIET_PERCENT;
    /* The time is less than before if a child has ended, which counts as work. */
    bool busy = used < 0 || (used >= QUIET_MIN_NS && used >= quiet);
    if (!rank->has_cpu || busy) {
        busy = busy && rank->has_cpu;
        rank->has_cpu = true;
        rank->from = rank->next = mark;
        rank->busy_ns = now;
    } else if (now - rank->next.ns >= window / 2) {
        rank->from = rank->next;
        rank->next = mark;
    }
    return busy;
}

/* Has the rank wanted a CPU since the last sample, and got nearly none? */
static bool take_queue(struct ct_hang_rank *rank, const struct ct_hang_sample *sample, int64_t now)
{
    int64_t queued = sample->queued_ns - rank->queued_ns, used = sample->cpu_ns - rank->used_ns;
    int64_t span = now - rank->queued_at_ns;
    bool known = sample->queued_ns >= 0 && sample->cpu_ns >= 0;
    /* The kernel counts the wait of a thread when it is over: of one that waits on, it says 0. */
    bool waits_on = sample->state == 'R' && used == 0;
    bool starved =
        known && rank->queued_at_ns != 0 &&
        (waits_on || (queued >= span / 100 * STARVED_PERCENT && queued / STARVED_FACTOR >= used));
    rank->queued_at_ns = known ? now : 0;
    rank->queued_ns = sample->queued_ns;
    rank->used_ns = sample->cpu_ns;
    return starved;
}

static void take_step(struct ct_hang_rank *rank, const struct ct_progress *page)
{
    int64_t steps = page->step - rank->page.step;
    if (rank->has_page && steps == 0) {
        return;
    }
    if (rank->warmed_up && steps > 0 && !rank->unmeasured) {
        int64_t each = (page->stamp_ns - rank->step_ns) / steps;
        rank->slowest_ns = each > rank->slowest_ns ? each : rank->slowest_ns;
        rank->usual++;
    }
    rank->step_ns = page->stamp_ns;
    rank->unmeasured = false;
}

static bool take_page(struct ct_hang_rank *rank, const struct ct_hang_sample *sample)
{
    const struct ct_progress *page = &sample->page;
    bool moved = !rank->has_page || page->stamp_ns != rank->page.stamp_ns ||
                 page->step != rank->page.step || page->phase != rank->page.phase;
    if (!rank->has_page) {
        rank->warmed_up = false; /* from now on the page decides, not the CPU time */
    }
    take_step(rank, page);
    rank->warmed_up = page->turns > 0;
    rank->has_page = true;
    rank->page = *page;
    return moved;
}

static void take_sample(struct ct_hang *hang, int local_rank, const struct ct_hang_sample *sample,
                        int64_t now)
{
    struct ct_hang_rank *rank = &hang->rank[local_rank];
    bool busy = take_cpu(hang, rank, sample, now);
    bool starved = take_queue(rank, sample, now), moved;
    bool cpu_counts =
        !sample->has_page || works_alone(sample->page.phase) || is_untold(hang, sample);
    rank->wrote = sample->has_page && take_page(rank, sample);
    rank->worked = busy && cpu_counts;
    moved = rank->wrote || rank->worked;
    if (!sample->has_page) {
        rank->warmed_up = rank->warmed_up || sample->cpu_ns >= WARM_UP_CPU_NS;
        if (moved && rank->warmed_up && now - rank->moved_ns > rank->slowest_ns &&
            rank->moved_ns != 0 && !rank->unmeasured) {
            rank->slowest_ns = now - rank->moved_ns;
        }
        rank->unmeasured = rank->unmeasured && !moved;
    }
    if (moved || rank->moved_ns == 0) {
        rank->progress_ns = now;
    }
    if (moved || starved || rank->moved_ns == 0) {
        rank->moved_ns = now;
    }
    if (sample->state != 'T') {
        rank->stopped_ns = 0;
    } else if (rank->stopped_ns == 0) {
        rank->stopped_ns = now;
    }
}

/* ---- when ------------------------------------------------------------------------------------ */

static bool is_watched(const struct ct_hang_sample *sample)
{
    return sample->alive && !(sample->has_page && sample->page.phase == CT_PHASE_DONE);
}

/* How long the whole job stands still, and the longest timeout of its ranks. */
struct stillness {
    int watched;
    int64_t still_ns, timeout_ns;
};

static struct stillness measure(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                                int64_t now)
{
    struct stillness all = {.still_ns = INT64_MAX};
    for (int i = 0; i < hang->ranks; i++) {
        if (!is_watched(&samples[i])) {
            continue;
        }
        int64_t still = now - hang->rank[i].moved_ns;
        int64_t timeout = timeout_of(hang, &hang->rank[i]);
        all.watched++;
        all.still_ns = still < all.still_ns ? still : all.still_ns;
        all.timeout_ns = timeout > all.timeout_ns ? timeout : all.timeout_ns;
    }
    return all;
}

bool ct_hang_wants_proc(const struct ct_hang *hang, int local_rank, int64_t now_ns)
{
    if (!hang->rank[local_rank].has_page) {
        return true;
    }
    for (int i = 0; i < hang->ranks; i++) {
        const struct ct_hang_rank *rank = &hang->rank[i];
        int64_t timeout = timeout_of(hang, rank);
        if (rank->moved_ns != 0 && timeout != INT64_MAX && now_ns - rank->moved_ns >= timeout / 2) {
            return true;
        }
    }
    return false;
}

/* ---- who ------------------------------------------------------------------------------------- */

struct view {
    const struct ct_hang *hang;
    const struct ct_hang_sample *samples;
    int watched;
};

typedef bool (*suspect_fn)(const struct view *view, int local_rank);

/* Returns the only suspect rank. If there are several: the first if `several`, else -1. */
static int find(const struct view *view, suspect_fn suspect, bool several)
{
    int found = -1;
    for (int i = 0; i < view->hang->ranks; i++) {
        if (is_watched(&view->samples[i]) && suspect(view, i)) {
            if (found >= 0 && !several) {
                return -1;
            }
            found = found < 0 ? i : found;
        }
    }
    return found;
}

static int count(const struct view *view, suspect_fn suspect)
{
    int total = 0;
    for (int i = 0; i < view->hang->ranks; i++) {
        total += is_watched(&view->samples[i]) && suspect(view, i);
    }
    return total;
}

static bool is_stopped(const struct view *view, int i)
{
    return view->samples[i].state == 'T';
}

static bool is_waiting(const struct view *view, int i)
{
    return view->samples[i].has_page && view->samples[i].page.phase == CT_PHASE_COLLECTIVE;
}

static bool never_tells(const struct view *view, int i)
{
    return is_untold(view->hang, &view->samples[i]);
}

static bool is_busy(const struct view *view, int i)
{
    return view->samples[i].has_page && !is_waiting(view, i) && !never_tells(view, i);
}

/* Is its step lower than that of every other rank? */
static bool is_behind(const struct view *view, int i)
{
    for (int j = 0; j < view->hang->ranks; j++) {
        if (j != i && is_watched(&view->samples[j]) &&
            view->samples[j].page.step <= view->samples[i].page.step) {
            return false;
        }
    }
    return true;
}

static bool is_stuck(const struct view *view, int i)
{
    return view->samples[i].state == 'D';
}

/* Does it sleep for a time that it has chosen? A rank that waits for another one does not. */
static bool is_napping(const struct view *view, int i)
{
    return view->samples[i].state == 'S' && strstr(view->samples[i].wchan, "nanosleep") != NULL;
}

static bool sleeps_elsewhere(const struct view *view, int i)
{
    const char *others = NULL;
    for (int j = 0; j < view->hang->ranks; j++) {
        const struct ct_hang_sample *sample = &view->samples[j];
        if (!is_watched(sample)) {
            continue;
        }
        if (sample->state != 'S' || sample->wchan[0] == '\0' || sample->wchan[0] == '0') {
            return false;
        }
        if (j != i) {
            if (others != NULL && strcmp(others, sample->wchan) != 0) {
                return false;
            }
            others = sample->wchan;
        }
    }
    return view->watched > 2 && others != NULL && strcmp(others, view->samples[i].wchan) != 0;
}

/* No other rank waits for the only one that is watched, so evidence of another kind is needed: a
 * timeout that the user chose, or with `auto` that the rank has used no CPU. */
static bool hangs_alone(const struct view *view, int i)
{
    const struct ct_hang_rank *rank = &view->hang->rank[i];
    return view->watched == 1 && is_busy(view, i) &&
           (view->hang->timeout_ns > 0 || (rank->has_cpu && rank->busy_ns <= rank->moved_ns));
}

static enum ct_hang_reason find_suspect(const struct view *view, int *rank)
{
    int stopped = count(view, is_stopped);
    if (stopped > 0) {
        *rank = find(view, is_stopped, true);
        return stopped < view->watched || view->watched == 1 ? CT_HANG_STOPPED : CT_HANG_NONE;
    }
    int waiting = count(view, is_waiting), busy = count(view, is_busy);
    int untold = count(view, never_tells); /* those have used no CPU, so they wait for something */
    if (busy > 0) {
        *rank = find(view, waiting + untold > 0 ? is_busy : hangs_alone, true);
        return *rank >= 0 ? CT_HANG_BUSY : CT_HANG_NONE;
    }
    /* Here every rank waits in a collective, or does not tell and uses no CPU. */
    if ((waiting == view->watched || untold == view->watched) &&
        (*rank = find(view, is_behind, false)) >= 0 && view->watched > 1) {
        return CT_HANG_BEHIND;
    }
    if ((*rank = find(view, is_stuck, false)) >= 0) {
        return CT_HANG_UNINTERRUPTIBLE;
    }
    if (waiting == 0 && view->watched > 1 &&
        ((*rank = find(view, is_napping, false)) >= 0 ||
         (*rank = find(view, sleeps_elsewhere, false)) >= 0)) {
        return CT_HANG_SLEEPS_ELSEWHERE;
    }
    *rank = 0;
    while (!is_watched(&view->samples[*rank])) {
        (*rank)++;
    }
    bool evident = waiting == view->watched || view->hang->timeout_ns > 0;
    return view->hang->whole_job && evident ? CT_HANG_ALL : CT_HANG_NONE;
}

/* ---- one sample ------------------------------------------------------------------------------ */

static bool all_known(const struct ct_hang *hang, const struct ct_hang_sample *samples)
{
    for (int i = 0; i < hang->ranks; i++) {
        if (is_watched(&samples[i]) && hang->rank[i].known < KNOWN_SAMPLES) {
            return false;
        }
    }
    return true;
}

/* Finds a rank that has been stopped for its whole timeout. It counts as hanging even if other
 * ranks seem to make progress, because ranks without a page may spin while they wait for it. */
static int stopped_too_long(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                            int64_t now)
{
    for (int i = 0; i < hang->ranks; i++) {
        const struct ct_hang_rank *rank = &hang->rank[i];
        if (is_watched(&samples[i]) && rank->stopped_ns != 0 &&
            now - rank->stopped_ns >= timeout_of(hang, rank)) {
            return i;
        }
    }
    return -1;
}

static void start_anew(struct ct_hang *hang, int64_t now)
{
    for (int i = 0; i < hang->ranks; i++) {
        hang->rank[i].moved_ns = now;
        hang->rank[i].stopped_ns = 0;
        /* A step that this sample shows first may have begun before the time that does not count.
         */
        hang->rank[i].unmeasured = true;
    }
}

/* Has somebody suspended all watched ranks? */
static bool all_stopped(const struct ct_hang *hang, const struct ct_hang_sample *samples)
{
    int watched = 0;
    for (int i = 0; i < hang->ranks; i++) {
        if (is_watched(&samples[i])) {
            watched++;
            if (samples[i].state != 'T') {
                return false;
            }
        }
    }
    return watched > 0;
}

/* Does the time since the last sample not count? It does not if nobody sampled, if a debugger is at
 * a rank, or if all ranks were suspended. */
static bool is_left_out(struct ct_hang *hang, const struct ct_hang_sample *samples, int64_t now)
{
    bool was_suspended = hang->suspended;
    bool left_out = hang->last_ns != 0 && now - hang->last_ns > PAUSE_NS;
    hang->suspended = all_stopped(hang, samples);
    for (int i = 0; i < hang->ranks; i++) {
        left_out = left_out || (samples[i].alive && samples[i].state == 't');
    }
    return left_out || (was_suspended && !hang->suspended);
}

static void take_all(struct ct_hang *hang, const struct ct_hang_sample *samples, int64_t now)
{
    bool left_out = is_left_out(hang, samples, now);
    for (int i = 0; i < hang->ranks; i++) {
        bool tells = samples[i].alive && samples[i].has_page && samples[i].page.tells_waits;
        hang->tells_waits = hang->tells_waits || tells;
    }
    for (int i = 0; i < hang->ranks; i++) {
        struct ct_hang_rank *rank = &hang->rank[i];
        rank->wrote = rank->worked = false;
        rank->unmeasured = rank->unmeasured || left_out;
        if (samples[i].alive) {
            take_sample(hang, i, &samples[i], now);
        }
    }
    hang->last_ns = now;
    if (left_out) {
        start_anew(hang, now);
    }
}

/* Returns the watched rank with the lowest step; *alone is false if several have that step. */
static int find_lowest_step(const struct view *view, bool *alone)
{
    int lowest = -1;
    for (int i = 0; i < view->hang->ranks; i++) {
        if (!is_watched(&view->samples[i])) {
            continue;
        }
        int64_t step = view->samples[i].page.step;
        if (lowest < 0 || step < view->samples[lowest].page.step) {
            lowest = i;
            *alone = true;
        } else if (step == view->samples[lowest].page.step) {
            *alone = false;
        }
    }
    return lowest;
}

/* For how long no rank has made progress, also where the time began anew meanwhile. */
static int64_t without_progress_ns(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                                   int64_t now)
{
    int64_t still_ns = INT64_MAX;
    for (int i = 0; i < hang->ranks; i++) {
        int64_t still = now - hang->rank[i].progress_ns;
        still_ns = is_watched(&samples[i]) && still < still_ns ? still : still_ns;
    }
    return still_ns;
}

void ct_hang_local_vote(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                        int64_t now_ns, struct ct_hang_vote *out)
{
    struct stillness all = measure(hang, samples, now_ns);
    const struct view view = {hang, samples, all.watched};
    *out = (struct ct_hang_vote){.kind = CT_HANG_VOTE_NO};
    if (all.watched == 0 || all.timeout_ns == INT64_MAX || all.still_ns < all.timeout_ns ||
        !all_known(hang, samples)) {
        return;
    }
    out->sure = hang->timeout_ns > 0;
    out->still_ms = without_progress_ns(hang, samples, now_ns) / CT_NS_PER_MS;
    if ((out->rank = find(&view, is_stopped, true)) >= 0) {
        out->kind = CT_HANG_VOTE_STOPPED;
    } else if ((out->rank = find(&view, is_busy, true)) >= 0) {
        out->kind = CT_HANG_VOTE_BUSY;
    } else if (count(&view, is_waiting) == all.watched) {
        out->kind = CT_HANG_VOTE_WAITING;
        out->rank = find_lowest_step(&view, &out->alone);
        out->step = samples[out->rank].page.step;
    } else if ((out->rank = find(&view, is_stuck, false)) >= 0) {
        out->kind = CT_HANG_VOTE_STUCK;
    } else if ((out->rank = find(&view, is_napping, false)) >= 0) {
        out->kind = CT_HANG_VOTE_NAPPING;
    } else {
        out->kind = CT_HANG_VOTE_QUIET;
        out->rank = 0;
    }
}

void ct_hang_take_job_verdict(struct ct_hang *hang, int local_rank, int kind, int64_t now_ns,
                              struct ct_hang_verdict *out)
{
    static const enum ct_hang_reason reasons[CT_HANG_VOTE_KINDS] = {
        [CT_HANG_VOTE_STOPPED] = CT_HANG_STOPPED,
        [CT_HANG_VOTE_BUSY] = CT_HANG_BUSY,
        [CT_HANG_VOTE_STUCK] = CT_HANG_UNINTERRUPTIBLE,
        [CT_HANG_VOTE_NAPPING] = CT_HANG_SLEEPS_ELSEWHERE,
        [CT_HANG_VOTE_BEHIND] = CT_HANG_BEHIND,
        [CT_HANG_VOTE_ALL] = CT_HANG_ALL,
    };
    const struct ct_hang_rank *rank = &hang->rank[local_rank];
    *out = (struct ct_hang_verdict){.reason = CT_HANG_NONE};
    bool names = kind != CT_HANG_VOTE_ALL && hang->standing.reason == CT_HANG_ALL;
    if ((hang->standing.reason == CT_HANG_NONE || names) && reasons[kind] != CT_HANG_NONE) {
        *out = (struct ct_hang_verdict){reasons[kind], local_rank, now_ns - rank->moved_ns,
                                        timeout_of(hang, rank)};
        hang->standing = *out;
    }
}

void ct_hang_name(struct ct_hang *hang, const struct ct_hang_verdict *verdict)
{
    hang->standing = *verdict;
}

/* For how long all watched ranks but this one have stood still. */
static int64_t others_still_ns(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                               int local_rank, int64_t now)
{
    int64_t still_ns = INT64_MAX;
    for (int i = 0; i < hang->ranks; i++) {
        int64_t still = now - hang->rank[i].moved_ns;
        if (i != local_rank && is_watched(&samples[i]) && still < still_ns) {
            still_ns = still;
        }
    }
    return still_ns;
}

int ct_hang_busy_alone(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                       int64_t now_ns)
{
    int busy = -1, watched = 0;
    int64_t timeout_ns = 0;
    for (int i = 0; i < hang->ranks; i++) {
        if (!is_watched(&samples[i])) {
            continue;
        }
        int64_t timeout = timeout_of(hang, &hang->rank[i]);
        timeout_ns = timeout > timeout_ns ? timeout : timeout_ns;
        watched++;
        if (samples[i].has_page && !is_untold(hang, &samples[i])) {
            return -1;
        }
        if (now_ns - hang->rank[i].moved_ns < timeout) {
            if (busy >= 0 || now_ns - hang->rank[i].busy_ns >= timeout) { /* it may be starved */
                return -1;
            }
            busy = i;
        }
    }
    bool others_wait = watched >= 2 && busy >= 0 && timeout_ns != INT64_MAX &&
                       others_still_ns(hang, samples, busy, now_ns) >= timeout_ns;
    bool stands = hang->standing.reason != CT_HANG_NONE;
    return others_wait && hang->whole_job && !stands ? busy : -1;
}

void ct_hang_take_loop(struct ct_hang *hang, const struct ct_hang_sample *samples, int local_rank,
                       int64_t now_ns, struct ct_hang_verdict *out)
{
    *out = (struct ct_hang_verdict){
        .reason = CT_HANG_LOOPS,
        .local_rank = local_rank,
        .still_ns = others_still_ns(hang, samples, local_rank, now_ns),
        .timeout_ns = timeout_of(hang, &hang->rank[local_rank]),
    };
    hang->standing = *out;
}

/* Is a rank still stopped that is named because it was? A debugger stops it in another state. */
static bool stays_stopped(const struct ct_hang_sample *samples,
                          const struct ct_hang_verdict *verdict)
{
    const struct ct_hang_sample *suspect = &samples[verdict->local_rank];
    return verdict->reason == CT_HANG_STOPPED && is_watched(suspect) &&
           (suspect->state == 'T' || suspect->state == 't');
}

bool ct_hang_is_over(const struct ct_hang *hang, const struct ct_hang_sample *samples,
                     const struct ct_hang_verdict *verdict)
{
    int suspect = verdict->local_rank;
    if (stays_stopped(samples, verdict)) {
        return false;
    }
    if (verdict->reason != CT_HANG_ALL && !is_watched(&samples[suspect])) {
        return true; /* it has ended */
    }
    for (int i = 0; i < hang->ranks; i++) {
        bool turns = verdict->reason == CT_HANG_LOOPS && i == suspect;
        bool traced = samples[i].state == 't'; /* what it does then, the debugger has it do */
        if (samples[i].alive && !traced &&
            (hang->rank[i].wrote || (hang->rank[i].worked && !turns))) {
            return true;
        }
    }
    return false;
}

bool ct_hang_resume(struct ct_hang *hang, const struct ct_hang_sample *samples, int64_t now_ns)
{
    bool wrote = false;
    for (int i = 0; i < hang->ranks; i++) {
        struct ct_hang_rank *rank = &hang->rank[i];
        rank->has_cpu = false; /* the next sample is compared with nothing */
        rank->queued_at_ns = 0;
        wrote = wrote || (rank->has_page && samples[i].has_page &&
                          (samples[i].page.stamp_ns != rank->page.stamp_ns ||
                           samples[i].page.step != rank->page.step ||
                           samples[i].page.phase != rank->page.phase));
    }
    hang->last_ns = now_ns;
    return hang->standing.reason != CT_HANG_NONE &&
           (!wrote || stays_stopped(samples, &hang->standing));
}

void ct_hang_step(struct ct_hang *hang, const struct ct_hang_sample *samples, int64_t now_ns,
                  struct ct_hang_verdict *out)
{
    *out = (struct ct_hang_verdict){.reason = CT_HANG_NONE};
    take_all(hang, samples, now_ns);
    if (hang->standing.reason != CT_HANG_NONE && ct_hang_is_over(hang, samples, &hang->standing)) {
        hang->standing.reason = CT_HANG_NONE;
    }
    struct stillness all = measure(hang, samples, now_ns);
    const struct view view = {hang, samples, all.watched};
    int suspect = all.watched > 0 ? stopped_too_long(hang, samples, now_ns) : -1;
    bool still = all.watched > 0 && all.timeout_ns != INT64_MAX && all.still_ns >= all.timeout_ns;
    if (hang->standing.reason != CT_HANG_NONE || (!still && suspect < 0) ||
        !all_known(hang, samples)) {
        return;
    }
    struct ct_hang_verdict verdict = {.timeout_ns = all.timeout_ns};
    verdict.reason = find_suspect(&view, &verdict.local_rank);
    if (verdict.reason != CT_HANG_NONE) {
        const struct ct_hang_rank *rank = &hang->rank[verdict.local_rank];
        verdict.timeout_ns = timeout_of(hang, rank);
        verdict.still_ns = now_ns - rank->moved_ns;
        hang->standing = verdict;
        *out = verdict;
    }
}
