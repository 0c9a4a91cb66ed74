/* SPDX-License-Identifier: Apache-2.0
 *
 * The core's send() and drop() write what a node hears into its log. A node's clock is the scene's
 * own, so no test waits.
 */
#include "tests/lib/members_scene.h"

#include "common/alloc.h"

#include <math.h>
#include <stdio.h>

static void note(struct scene_node *node, const char *text)
{
    size_t used = strlen(node->log);
    (void)snprintf(node->log + used, sizeof(node->log) - used, "%s%s", used > 0 ? " " : "", text);
}

static void on_send(void *data, struct ct_member *member, const struct ct_msg *msg)
{
    struct scene_node *node = ct_member_conn(member);
    const struct ct_msg_world *w = &msg->world;
    char text[512];
    (void)data;
    (void)snprintf(text, sizeof(text), "%s", ct_msg_name(msg->type));
    if (msg->type == CT_MSG_WORLD) {
        node->last_world = *w;
        (void)snprintf(text, sizeof(text), "world%d:%d/%d,%d/%d%s%s", msg->generation, w->node_rank,
                       w->node_count, w->first_rank, w->world_size, w->serve ? ",serve" : "@",
                       w->master_addr);
    } else if (msg->type == CT_MSG_STOP) {
        (void)snprintf(text, sizeof(text), "stop%d%s", msg->generation,
                       msg->will_restart ? ",again" : "");
    } else if (msg->type == CT_MSG_OVER || msg->type == CT_MSG_REFUSED) {
        (void)snprintf(text, sizeof(text), "%s=%d", ct_msg_name(msg->type), msg->exit_code);
    }
    node->frame = msg->frame;
    if (msg->frame != NULL) {
        (void)snprintf(node->frame_text, sizeof(node->frame_text), "%.*s",
                       (int)(msg->frame->len - CT_CONTROL_HEADER),
                       (const char *)ct_buf_bytes(msg->frame) + CT_CONTROL_HEADER);
    }
    if (msg->history.num_rounds > 0) {
        node->last_round =
            msg->history.rounds[(msg->history.num_rounds - 1) % CT_FAILURE_HISTORY_KEPT];
    }
    if (msg->type == CT_MSG_RECORD) {
        node->record = *msg->record;
    }
    const struct ct_failure *first =
        msg->history.num_rounds > 0
            ? ct_failure_history_first(
                  &msg->history,
                  msg->history.rounds[(msg->history.num_rounds - 1) % CT_FAILURE_HISTORY_KEPT]
                      .generation)
            : NULL;
    if (first != NULL) {
        node->last_failure = *first;
        (void)snprintf(node->last_tail, sizeof(node->last_tail), "%s",
                       first->tail != NULL ? first->tail : "");
    }
    note(node, text);
    (void)snprintf(node->last_text, sizeof(node->last_text), "%s", msg->text);
    if (strncmp(msg->text, "warning: ", sizeof("warning: ") - 1) == 0) {
        (void)snprintf(node->last_warning, sizeof(node->last_warning), "%s", msg->text);
    }
    node->last_still = msg->still;
}

static void on_drop(void *data, struct ct_member *member)
{
    struct scene_node *node = ct_member_conn(member);
    (void)data;
    note(node, "dropped");
    /* A new one may have taken the place before. */
    node->member = node->member == member ? NULL : node->member;
}

static int64_t on_quiet(void *data, const struct ct_member *member)
{
    const struct scene *s = data;
    const struct scene_node *node = ct_member_conn(member);
    if (node->wire_ns <= 0) {
        return node->wire_ns < 0 ? -1 : INT64_MAX;
    }
    return s->now > node->wire_ns ? s->now - node->wire_ns : 0;
}

static void on_deposed(void *data)
{
    struct scene *s = data;
    s->deposed++;
}

static void on_arbitrate(void *data, const struct ct_job_record *record)
{
    struct scene *s = data;
    s->arbiter_record = *record;
}

