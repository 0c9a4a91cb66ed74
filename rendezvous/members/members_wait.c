/* SPDX-License-Identifier: Apache-2.0
 *
 * Which nodes the world waits for, in words: those that are missing, those that are there, and how
 * many more may come.
 *
 * A place (node rank) is covered if a member wants it or had it in the last world. Other members
 * may get any place. While there are such members, a missing place is named only if its host is
 * known, because otherwise "node rank 3 never connected" could be wrong.
 */
#include "rendezvous/members/members_wait.h"

#include "common/alloc.h"
#include "common/host_list.h"
#include "rendezvous/members/members_failover.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Waiting members are told at most this often: else each of n new nodes causes n messages. */
#define WAITING_LEAST_NS CT_NS_PER_S

/* How many nodes that left are described one by one. */
#define GONE_SHOWN 3

/* Marks the covered places. Returns how many members may take any place. */
static int cover(const struct ct_members *m, unsigned char *covered, int places)
{
    int unplaced = 0;
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        int at = member->wish >= 0 ? member->wish : member->node_rank;
        if (at >= 0 && at < places && covered[at] == 0) {
            covered[at] = 1;
        } else {
            unplaced++;
        }
    }
    return unplaced;
}

static void describe(const struct ct_members *m, int place, int64_t now_ns, char *out, size_t size)
{
    const struct members_gone *gone = m->places.at[place].gone;
    const char *name = members_place_name(&m->places, place);
    int len = name != NULL ? snprintf(out, size, "node rank %d (%.64s)", place, name)
                           : snprintf(out, size, "node rank %d", place);
    size_t used = len > 0 && (size_t)len < size ? (size_t)len : 0;
    if (gone == NULL) {
        (void)snprintf(out + used, size - used, " never connected");
    } else if (members_failover_was_host(m, place)) {
        (void)snprintf(out + used, size - used,
                       " hosted the job's store%s%.64s and was lost %" PRId64 " s ago",
                       gone->address[0] != '\0' ? " at " : "", gone->address,
                       (now_ns - gone->left_ns) / CT_NS_PER_S);
    } else {
        (void)snprintf(out + used, size - used, " connected%s%.64s and left %" PRId64 " s ago",
                       gone->address[0] != '\0' ? " from " : "", gone->address,
                       (now_ns - gone->left_ns) / CT_NS_PER_S);
    }
}

/* Returns the missing places that have names; the caller frees the array. NULL: no memory. */
static int *find_missing(const struct ct_members *m, int *count)
{
    int wanted = m->job.min_nodes < m->places.count ? m->job.min_nodes : m->places.count;
    int missing = m->job.min_nodes - m->count;
    unsigned char *covered = ct_calloc((size_t)wanted, 1);
    int *found = ct_calloc((size_t)wanted, sizeof(*found));
    *count = 0;
    if (covered != NULL && found != NULL) {
        int unplaced = cover(m, covered, wanted);
        for (int place = 0; place < wanted && *count < missing; place++) {
            if (covered[place] == 0 &&
                (unplaced == 0 || members_place_name(&m->places, place) != NULL)) {
                found[(*count)++] = place;
            }
        }
    }
    ct_free(covered);
    return found;
}

void members_wait_missing(const struct ct_members *m, int64_t now_ns, members_missing_fn fn,
                          void *data)
{
    int count, *places = find_missing(m, &count);
    for (int i = 0; i < count; i++) {
        char text[256];
        describe(m, places[i], now_ns, text, sizeof(text));
        fn(data, text);
    }
    ct_free(places);
}

/* ---- the line ------------------------------------------------------------------------------- */

/* Appends to `out`; appends nothing if there is no room for all of it. */
static void add(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(char *out, size_t size, const char *fmt, ...)
{
    size_t used = strlen(out);
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(out + used, size - used, fmt, args);
    va_end(args);
    if (len < 0 || (size_t)len >= size - used) {
        out[used] = '\0';
    }
}

/* Adds "node ranks 3-6 (gpu-[4-7]) never connected" for those of `places` whose host is known, or
 * with `named` false for the others. Returns their number. */
static int add_never_connected(const struct ct_members *m, const int *places, int count, bool named,
                               const char *before, char *out, size_t size)
{
    const char **names = ct_calloc((size_t)count, sizeof(*names));
    int *ranks = ct_calloc((size_t)count, sizeof(*ranks)), found = 0;
    for (int i = 0; names != NULL && ranks != NULL && i < count; i++) {
        const char *name = members_place_name(&m->places, places[i]);
        if (m->places.at[places[i]].gone == NULL && (name != NULL) == named) {
            names[found] = name;
            ranks[found++] = places[i];
        }
    }
    if (found > 0) {
        char numbers[64], hosts[CT_HOST_LIST_MAX] = "";
        ct_number_list_text(ranks, found, numbers, sizeof(numbers));
        if (named) {
            ct_host_list_text(names, found, hosts, sizeof(hosts));
        }
        add(out, size, "%s%s %s%s%s%s never connected", before,
            found > 1 ? "node ranks" : "node rank", numbers, named ? " (" : "", hosts,
            named ? ")" : "");
    }
    ct_free(names);
    ct_free(ranks);
    return found;
}

static int add_gone(const struct ct_members *m, const int *places, int count, const char *before,
                    int64_t now_ns, char *out, size_t size)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (m->places.at[places[i]].gone != NULL && found++ < GONE_SHOWN) {
            char text[256];
            describe(m, places[i], now_ns, text, sizeof(text));
            add(out, size, "%s%s", found > 1 ? "; " : before, text);
        }
    }
    if (found > GONE_SHOWN) {
        add(out, size, "; and %d more left", found - GONE_SHOWN);
    }
    return found;
}

