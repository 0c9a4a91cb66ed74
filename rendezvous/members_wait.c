/* SPDX-License-Identifier: Apache-2.0
 *
 * For whom the world waits, in words.
 *
 * Which places are covered: those that members wish for or had in the last world. Members that have
 * neither may take any place; as long as there are such, only places that have a name or a past are
 * told, since "rank 3 never connected" could be wrong.
 */
#include "rendezvous/members_impl.h"

#include "common/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAMES_SHOWN 8

/* Gives how many members have no place of their own; marks the places of the others. */
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

static const char *name_of(const struct ct_members *m, int place)
{
    const struct gone *gone = m->places[place].gone;
    if (gone != NULL) {
        return gone->host;
    }
    return place < m->options.num_expected ? m->expected[place] : NULL;
}

static void describe(const struct ct_members *m, int place, int64_t now_ns, char *out, size_t size)
{
    const struct gone *gone = m->places[place].gone;
    const char *name = name_of(m, place);
    int len = name != NULL ? snprintf(out, size, "rank %d (%.64s)", place, name)
                           : snprintf(out, size, "rank %d", place);
    size_t used = len > 0 && (size_t)len < size ? (size_t)len : 0;
    if (gone == NULL) {
        (void)snprintf(out + used, size - used, " never connected");
    } else {
        (void)snprintf(out + used, size - used, " connected%s%.64s and left %" PRId64 " s ago",
                       gone->address[0] != '\0' ? " from " : "", gone->address,
                       (now_ns - gone->left_ns) / CT_NS_PER_S);
    }
}

int members_missing(const struct ct_members *m, int64_t now_ns, int limit, members_missing_fn fn,
                    void *data)
{
    int wanted = m->job.min_nodes < m->num_places ? m->job.min_nodes : m->num_places;
    int missing = m->job.min_nodes - m->count;
    unsigned char *covered = missing > 0 ? ct_calloc((size_t)wanted, 1) : NULL;
    if (covered == NULL) {
        return missing > 0 ? missing : 0;
    }
    int unplaced = cover(m, covered, wanted);
    int told = 0;
    for (int place = 0; place < wanted && told < limit && told < missing; place++) {
        if (covered[place] == 0 && (unplaced == 0 || name_of(m, place) != NULL)) {
            char text[256];
            describe(m, place, now_ns, text, sizeof(text));
            fn(data, text);
            told++;
        }
    }
    ct_free(covered);
    return missing;
}

/* ---- the line ------------------------------------------------------------------------------- */

struct names {
    char text[CT_STORY_WHAT_MAX];
    size_t used;
    int told;
};

static void add_name(void *data, const char *text)
{
    struct names *names = data;
    const char *before = names->told > 0 ? "; " : ": ";
    /* Room for "; and 65536 more" stays. */
    if (names->used + strlen(before) + strlen(text) + 40 < sizeof(names->text)) {
        int len = snprintf(names->text + names->used, sizeof(names->text) - names->used, "%s%s",
                           before, text);
        names->used += len > 0 ? (size_t)len : 0;
        names->told++;
    }
}

void members_waiting_text(const struct ct_members *m, int64_t now_ns, char *out, size_t size)
{
    struct names names = {.used = 0};
    int missing = members_missing(m, now_ns, NAMES_SHOWN, add_name, &names);
    if (missing == 0) {
        (void)snprintf(out, size, "%d nodes are there; up to %d may still join", m->count,
                       m->job.max_nodes - m->count);
        return;
    }
    if (names.told > 0 && names.told < missing) {
        (void)snprintf(names.text + names.used, sizeof(names.text) - names.used, "; and %d more",
                       missing - names.told);
    }
    char head[64];
    (void)snprintf(head, sizeof(head), "waiting for %d of %d nodes", missing, m->job.min_nodes);
    (void)snprintf(out, size, "%s%.*s", head, (int)(size - strlen(head) - 1), names.text);
}
