/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks whether a node may join the job, and makes and frees its member. All members must have the
 * same parameters of the job: those of ct_members_options.job, or else those of the first one that
 * joins.
 */
#include "rendezvous/members/members_join.h"

#include "rendezvous/members/members_ban.h"
#include "rendezvous/members/members_hang.h"

#include "common/alloc.h"
#include "rendezvous/members/members_failover.h"
#include "rendezvous/members/members_round.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- does it fit? --------------------------------------------------------------------------- */

static void nnodes_text(const struct ct_msg_join *join, char out[32])
{
    if (join->min_nodes == join->max_nodes) {
        (void)snprintf(out, 32, "%d", join->max_nodes);
    } else {
        (void)snprintf(out, 32, "%d:%d", join->min_nodes, join->max_nodes);
    }
}

static void max_restarts_text(const struct ct_msg_join *join, char out[48])
{
    if (join->max_restarts == INT_MAX) {
        (void)snprintf(out, 48, "no --max-restarts");
    } else {
        (void)snprintf(out, 48, "--max-restarts %d", join->max_restarts);
    }
}

static int check_values(const struct ct_msg_join *join, struct ct_err *err)
{
    if (join->min_nodes < 1 || join->min_nodes > join->max_nodes ||
        join->max_nodes > CT_MAX_NODES || join->spares < 0 || join->spares > CT_MAX_NODES) {
        return ct_err_set(err, CT_EINVAL, "node %s wants %d to %d nodes and %d spares", join->host,
                          join->min_nodes, join->max_nodes, join->spares);
    }
    if (join->workers > CT_MAX_NODE_WORKERS) {
        return ct_err_set(err, CT_EINVAL, "node %s wants %d workers, a node may have %d",
                          join->host, join->workers, CT_MAX_NODE_WORKERS);
    }
    if (join->preflight < 0 || join->preflight >= CT_JOIN_PREFLIGHTS || join->workers < 1 ||
        join->node_rank < -1 || join->max_restarts < 0 ||
        !ct_restart_limits_are_sound(&join->limits) || join->heartbeat_ms < 1 ||
        join->heartbeat_ms > CT_CONTROL_MAX_MS || join->settle_ms < 0 ||
        join->settle_ms > CT_CONTROL_MAX_MS || join->join_ms < 0 ||
        join->join_ms > CT_CONTROL_MAX_MS) {
        return ct_err_set(err, CT_EINVAL, "node %s joins with numbers out of range", join->host);
    }
    return 0;
}

static const char *preflight_text(const struct ct_msg_join *join)
{
    static const char *const texts[CT_JOIN_PREFLIGHTS] = {"no --preflight", "--preflight=first",
                                                          "--preflight=each", "--preflight-only"};
    return texts[join->preflight];
}

static int check_same(const struct ct_msg_join *job, const struct ct_msg_join *join,
                      struct ct_err *err)
{
    if (strcmp(job->run_id, join->run_id) != 0) {
        return ct_err_set(err, CT_EINVAL, "node %s says --rdzv-id %s, the job here is %s",
                          join->host, join->run_id, job->run_id);
    }
    if (job->min_nodes != join->min_nodes || job->max_nodes != join->max_nodes) {
        char theirs[32], ours[32];
        nnodes_text(join, theirs);
        nnodes_text(job, ours);
        return ct_err_set(err, CT_EINVAL,
                          "node %s says --nnodes %s, the job was begun with --nnodes %s",
                          join->host, theirs, ours);
    }
    if ((job->voter.id != 0) != (join->voter.id != 0)) {
        return ct_err_set(
            err, CT_EINVAL,
            "node %s %s outlive the job's host, and the job was begun with ctruns that "
            "%s; all need the same --rdzv-backend, --rdzv-conf failover=N and version",
            join->host, join->voter.id != 0 ? "can" : "cannot",
            job->voter.id != 0 ? "can" : "cannot");
    }
    if (job->spares != join->spares) {
        return ct_err_set(err, CT_EINVAL,
                          "node %s says --spares %d, the job was begun with --spares %d",
                          join->host, join->spares, job->spares);
    }
    if (job->preflight != join->preflight) { /* the others would wait for it in vain */
        return ct_err_set(err, CT_EINVAL,
                          "node %s says %s, the job was begun with %s; all machines of the job "
                          "need the same",
                          join->host, preflight_text(join), preflight_text(job));
    }
    const char *option = ct_restart_limits_differ(&job->limits, &join->limits);
    if (option != NULL) { /* without --max-restarts, its number follows from the budget */
        return ct_err_set(err, CT_EINVAL, "node %s says another %s than the job was begun with",
                          join->host, option);
    }
    if (job->max_restarts != join->max_restarts) {
        char theirs[48], ours[48];
        max_restarts_text(join, theirs);
        max_restarts_text(job, ours);
        return ct_err_set(err, CT_EINVAL, "node %s says %s, the job was begun with %s", join->host,
                          theirs, ours);
    }
    return 0;
}