static void add_missing(const struct ct_members *m, int64_t now_ns, char *out, size_t size)
{
    int count, *places = find_missing(m, &count);
    int told = 0;
    told += add_never_connected(m, places, count, true, ": ", out, size);
    told += add_never_connected(m, places, count, false, told > 0 ? "; " : ": ", out, size);
    told += add_gone(m, places, count, told > 0 ? "; " : ": ", now_ns, out, size);
    if (told > 0 && told < m->job.min_nodes - m->count) {
        add(out, size, "; and %d more", m->job.min_nodes - m->count - told);
    }
    ct_free(places);
}

/* Adds where a node has to come that is to replace a lost one, and how long it has. */
static void add_where(const struct ct_members *m, int64_t now_ns, char *out, size_t size)
{
    char where[CT_HOST_MAX + 16];
    members_failover_where(m, where, sizeof(where));
    if (where[0] == '\0' || m->due.join_ns == NEVER) {
        return;
    }
    int64_t left_s = m->due.join_ns > now_ns ? (m->due.join_ns - now_ns) / CT_NS_PER_S : 0;
    if (members_failover_has_arbiter(m)) { /* it tells the replacement where this host is */
        add(out, size,
            "; a replacement must be started within %" PRId64 " s, with the same --rdzv-endpoint",
            left_s);
    } else {
        add(out, size, "; a replacement must come to %s (--rdzv-endpoint) within %" PRId64 " s",
            where, left_s);
    }
}

/* Adds who is there, such as "; present: gpu-[1-3]"; without memory it adds nothing. */
static void add_present(const struct ct_members *m, const char *before, char *out, size_t size)
{
    const char **names = ct_calloc((size_t)m->count, sizeof(*names));
    int count = 0;
    EACH_MEMBER(m, pos)
    {
        if (names != NULL && count < m->count) {
            names[count++] = MEMBER_OF(pos, link)->host;
        }
    }
    if (count > 0) {
        char hosts[CT_HOST_LIST_MAX];
        ct_host_list_text(names, count, hosts, sizeof(hosts));
        add(out, size, "%s%s", before, hosts);
    }
    ct_free(names);
}

void members_wait_text(const struct ct_members *m, int64_t now_ns, char *out, size_t size)
{
    int missing = m->job.min_nodes - m->count, more = m->job.max_nodes - m->count;
    if (missing > 0) {
        (void)snprintf(out, size, "waiting for %d of %d nodes", missing, m->job.min_nodes);
        add_missing(m, now_ns, out, size);
        add_present(m, "; present: ", out, size);
        add_where(m, now_ns, out, size);
        if (members_elastic(m)) {
            add(out, size, "; then up to %d more may join", m->job.max_nodes - m->job.min_nodes);
        }
        return;
    }
    (void)snprintf(out, size, m->count == 1 ? "%d node is there" : "%d nodes are there", m->count);
    add_present(m, ": ", out, size);
    const char *why = members_failover_wait(m, now_ns);
    add(out, size, "%s%s", why[0] != '\0' ? "; " : "", why);
    if (more > 0) {
        add(out, size, "; up to %d more may join", more);
    }
}

/* ---- telling -------------------------------------------------------------------------------- */

void members_wait_plan(struct ct_members *m, int64_t now_ns)
{
    int64_t first = m->gather_ns + CT_WAITING_FIRST_MS * CT_NS_PER_MS;
    int64_t next = m->said_ns == INT64_MIN ? first : m->said_ns + WAITING_LEAST_NS;
    next = next > now_ns ? next : now_ns;
    m->due.say_ns = next < m->due.say_ns ? next : m->due.say_ns;
}

void members_wait_tell(struct ct_members *m, int64_t now_ns)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_WAITING);
    members_wait_text(m, now_ns, msg->text, sizeof(msg->text));
    ct_log(m->options.log, CT_LOG_INFO, "job %s: %s", m->job.run_id, msg->text);
    members_send_all(m);
    m->said_ns = now_ns;
    m->due.say_ns = now_ns + CT_WAITING_AGAIN_MS * CT_NS_PER_MS;
}