static int open_scene(struct scene *s, int min, int max, int spares, int max_restarts,
                      const char *const *expected, int num_expected, bool hosted,
                      const struct ct_members_failover *failover)
{
    memset(s, 0, sizeof(*s));
    s->now = 100 * S;
    s->job = (struct ct_msg_join){.run_id = "r",
                                  .role = "default",
                                  .node_rank = -1,
                                  .workers = 2,
                                  .pid = 1,
                                  .min_nodes = min,
                                  .max_nodes = max,
                                  .spares = spares,
                                  .max_restarts = max_restarts,
                                  .settle_ms = 3000,
                                  .join_ms = 60000,
                                  .heartbeat_ms = 3000};
    const struct ct_members_options options = {.job = hosted ? &s->job : NULL,
                                               .expected = expected,
                                               .num_expected = num_expected,
                                               .budget = &s->budget,
                                               .epoch_ms = 5000,
                                               .send = on_send,
                                               .quiet_ns = on_quiet,
                                               .drop = on_drop,
                                               .failover = failover,
                                               .arbitrate = on_arbitrate,
                                               .deposed = on_deposed,
                                               .data = s};
    s->job.voter.id = failover != NULL;
    s->budget.max = SIZE_MAX;
    return ct_members_new(&options, &s->members);
}

int scene_open(struct scene *s, int min, int max, int spares, int max_restarts,
               const char *const *expected, int num_expected)
{
    return open_scene(s, min, max, spares, max_restarts, expected, num_expected, false, NULL);
}

void begin_failover(struct scene *s, int min, int max, int spares, int max_restarts,
                    const struct ct_members_failover *failover)
{
    assert_int_equal(open_scene(s, min, max, spares, max_restarts, NULL, 0, true, failover), 0);
}

void pledge(struct scene *s, int i)
{
    static struct ct_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.type = CT_MSG_PLEDGE;
    msg.term = s->nodes[i].record.term;
    msg.record_version = s->nodes[i].record.version;
    say_msg(s, i, &msg);
}

void arbiter_pledges(struct scene *s)
{
    ct_members_arbiter_pledged(s->members, s->arbiter_record.term, s->arbiter_record.version,
                               s->now, s->now);
}

void begin_hosted(struct scene *s, int min, int max, int spares, int max_restarts)
{
    assert_int_equal(open_scene(s, min, max, spares, max_restarts, NULL, 0, true, NULL), 0);
}

void begin_expecting(struct scene *s, int min, int max, int spares, int max_restarts,
                     const char *const *expected, int num_expected)
{
    assert_int_equal(scene_open(s, min, max, spares, max_restarts, expected, num_expected), 0);
}

char *scene_text(const char *text)
{
    char *copy = ct_strdup(text);
    assert_non_null(copy);
    return copy;
}

void begin(struct scene *s, int min, int max, int spares, int max_restarts)
{
    begin_expecting(s, min, max, spares, max_restarts, NULL, 0);
}

void end(struct scene *s)
{
    ct_members_free(s->members);
    assert_int_equal(s->budget.used, 0);
}

int try_join(struct scene *s, int i, int node_rank)
{
    struct ct_msg_join join = s->job;
    char address[32];
    (void)snprintf(join.host, sizeof(join.host), "gpu-%d", i);
    (void)snprintf(address, sizeof(address), "10.0.0.%d", i);
    join.node_rank = node_rank;
    join.voter.id = s->job.voter.id != 0 ? (uint64_t)i : 0;
    join.voter.port = (uint16_t)i;
    return ct_members_join(s->members, &join, address, &s->nodes[i], s->now, &s->nodes[i].member,
                           &s->err);
}

void join(struct scene *s, int i)
{
    if (try_join(s, i, -1) != 0) {
        fail_msg("node %d: %s", i, s->err.text);
    }
}

void join_as(struct scene *s, int i, int node_rank)
{
    if (try_join(s, i, node_rank) != 0) {
        fail_msg("node %d: %s", i, s->err.text);
    }
}

void say_msg(struct scene *s, int i, struct ct_msg *msg)
{
    assert_non_null(s->nodes[i].member);
    ct_members_message(s->members, s->nodes[i].member, msg, s->now);
    ct_msg_fini(msg);
}

void say(struct scene *s, int i, enum ct_msg_type type, int generation)
{
    static struct ct_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.type = type;
    msg.generation = generation;
    msg.port = 29500;
    msg.clock_ms = s->now / MS;
    say_msg(s, i, &msg);
}