/* Is there room for one more node? `leaving` members will leave. */
static int check_room(const struct ct_members *m, const struct ct_msg_join *join, int leaving,
                      struct ct_err *err)
{
    int count = m->count - m->num_left_out - leaving;
    if (members_state(m) == STATE_OVER) {
        return ct_err_set(err, CT_EBUSY, "the job %s is over (exit code %d)", m->job.run_id,
                          m->exit_code);
    }
    if (m->preempted != 0) {
        return ct_err_set(err, CT_EBUSY, "the job %s is ending (%s)", m->job.run_id,
                          m->preempt_why);
    }
    if (m->workers + join->workers > CT_MAX_WORLD) {
        return ct_err_set(err, CT_ELIMIT, "with node %s the job would have more than %d workers",
                          join->host, CT_MAX_WORLD);
    }
    if (count >= m->places.count || m->num_left_out > CT_RESTARTS_LEFT_OUT_MAX) {
        return ct_err_set(err, CT_ELIMIT,
                          "node %s is one too many: the job %s has its %d nodes; --spares lets "
                          "more wait",
                          join->host, m->job.run_id, count);
    }
    return 0;
}

/* Is the member of the machine from which a node of this host and address comes? A host name proves
 * nothing, so the address must be the same, too, or the node must have proved the token. */
static bool is_of_machine(const struct ct_members *m, const struct ct_member *member,
                          const char *host, const char *address)
{
    return strcmp(member->host, host) == 0 &&
           (m->options.proved || strcmp(member->address, address) == 0);
}

/* May such a node take the place of the member `old`? A restarted ctrun may join before the loss of
 * the old one is noticed. */
static bool replaces(const struct ct_members *m, const struct ct_member *old, const char *host,
                     const char *address, int64_t now_ns)
{
    int64_t beat_ns = m->job.heartbeat_ms * CT_NS_PER_MS / 3;
    return now_ns - old->heard_ns >= 2 * beat_ns && is_of_machine(m, old, host, address);
}

static bool is_of_this_process(const struct ct_members *m, const struct ct_member *member)
{
    return m->options.quiet_ns != NULL && m->options.quiet_ns(m->options.data, member) < 0;
}

/* A process has one connection, so an earlier one of the same voter has ended, though that is not
 * noticed yet. *replaced gets the member of the earlier one, or NULL. */
static int check_id(const struct ct_members *m, const struct ct_msg_join *join, const char *address,
                    struct ct_member **replaced, struct ct_err *err)
{
    *replaced = members_failover_voter(m, join->voter.id);
    return *replaced != NULL && is_of_this_process(m, *replaced) && address[0] != '\0'
               ? ct_err_set(err, CT_EINVAL, "node %s has the id of the job's host", join->host)
               : 0;
}

/* Can the node have the node rank that it wants? *replaced gets who loses it, unless it has been
 * set before. */
static int check_wish(struct ct_members *m, const struct ct_msg_join *join, const char *address,
                      int64_t now_ns, struct ct_member **replaced, struct ct_err *err)
{
    if (join->node_rank < 0) {
        return 0;
    }
    if (join->node_rank >= m->places.count) {
        return ct_err_set(err, CT_EINVAL,
                          "node %s says --node-rank %d, the job has node ranks 0 to %d", join->host,
                          join->node_rank, m->places.count - 1);
    }
    struct ct_member *old = m->places.at[join->node_rank].wisher;
    if (old == NULL || old == *replaced) {
        return 0;
    }
    if (!old->wish_given) {
        /* The other member has not asked for this rank; its host is only expected there. */
        old->wish = -1;
        m->places.at[join->node_rank].wisher = NULL;
        return 0;
    }
    if (*replaced != NULL || !replaces(m, old, join->host, address, now_ns)) {
        return ct_err_set(err, CT_EBUSY, "node rank %d is taken by %s%s%s", join->node_rank,
                          old->host, old->address[0] != '\0' ? " at " : "", old->address);
    }
    *replaced = old;
    return 0;
}

