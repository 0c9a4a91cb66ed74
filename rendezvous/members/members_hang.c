/* SPDX-License-Identifier: Apache-2.0
 *
 * When all members of the world report that their workers make no progress, all of them are told
 * which rank holds the job up. They are told once, and again only after a worker has made progress.
 *
 * If no rank stands out, the members are first asked where their workers stand. When all have
 * answered, or the time is over, the answers are judged, and the members get a second verdict,
 * which names a rank or not.
 *
 * Failure modes: a member that cannot answer, because its ctrun is older, lets the first verdict be
 * the last one. Without memory, and in a world that is too large, the second one names nobody.
 *
 * Who frees: forget_stands(), when the answers have been judged; members_hang_forget().
 */
#include "rendezvous/members/members_hang.h"

#include "common/alloc.h"
#include "rendezvous/control/stands.h"

#include <stdio.h>
#include <string.h>

/* Votes are added up at most this often, because it takes time for many members, and any beat may
 * be the last vote that is missing. */
#define LOOK_EVERY_NS CT_NS_PER_S

/* How long members may take to answer: --hang-stacks has 5 s by default, and the store and the way
 * there take a moment. */
#define STANDS_NS (8 * CT_NS_PER_S)

/* From the judgement of the answers to the next question of that generation; it doubles. All
 * machines take stacks for each, which one machine could cause with each vote that it changes. */
#define ASK_PAUSE_NS (5 * CT_NS_PER_S)
#define ASK_PAUSE_DOUBLINGS 4

/* Ranks of the largest world that is judged by its answers. Each takes some kilobytes meanwhile. */
#define STANDS_RANKS_MAX 16384

/* Does the member report that none of its workers makes progress? An invalid vote does not. */
static bool stands_still(const struct ct_members *m, const struct ct_member *member)
{
    const struct ct_hang_vote *still = &member->still;
    return still->kind > CT_HANG_VOTE_NO && still->kind < CT_HANG_VOTE_BEHIND &&
           still->generation == m->generation && still->rank >= member->first_rank &&
           still->rank - member->first_rank < member->workers;
}

/* Adds up the votes of all members of the world. Returns false if some worker makes progress. */
static bool sum_up(const struct ct_members *m, struct ct_hang_votes *sum)
{
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (!member->in_world || member->finished) {
            continue;
        }
        if (!stands_still(m, member)) {
            return false;
        }
        ct_hang_vote_add(sum, &member->still);
    }
    return true;
}

static const struct ct_member *member_of_rank(const struct ct_members *m, int rank)
{
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && rank >= member->first_rank &&
            rank - member->first_rank < member->workers) {
            return member;
        }
    }
    return NULL;
}

static const char *host_of_rank(const struct ct_members *m, int rank)
{
    const struct ct_member *member = member_of_rank(m, rank);
    return member != NULL ? member->host : "";
}

/* The lowest rank of a machine that has not finished. Where nobody stands out, that machine acts.
 */
static int lowest_unfinished(const struct ct_members *m)
{
    int lowest = m->world_size;
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && !member->finished && member->first_rank < lowest) {
            lowest = member->first_rank;
        }
    }
    return lowest < m->world_size ? lowest : 0;
}

/* Sends a verdict to all of the world. */
static void tell(struct ct_members *m, const struct ct_hang_vote *verdict, const char *text)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_BEAT);
    msg->still = *verdict;
    (void)snprintf(msg->text, sizeof(msg->text), "%s", text);
    members_send_world(m);
}

static bool all_can_stand(const struct ct_members *m)
{
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && !member->can_stand) {
            return false;
        }
    }
    return true;
}

void members_hang_forget(struct ct_members *m, struct ct_member *member)
{
    if (member->stands != NULL) {
        members_give(m, strlen(member->stands) + 1);
        ct_free(member->stands);
    }
    member->stands = NULL;
    member->stood = false;
}

static void forget_stands(struct ct_members *m)
{
    EACH_MEMBER(m, pos)
    {
        members_hang_forget(m, MEMBER_OF(pos, link));
    }
}

/* Has this generation been asked, and is it too early to ask again? */
static bool asked_lately(const struct ct_members *m, int64_t now_ns)
{
    return m->hang_asked > 0 && m->hang.generation == m->generation &&
           (m->stands_due_ns != NEVER || now_ns < m->hang_ask_ns);
}

/* Asks all of the world where its workers stand. */
static void begin_to_ask(struct ct_members *m, struct ct_hang_vote *verdict, int64_t now_ns)
{
    verdict->asks = true;
    forget_stands(m);
    m->hang_asked = m->hang.generation == m->generation ? m->hang_asked + 1 : 1;
    m->hang = *verdict;
    m->stands_due_ns = now_ns + STANDS_NS;
}

