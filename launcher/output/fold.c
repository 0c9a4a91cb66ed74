/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines wait in a list in the order of their arrival; a set of bits in each says which ranks wrote
 * it. A new line looks backwards for an equal one, but not past a line of its own worker, which
 * would change the order of that worker's lines.
 *
 * Who frees: ct_fold_next() frees each line that leaves; ct_fold_fini() the rest.
 */
#include "launcher/output/fold.h"

#include "common/alloc.h"
#include "common/ranges.h"
#include "launcher/output/lines.h"

#include <stdio.h>
#include <string.h>

/* Ranks are listed ("0-3,7") in at most this many bytes, else counted ("x5"). */
#define LIST_MAX 24

struct waiting {
    struct ct_list link; /* in fold->lines */
    int64_t due_ns;
    int first_rank, workers, count;
    const char *host;
    bool colour;
    void *owner;
    uint64_t ranks[CT_FOLD_RANKS_MAX / 64]; /* from first_rank on */
    size_t len, prefix_len;
    char bytes[];
};

static bool has(const void *set, int index)
{
    const struct waiting *line = set;
    return (line->ranks[index / 64] >> (index % 64) & 1) != 0;
}

static void join(struct waiting *line, int index)
{
    line->ranks[index / 64] |= UINT64_C(1) << (index % 64);
    line->count++;
}

static bool is_equal(const struct waiting *a, const struct ct_fold_line *b)
{
    return a->first_rank == b->first_rank && a->len - a->prefix_len == b->len - b->prefix_len &&
           memcmp(a->bytes + a->prefix_len, b->bytes + b->prefix_len, b->len - b->prefix_len) == 0;
}

/* Returns the first equal line that waits behind the last line of this worker, or NULL. */
static struct waiting *find(struct ct_fold *fold, const struct ct_fold_line *line, int index)
{
    struct waiting *found = NULL;
    for (struct ct_list *l = fold->lines.prev; l != &fold->lines; l = l->prev) {
        struct waiting *other = CT_CONTAINER_OF(l, struct waiting, link);
        if (other->first_rank != line->first_rank || has(other, index)) {
            break;
        }
        if (is_equal(other, line)) {
            found = other;
        }
    }
    return found;
}

static bool is_complete(const struct waiting *line)
{
    return line->workers > 0 && line->count >= line->workers;
}

static struct waiting *first(const struct ct_fold *fold)
{
    return ct_list_empty(&fold->lines) ? NULL
                                       : CT_CONTAINER_OF(fold->lines.next, struct waiting, link);
}

static void drop(struct ct_fold *fold, struct waiting *line)
{
    fold->count--;
    fold->bytes -= line->len;
    ct_list_remove(&line->link);
    ct_free(line);
}

void ct_fold_init(struct ct_fold *fold)
{
    *fold = (struct ct_fold){0};
    ct_list_init(&fold->lines);
}

void ct_fold_fini(struct ct_fold *fold)
{
    while (fold != NULL && fold->count > 0) {
        drop(fold, first(fold));
    }
}

int ct_fold_add(struct ct_fold *fold, const struct ct_fold_line *line, int64_t now_ns)
{
    int index = line->rank - line->first_rank;
    CT_ASSERT(index >= 0 && index < CT_FOLD_RANKS_MAX);
    struct waiting *equal = find(fold, line, index);
    if (equal != NULL) {
        join(equal, index);
        return 0;
    }
    struct waiting *added = ct_calloc(1, sizeof(*added) + line->len);
    if (added == NULL) {
        return CT_ENOMEM;
    }
    added->due_ns = now_ns + CT_FOLD_WINDOW_NS;
    added->first_rank = line->first_rank;
    added->workers = line->workers;
    added->host = line->host;
    added->colour = line->colour;
    added->owner = line->owner;
    added->len = line->len;
    added->prefix_len = line->prefix_len;
    memcpy(added->bytes, line->bytes, line->len);
    join(added, index);
    ct_list_append(&fold->lines, &added->link);
    fold->count++;
    fold->bytes += line->len;
    return 0;
}

/* Writes the ranks as "0-3,7", or only their number ("x5") when that is too long. */
static void list_ranks(const struct waiting *line, char out[LIST_MAX])
{
    const struct ct_ranges ranges = {
        .has = has, .set = line, .count = CT_FOLD_RANKS_MAX, .first = line->first_rank};
    char range[CT_RANGE_MAX];
    int len = 0;
    for (int at = 0; len < LIST_MAX && ct_ranges_next(&ranges, &at, range);) {
        len += snprintf(out + len, (size_t)(LIST_MAX - len), "%s%s", len > 0 ? "," : "", range);
    }
    if (len >= LIST_MAX) {
        (void)snprintf(out, LIST_MAX, "x%d", line->count);
    }
}

static int print(const struct waiting *line, struct ct_buf *out)
{
    char ranks[LIST_MAX], prefix[CT_LINES_PREFIX_MAX];
    if (line->count == 1) {
        return ct_buf_append(out, line->bytes, line->len);
    }
    list_ranks(line, ranks);
    ct_lines_prefix_many(line->host, ranks, line->colour, prefix);
    size_t len = strlen(prefix);
    int rc = ct_buf_reserve(out, len + line->len); /* all or nothing */
    if (rc == 0) {                                 /* with this room nothing can fail */
        ct_buf_add(out, prefix, len);
        ct_buf_add(out, line->bytes + line->prefix_len, line->len - line->prefix_len);
    }
    return rc;
}

int ct_fold_next(struct ct_fold *fold, int64_t now_ns, struct ct_buf *out, void **owner)
{
    struct waiting *line = first(fold);
    bool full = fold->count > CT_FOLD_LINES_MAX || fold->bytes > CT_FOLD_BYTES_MAX;
    if (line == NULL || !(full || is_complete(line) || now_ns >= line->due_ns)) {
        return CT_FOLD_NONE_DUE;
    }
    int rc = print(line, out);
    *owner = line->owner;
    drop(fold, line);
    return rc;
}

int64_t ct_fold_due_ns(const struct ct_fold *fold)
{
    const struct waiting *line = first(fold);
    return line != NULL ? line->due_ns : INT64_MAX;
}