void give_rows(struct ct_msg *msg, int count, int first_rank, int generation)
{
    memset(msg, 0, sizeof(*msg));
    msg->type = CT_MSG_BEAT;
    msg->has_rows = true;
    msg->num_rows = count;
    msg->rows = ct_calloc((size_t)count, sizeof(msg->rows[0]));
    assert_non_null(msg->rows);
    for (int i = 0; i < count; i++) {
        msg->rows[i] = (struct ct_worker_row){
            .rank = first_rank + i,
            .local_rank = i,
            .generation = generation,
            .state = CT_ROW_RUNNING,
            .pid = 100 + i,
            .phase = CT_ROW_UNTOLD,
            .loss = NAN,
            .rate = NAN,
        };
    }
}

void fail_ago(struct scene *s, int i, int generation, int rank, int exit_code, int ago_ms)
{
    static struct ct_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.type = CT_MSG_FAILED;
    msg.generation = generation;
    msg.clock_ms = s->now / MS - ago_ms;
    msg.failure.rank = rank;
    msg.failure.local_rank = rank % 2;
    msg.failure.exit_code = exit_code;
    (void)snprintf(msg.failure.what, sizeof(msg.failure.what), "exited with code %d", exit_code);
    say_msg(s, i, &msg);
}

void fails(struct scene *s, int i, int generation, int rank, int exit_code)
{
    fail_ago(s, i, generation, rank, exit_code, 0);
}

void fails_early(struct scene *s, int i, int generation)
{
    static struct ct_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.type = CT_MSG_FAILED;
    msg.generation = generation;
    msg.failure = (struct ct_failure){.exit_code = 1, .early = true};
    say_msg(s, i, &msg);
}

void is_unfit(struct scene *s, int i, int generation, int exit_code)
{
    static struct ct_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.type = CT_MSG_FAILED;
    msg.generation = generation;
    msg.failure = (struct ct_failure){
        .exit_code = exit_code, .unfit = true, .rank = -1, .local_rank = -1, .what = "sick"};
    say_msg(s, i, &msg);
}

void gone(struct scene *s, int i)
{
    struct ct_member *member = s->nodes[i].member;
    s->nodes[i].member = NULL;
    assert_non_null(member);
    ct_members_gone(s->members, member, "connection reset by peer", s->now);
}

void preempt(struct scene *s, int i, int signo)
{
    static struct ct_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.type = CT_MSG_PREEMPT;
    msg.signo = signo;
    msg.deadline_ms = 30000;
    (void)snprintf(msg.text, sizeof(msg.text), "gpu-%d got a signal", i);
    say_msg(s, i, &msg);
}

void pass_without(struct scene *s, int64_t ns, int silent)
{
    int64_t end = s->now + ns;
    while (s->now < end) {
        for (int i = 0; i < NODES; i++) {
            if (s->nodes[i].member != NULL && i != silent) {
                say(s, i, CT_MSG_BEAT, 0);
            }
        }
        int64_t step = end - s->now < S / 2 ? end : s->now + S / 2;
        while (ct_members_next(s->members) <= step) {
            int64_t next = ct_members_next(s->members);
            s->now = next > s->now ? next : s->now;
            ct_members_tick(s->members, s->now);
        }
        s->now = step;
    }
}

void pass(struct scene *s, int64_t ns)
{
    pass_without(s, ns, -1);
}

void forget(struct scene *s)
{
    for (int i = 0; i < NODES; i++) {
        s->nodes[i].log[0] = '\0';
    }
}

static void begin_to_run(struct scene *s, int n)
{
    say(s, 1, CT_MSG_SERVING, 0);
    for (int i = 1; i <= n; i++) {
        say(s, i, CT_MSG_STARTED, 0);
    }
    forget(s);
}

void run(struct scene *s, int n)
{
    for (int i = 1; i <= n; i++) {
        join(s, i);
    }
    if (n < s->job.max_nodes) {
        pass(s, 4 * S);
    }
    begin_to_run(s, n);
}

void run_pledged(struct scene *s, int n)
{
    for (int i = 1; i <= n; i++) {
        join(s, i);
    }
    for (int i = 1; i <= n; i++) {
        pledge(s, i);
    }
    begin_to_run(s, n);
}
