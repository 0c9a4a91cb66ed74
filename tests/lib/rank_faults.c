/* SPDX-License-Identifier: Apache-2.0
 *
 * Each turn runs two new processes: the victim with one failing allocation, and its peer, which the
 * victim kills when it has written its outcome into shared memory.
 */
#include "tests/lib/rank_faults.h"

#include "tests/lib/ct_test.h"

#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

/* Beyond it the sweep is not making progress. */
#define MAX_FAULTS 1000

struct outcome {
    rank_fault_fn fn;
    int fail_at;
    pid_t peer;
    int rc, hit;
    size_t alive;
    struct ct_err err;
};

/* How the victim ends leaves its peer waiting, or with an error: neither is judged here. */
static void peer(int rank, void *data)
{
    struct outcome *outcome = data;
    struct ct_err err = {0};
    (void)outcome->fn(rank, &err);
    for (;;) {
        (void)pause();
    }
}

static void victim(int rank, void *data)
{
    struct outcome *outcome = data;
    ct_fault_begin(outcome->fail_at);
    outcome->rc = outcome->fn(rank, &outcome->err);
    outcome->alive = ct_fault_end();
    outcome->hit = ct_fault_hit();
    CHECK(kill(outcome->peer, SIGKILL) == 0);
}

static bool run(int rank, struct outcome *outcome)
{
    ranks.world_size = 2;
    ranks.generation++; /* keys of its own */
    ranks_start_one(1 - rank, peer, outcome);
    outcome->peer = ranks.pids[0];
    ranks_start_one(rank, victim, outcome);
    ranks_join_killed(outcome->peer, SIGKILL);
    if (outcome->alive != 0) {
        fail_msg("allocation %d failed: %zu blocks leaked", outcome->fail_at, outcome->alive);
    }
    if (outcome->rc != (outcome->hit ? CT_ENOMEM : 0)) {
        fail_msg("allocation %d %s: fn returned %d (%s): %s", outcome->fail_at,
                 outcome->hit ? "failed" : "was never reached", outcome->rc,
                 ct_code_text(outcome->rc), outcome->err.text);
    }
    return outcome->hit;
}

int rank_fault_sweep(int rank, rank_fault_fn fn)
{
    struct outcome *outcome = ranks_share(sizeof(*outcome));
    int n = 0;
    for (;; n++) {
        *outcome = (struct outcome){.fn = fn, .fail_at = n};
        if (!run(rank, outcome)) {
            break;
        }
        assert_true(n < MAX_FAULTS);
    }
    ranks_unshare(outcome, sizeof(*outcome));
    return n;
}