/* May the member be a former life of the node that came at `since_ns`? One of this process is not:
 * it lives. */
static bool may_be_gone(const struct ct_members *m, const struct ct_member *member,
                        const struct ct_msg_join *join, const char *address, int64_t since_ns)
{
    return !is_of_this_process(m, member) && !member->left_out && member->said_ns <= since_ns &&
           is_of_machine(m, member, join->host, address);
}

bool ct_members_holds(const struct ct_members *m, const struct ct_msg_join *join,
                      const char *address, int64_t since_ns, int64_t now_ns)
{
    int wish = join->node_rank;
    if (!m->begun || members_state(m) == STATE_OVER || m->preempted != 0 ||
        now_ns - since_ns >= CT_MEMBERS_HOLD_MS * CT_NS_PER_MS) {
        return false;
    }
    if (wish >= 0 && wish < m->places.count && m->places.at[wish].wisher != NULL) {
        return may_be_gone(m, m->places.at[wish].wisher, join, address, since_ns);
    }
    EACH_MEMBER(m, pos)
    {
        if (may_be_gone(m, MEMBER_OF(pos, link), join, address, since_ns)) {
            return m->count - m->num_left_out >= m->places.count;
        }
    }
    return false;
}

/* ---- coming --------------------------------------------------------------------------------- */

static int over_budget(const struct ct_msg_join *join, struct ct_err *err)
{
    return ct_err_set(err, CT_ELIMIT,
                      "the store's memory is used up (--max-memory), so node %s cannot join",
                      join->host);
}

int members_join_begin(struct ct_members *m, const struct ct_msg_join *job, struct ct_err *err)
{
    int places = job->max_nodes + job->spares;
    places = places < CT_MAX_NODES ? places : CT_MAX_NODES;
    size_t cost = sizeof(*m) + (size_t)places * sizeof(m->places.at[0]) + 2 * CT_BLOCK_COST +
                  members_failover_cost(m);
    if (!members_take(m, cost)) {
        return over_budget(job, err);
    }
    m->places.at = ct_calloc((size_t)places, sizeof(m->places.at[0]));
    if (m->places.at == NULL) {
        members_give(m, cost);
        return CT_ENOMEM;
    }
    m->kept += cost;
    m->places.count = places;
    m->job = *job;
    m->begun = true;
    return 0;
}

static int grow_sorted(struct ct_members *m)
{
    if (m->count < m->room) {
        return 0;
    }
    int room = m->room > 0 ? 2 * m->room : 16;
    struct ct_member **grown = ct_realloc(m->sorted, (size_t)room * sizeof(grown[0]));
    if (grown == NULL) {
        return CT_ENOMEM;
    }
    m->sorted = grown;
    m->room = room;
    return 0;
}

/* Copies all texts into one block. */
static char *copy_texts(const struct ct_msg_join *join, const char *address)
{
    size_t host = strlen(join->host) + 1, role = strlen(join->role) + 1;
    size_t len = strlen(address) + 1;
    char *block = ct_malloc(host + role + len);
    if (block != NULL) {
        memcpy(block, join->host, host);
        memcpy(block + host, join->role, role);
        memcpy(block + host + role, address, len);
    }
    return block;
}

/* Returns the memory of a member: its struct, its texts, its place in ct_members.sorted, and a row
 * for each worker, so that no beat has to be refused later. */
static size_t cost_of(const struct ct_msg_join *join, const char *address)
{
    return sizeof(struct ct_member) + 2 * sizeof(struct ct_member *) + strlen(join->host) +
           strlen(join->role) + strlen(address) +
           (size_t)join->workers * sizeof(struct ct_worker_row) + 3 * CT_BLOCK_COST;
}

