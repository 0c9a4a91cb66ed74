/* SPDX-License-Identifier: Apache-2.0
 *
 * Scenes with the membership core: nodes join, fail and leave at the test's word, and what each is
 * told stands in its log as text, such as "world0:0/2,0/4,serve stop0,again". Node i is "gpu-<i>"
 * at 10.0.0.<i> with two workers. Every function fails the calling test instead of returning an
 * error.
 */
#ifndef CT_TESTS_LIB_MEMBERS_SCENE_H
#define CT_TESTS_LIB_MEMBERS_SCENE_H

#include "tests/lib/ct_test.h"

#include "rendezvous/members/members.h"
#include "rendezvous/store/budget.h"

#define NODES 40
#define S (INT64_C(1000000000))
#define MS (INT64_C(1000000))

struct scene_node {
    struct ct_member *member; /* NULL = not connected */
    char log[2048];
    char last_text[CT_FAILURE_WHAT_MAX];
    char last_warning[CT_FAILURE_WHAT_MAX]; /* the last such text that begins with "warning: " */
    struct ct_failure last_failure;         /* first of the last STOP or OVER; no texts */
    struct ct_msg_world last_world;
    struct ct_history_round last_round; /* of the last STOP or OVER */
    struct ct_hang_vote last_still;
    struct ct_job_record record; /* the last that it was told */
    char last_tail[64];
    const struct ct_buf *frame; /* of the last message; NULL = it was for this node alone */
    char frame_text[512];       /* the beginning of its JSON */
    /* Until when its machine answers; 0 = nobody knows, -1 = it is of our process. */
    int64_t wire_ns;
};

struct scene {
    struct ct_members *members;
    struct scene_node nodes[NODES];
    struct ct_msg_join job;
    struct ct_budget budget; /* without a cap; end() wants all of it back */
    int64_t now;
    struct ct_err err;
    struct ct_job_record arbiter_record; /* the last that the arbiter was told */
    int deposed;                         /* how often the core has said that it has no quorum */
};

/* A job with these options; the clock is at 100 s, which is Unix time 105 s. */
void begin(struct scene *s, int min, int max, int spares, int max_restarts);
void begin_expecting(struct scene *s, int min, int max, int spares, int max_restarts,
                     const char *const *expected, int num_expected);
/* The same, decided before anybody joins. */
void begin_hosted(struct scene *s, int min, int max, int spares, int max_restarts);
/* The same, and node i is voter i, so that the job outlives its host. */
void begin_failover(struct scene *s, int min, int max, int spares, int max_restarts,
                    const struct ct_members_failover *failover);
int scene_open(struct scene *s, int min, int max, int spares, int max_restarts,
               const char *const *expected, int num_expected); /* may return CT_ENOMEM */
void end(struct scene *s);

/* For a message to own. */
char *scene_text(const char *text);

int try_join(struct scene *s, int i, int node_rank);
void join(struct scene *s, int i);
void join_as(struct scene *s, int i, int node_rank);

void say(struct scene *s, int i, enum ct_msg_type type, int generation);
void say_msg(struct scene *s, int i, struct ct_msg *msg); /* finis the message */
/* Its rows: as many running workers, told of by a BEAT. */
void give_rows(struct ct_msg *msg, int count, int first_rank, int generation);
void fails(struct scene *s, int i, int generation, int rank, int exit_code);
void fails_early(struct scene *s, int i, int generation);
/* Its machine fails a check. */
void is_unfit(struct scene *s, int i, int generation, int exit_code);
/* The same, `ago_ms` ago by its own clock. */
void fail_ago(struct scene *s, int i, int generation, int rank, int exit_code, int ago_ms);
void gone(struct scene *s, int i);
void preempt(struct scene *s, int i, int signo);

/* The node has replaced its record by the last that it was told. */
void pledge(struct scene *s, int i);
/* The same for the arbiter, by a request that was sent now. */
void arbiter_pledges(struct scene *s);

/* Time passes with everybody's beats, except one node's. */
void pass(struct scene *s, int64_t ns);
void pass_without(struct scene *s, int64_t ns, int silent);

/* Nodes 1 to n join and run generation 0 in this order of ranks. Logs are empty after it. */
void run(struct scene *s, int n);
/* The same in a job that can lose its host. */
void run_pledged(struct scene *s, int n);

/* Exactly this was told since the last look. */
#define HEARS(s, i, want)                             \
    do {                                              \
        assert_string_equal((s)->nodes[i].log, want); \
        (s)->nodes[i].log[0] = '\0';                  \
    } while (0)
void forget(struct scene *s);

#endif
