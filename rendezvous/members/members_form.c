/* SPDX-License-Identifier: Apache-2.0
 *
 * From the first member to a world that runs.
 */
#include "rendezvous/members/members_impl.h"

#include <stdio.h>
#include <string.h>

static void tell_world(struct ct_members *m, struct ct_member *member, bool serve)
{
    struct ct_msg_world *world = &m->msg.world;
    *world = (struct ct_msg_world){
        .node_rank = member->node_rank,
        .node_count = m->node_count,
        .first_rank = member->first_rank,
        .world_size = m->world_size,
        .first_role_rank = member->first_role_rank,
        .role_size = member->role_size,
        .restarts = m->restarts,
        .serve = serve,
        .master_port = m->master_port,
    };
    memcpy(world->master_addr, m->master_addr, sizeof(world->master_addr));
    memcpy(world->store_addr, m->store_addr, sizeof(world->store_addr));
    member->told = true;
    member->says_spare = false;
    members_send(m, member);
}

/* Who of all members is in the next world: those of the last one, then who came first. */
static int choose(struct ct_members *m)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        EACH_MEMBER(m, pos)
        {
            struct ct_member *member = MEMBER_OF(pos, link);
            if ((member->node_rank >= 0) == (pass == 0) && n < m->job.max_nodes) {
                m->sorted[n++] = member;
            }
        }
    }
    return n;
}

void members_form(struct ct_members *m, int64_t now_ns)
{
    int n = choose(m);
    members_number(m->sorted, n);
    m->world_size = members_rank(m->sorted, n);
    m->generation++;
    m->node_count = m->last_node_count = m->unstarted = m->unfinished = n;
    m->any_finished = m->charged = false;
    m->server = m->sorted[0];
    m->master_addr[0] = '\0';
    m->master_port = 0;
    m->settle_ns = m->say_ns = NEVER; /* join_ns goes on: until rank 0 serves */
    for (int i = 0; i < n; i++) {
        struct ct_member *member = m->sorted[i];
        member->in_world = true;
        member->told = member->started = member->finished = member->stopped = false;
    }
    members_forget_gone(m);
    m->round_failures_from = m->story.num_failures;
    m->story.rounds[m->story.num_rounds++ % CT_STORY_KEPT] = (struct ct_story_round){
        .generation = m->generation,
        .nodes = n,
        .world_size = m->world_size,
    };
    ct_sm_move(&m->sm, STATE_FORMING, "enough nodes are there", now_ns);
    (void)members_msg(m, CT_MSG_WORLD);
    tell_world(m, m->server, true);
}

static void say_soon(struct ct_members *m)
{
    int64_t first = m->gather_ns + CT_WAITING_FIRST_MS * CT_NS_PER_MS;
    int64_t next = m->said_ns == INT64_MIN ? first : m->said_ns + WAITING_LEAST_NS;
    m->say_ns = next < m->say_ns ? next : m->say_ns;
}

/* Somebody came or went while the world is not complete. */
void members_consider(struct ct_members *m, int64_t now_ns)
{
    say_soon(m);
    if (m->count < m->job.min_nodes || m->pause_ns != NEVER) {
        m->settle_ns = NEVER;
    } else if (m->count >= m->job.max_nodes ||
               (m->last_node_count > 0 && m->count >= m->last_node_count) ||
               m->job.settle_ms == 0) {
        members_form(m, now_ns);
    } else if (m->settle_ns == NEVER) {
        m->settle_ns = now_ns + m->job.settle_ms * CT_NS_PER_MS;
    }
}

void members_gather(struct ct_members *m, int64_t pause_ms, int64_t now_ns)
{
    m->unclean = false;
    m->gather_ns = now_ns + pause_ms * CT_NS_PER_MS;
    m->pause_ns = pause_ms > 0 ? m->gather_ns : NEVER;
    m->said_ns = INT64_MIN;
    m->join_ns = m->gather_ns + m->job.join_ms * CT_NS_PER_MS;
    members_consider(m, now_ns);
}

void members_resume(struct ct_members *m, int64_t now_ns)
{
    m->pause_ns = NEVER;
    members_consider(m, now_ns);
}

/* Members that are not in the running world: into the next one soon, or spares. */
void members_place_waiting(struct ct_members *m, int64_t now_ns)
{
    bool wanted = members_elastic(m) && m->node_count < m->job.max_nodes && !m->any_finished;
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world) {
            continue;
        }
        if (wanted) {
            m->newcomers_ns = m->newcomers_ns == NEVER ? now_ns + NEWCOMERS_NS : m->newcomers_ns;
            return;
        }
        if (!member->says_spare) {
            member->says_spare = true;
            (void)members_msg(m, CT_MSG_SPARE);
            members_send(m, member);
        }
    }
}

void members_serving(struct ct_members *m, const struct ct_msg *serving, int64_t now_ns)
{
    const char *address = serving->text[0] != '\0' ? serving->text : m->server->address;
    (void)snprintf(m->master_addr, sizeof(m->master_addr), "%.*s", CT_HOST_MAX - 1, address);
    m->master_port = serving->port;
    members_no_timers(m);
    members_round(m)->formed_ms = members_ms(m, now_ns);
    members_round(m)->waited_ms = (now_ns - m->gather_ns) / CT_NS_PER_MS;
    ct_sm_move(&m->sm, STATE_RUNNING, "rank 0 serves", now_ns);
    (void)members_msg(m, CT_MSG_WORLD);
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && !member->told) {
            tell_world(m, member, false);
        }
    }
    members_place_waiting(m, now_ns);
}

void members_say_waiting(struct ct_members *m, int64_t now_ns)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_WAITING);
    members_waiting_text(m, now_ns, msg->text, sizeof(msg->text));
    ct_log(m->options.log, CT_LOG_INFO, "job %s: %s", m->job.run_id, msg->text);
    EACH_MEMBER(m, pos)
    {
        members_send(m, MEMBER_OF(pos, link));
    }
    m->said_ns = now_ns;
    m->say_ns = now_ns + CT_WAITING_AGAIN_MS * CT_NS_PER_MS;
}