static struct ct_member *new_member(struct ct_members *m, const struct ct_msg_join *join,
                                    const char *address, void *conn, int64_t now_ns)
{
    struct ct_member *member = ct_calloc(1, sizeof(*member));
    char *texts = member != NULL ? copy_texts(join, address) : NULL;
    if (texts == NULL) {
        ct_free(member);
        return NULL;
    }
    member->host = texts;
    member->role = member->host + strlen(member->host) + 1;
    member->address = member->role + strlen(member->role) + 1;
    member->conn = conn;
    member->pid = join->pid;
    member->workers = join->workers;
    member->wish = join->node_rank;
    member->wish_given = join->node_rank >= 0;
    member->node_rank = -1;
    member->order = m->joined_ever++;
    member->heard_ns = member->alive_ns = member->said_ns = now_ns;
    member->voter = join->voter;
    (void)snprintf(member->voter.address, sizeof(member->voter.address), "%.*s",
                   CT_VOTER_ADDRESS_MAX - 1, address);
    member->served = join->record_version != 0; /* it lost its link to this host, or to another */
    member->clock_ns = NEVER;
    member->can_stand = join->stands;
    if (member->wish < 0) {
        member->wish = members_place_find(&m->places, member->host);
    }
    return member;
}

void ct_members_reached(struct ct_members *m, const char *address, bool from_elsewhere)
{
    char *known = from_elsewhere ? m->store_addr : m->here_addr;
    if (known[0] == '\0') {
        (void)snprintf(known, CT_HOST_MAX, "%s", address);
    }
}

/* Checks whether the node may join, and makes room for one more member. *replaced gets the member
 * whose place it takes, or NULL. */
static int check_join(struct ct_members *m, const struct ct_msg_join *join, const char *address,
                      int64_t now_ns, struct ct_member **replaced, struct ct_err *err)
{
    int rc = check_values(join, err);
    if (rc != 0) {
        return rc;
    }
    rc = m->begun ? check_same(&m->job, join, err) : members_join_begin(m, join, err);
    if (rc != 0) {
        return rc;
    }
    if (members_failover_is_behind(m, join)) {
        return CT_MEMBERS_E_BEHIND;
    }
    rc = check_id(m, join, address, replaced, err);
    if (rc != 0) {
        return rc;
    }
    rc = check_wish(m, join, address, now_ns, replaced, err);
    if (rc != 0) {
        return rc;
    }
    rc = check_room(m, join, *replaced != NULL, err);
    if (rc != 0) {
        return rc;
    }
    return grow_sorted(m);
}

int ct_members_join(struct ct_members *m, const struct ct_msg_join *join, const char *address,
                    void *conn, int64_t now_ns, struct ct_member **out, struct ct_err *err)
{
    struct ct_member *replaced = NULL;
    int rc = check_join(m, join, address, now_ns, &replaced, err);
    if (rc != 0) {
        return rc;
    }
    size_t cost = cost_of(join, address);
    if (!members_take(m, cost)) {
        return over_budget(join, err);
    }
    struct ct_member *member = new_member(m, join, address, conn, now_ns);
    if (member == NULL) {
        members_give(m, cost);
        return CT_ENOMEM;
    }
    member->charged = cost;
    members_ban_joined(m, member);
    members_place_take(&m->places, member);
    ct_list_append(&m->all, &member->link);
    ct_list_append(&m->silence, &member->silence);
    m->count++;
    m->workers += member->workers;
    ct_log(m->options.log, CT_LOG_DEBUG, "job %s: node %s has joined, %d are there", m->job.run_id,
           member->host, m->count);
    *out = member;
    members_failover_joined(m, member, now_ns);
    if (replaced != NULL) {
        bool same = replaced->voter.id != 0 && replaced->voter.id == join->voter.id;
        members_round_left(m, replaced, CT_FAILURE_SILENT,
                           same ? "it has come by another connection"
                                : "another ctrun on this host took its place",
                           true, now_ns);
    }
    members_round_arrived(m, now_ns);
    return 0;
}

/* ---- going ---------------------------------------------------------------------------------- */

void members_join_remove(struct ct_members *m, struct ct_member *member)
{
    members_place_release(&m->places, member);
    if (m->server == member) {
        m->server = NULL;
    }
    ct_list_remove(&member->link);
    ct_list_remove(&member->silence);
    m->count--;
    m->num_left_out -= member->left_out;
    m->workers -= member->workers;
    members_hang_forget(m, member);
    members_give(m, member->charged);
    ct_free(member->rows);
    ct_free(member->host);
    ct_free(member);
}