void members_hang_vote(struct ct_members *m, struct ct_member *member,
                       const struct ct_hang_vote *vote, int64_t now_ns)
{
    struct ct_hang_votes sum = {.total = 0};
    member->still = *vote;
    if (!stands_still(m, member)) {
        m->hang_told = m->hang_told && !member->in_world;
        return;
    }
    if (m->hang_told || members_state(m) != STATE_RUNNING || m->world_size == member->workers ||
        now_ns - m->hang_looked_ns < LOOK_EVERY_NS) {
        return;
    }
    m->hang_looked_ns = now_ns;
    if (!sum_up(m, &sum)) {
        return;
    }
    struct ct_hang_vote verdict = {.generation = m->generation};
    ct_hang_vote_judge(&sum, &verdict);
    if (verdict.kind == CT_HANG_VOTE_NO) {
        return;
    }
    bool asks = verdict.kind == CT_HANG_VOTE_ALL && all_can_stand(m);
    if (asks && asked_lately(m, now_ns)) {
        return; /* a later beat finds the same if it is still so then */
    }
    m->hang_told = true;
    if (verdict.kind == CT_HANG_VOTE_ALL) {
        verdict.rank = lowest_unfinished(m);
    }
    if (asks) {
        begin_to_ask(m, &verdict, now_ns);
    }
    tell(m, &verdict, host_of_rank(m, verdict.rank));
}

/* ---- the answers ----------------------------------------------------------------------------- */

/* Judges what the members have told. Gives -1 if no rank stands out, perhaps with a reason, too. */
static int judge_stands(const struct ct_members *m, struct ct_buf *reason)
{
    struct ct_stands stands;
    int rank = -1;
    if (m->world_size > STANDS_RANKS_MAX || ct_stands_init(&stands, m->world_size) != 0) {
        return -1;
    }
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && member->stands != NULL &&
            ct_stands_decode(member->stands, member->first_rank, member->workers, &stands) != 0) {
            /* What could be read of it counts. */
        }
    }
    if (ct_stands_judge(&stands, &rank, reason) != 0) {
        rank = -1;
    }
    if (rank >= 0) {
        const char *at = stands.at[rank];
        ct_buf_addf(reason, "; it runs on %s%s%s", host_of_rank(m, rank),
                    at[0] != '\0' ? ", at " : "", at);
        rank = ct_buf_status(reason) == 0 ? rank : -1;
    }
    ct_stands_fini(&stands);
    return rank;
}

static void conclude(struct ct_members *m, int64_t now_ns)
{
    int doublings =
        m->hang_asked - 1 < ASK_PAUSE_DOUBLINGS ? m->hang_asked - 1 : ASK_PAUSE_DOUBLINGS;
    struct ct_buf reason = CT_BUF_INIT;
    struct ct_hang_vote verdict = m->hang;
    char text[CT_FAILURE_WHAT_MAX];
    m->stands_due_ns = NEVER;
    m->hang_ask_ns = now_ns + ASK_PAUSE_NS * (1 << doublings);
    if (members_state(m) == STATE_RUNNING && verdict.generation == m->generation && m->hang_told) {
        int rank = judge_stands(m, &reason);
        const struct ct_member *member = rank >= 0 ? member_of_rank(m, rank) : NULL;
        verdict.asks = false;
        if (member != NULL && !member->finished) { /* else nobody would act */
            verdict.kind = CT_HANG_VOTE_NAMED;
            verdict.rank = rank;
            (void)snprintf(text, sizeof(text), "%s", ct_buf_cstr(&reason));
        } else if (rank < 0 && ct_buf_status(&reason) == 0 && reason.len > 0) {
            (void)snprintf(text, sizeof(text), "%s", ct_buf_cstr(&reason));
        } else {
            (void)snprintf(text, sizeof(text), "%s", host_of_rank(m, verdict.rank));
        }
        tell(m, &verdict, text);
    }
    ct_buf_fini(&reason);
    forget_stands(m);
}

static bool all_stood(const struct ct_members *m)
{
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && !member->finished && !member->stood) {
            return false;
        }
    }
    return true;
}

void members_hang_stands(struct ct_members *m, struct ct_member *member, const struct ct_msg *msg,
                         int64_t now_ns)
{
    size_t size = msg->result != NULL ? strlen(msg->result) + 1 : 0;
    if (m->stands_due_ns == NEVER || msg->generation != m->generation || !member->in_world ||
        member->stood) {
        return; /* too late, or of no use */
    }
    member->stood = true;
    if (size > 0 && members_take(m, size)) {
        member->stands = ct_strdup(msg->result);
        if (member->stands == NULL) {
            members_give(m, size);
        }
    }
    if (all_stood(m)) {
        conclude(m, now_ns);
    }
}

void members_hang_tick(struct ct_members *m, int64_t now_ns)
{
    if (now_ns >= m->stands_due_ns) {
        conclude(m, now_ns);
    }
}
