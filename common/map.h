/* SPDX-License-Identifier: Apache-2.0
 *
 * An intrusive hash map from byte strings to the caller's objects.
 *
 * The object embeds a struct ct_map_node and owns its key; the map owns neither. Collisions are
 * chained. Growth is incremental: every insert, find and remove moves a few buckets, so no single
 * call pays for the rehash of a million keys.
 */
#ifndef CT_COMMON_MAP_H
#define CT_COMMON_MAP_H

#include "common/err.h"
#include "common/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_map_node {
    struct ct_map_node *next;
    uint64_t hash;
};

/* Does the object around `node` have exactly this key? */
typedef bool (*ct_map_eq_fn)(const struct ct_map_node *node, const void *key, size_t len);

struct ct_map_table {
    struct ct_map_node **buckets;
    size_t mask;  /* bucket count - 1; meaningless while buckets is NULL */
    size_t count; /* nodes in this table */
};

struct ct_map {
    struct ct_map_table table[2]; /* [1] is the larger one while a rehash is under way */
    size_t moved;                 /* next bucket of table[0] to move */
    unsigned pinned;              /* ct_map_each() calls under way: no node may change place */
    ct_map_eq_fn eq;
    struct ct_hash_key key;
};

/* Allocates nothing. The hash key is drawn from the kernel's random source. */
void ct_map_init(struct ct_map *map, ct_map_eq_fn eq);

/* Frees the table, not the objects (remove or free those first). Zeroed memory and NULL allowed. */
void ct_map_fini(struct ct_map *map);

size_t ct_map_count(const struct ct_map *map);

/* NULL when absent. */
struct ct_map_node *ct_map_find(struct ct_map *map, const void *key, size_t len);

/* The key must be absent. CT_ENOMEM leaves the map as it was. */
CT_MUST_CHECK int ct_map_insert(struct ct_map *map, struct ct_map_node *node, const void *key,
                                size_t len);

/* Unlinks and returns the node, or NULL when absent. */
struct ct_map_node *ct_map_remove(struct ct_map *map, const void *key, size_t len);

/* Unlinks a node that is in the map, without looking at its key. */
void ct_map_unlink(struct ct_map *map, struct ct_map_node *node);

/* Calls fn for every node once, in no order. fn may find any key, and may remove the node it is
 * given (and free it); it must neither insert nor remove another. */
void ct_map_each(struct ct_map *map, void (*fn)(struct ct_map_node *node, void *data), void *data);

/* Calls fn for every node and leaves the map empty (for freeing all objects). */
void ct_map_drain(struct ct_map *map, void (*fn)(struct ct_map_node *node, void *data), void *data);

#endif
