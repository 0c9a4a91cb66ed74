/* SPDX-License-Identifier: Apache-2.0
 *
 * Two tables of chains. While the map grows, nodes move from table 0 to table 1, a few buckets with
 * each call. When all have moved, table 1 becomes table 0. Nothing moves during ct_map_each().
 *
 * Failure modes: only the first insert needs memory. When a larger table cannot be made, chains
 * become longer.
 */
#include "common/map.h"

#include "common/alloc.h"

#include <string.h>

/* First table: small, since most maps hold a job's few dozen keys. */
#define MAP_MIN_BUCKETS 16
/* Buckets moved per call while rehashing. Two finish the move long before the larger table fills,
 * because the table doubles at load 1. */
#define MAP_MOVE_BUCKETS 2

void ct_map_init(struct ct_map *map, ct_map_eq_fn eq)
{
    memset(map, 0, sizeof(*map));
    map->eq = eq;
    ct_hash_key_random(&map->key);
}

void ct_map_fini(struct ct_map *map)
{
    if (map == NULL) {
        return;
    }
    ct_free(map->table[0].buckets);
    ct_free(map->table[1].buckets);
    memset(map->table, 0, sizeof(map->table));
    map->moved = 0;
}

size_t ct_map_count(const struct ct_map *map)
{
    return map->table[0].count + map->table[1].count;
}

static bool rehashing(const struct ct_map *map)
{
    return map->table[1].buckets != NULL;
}

static void link_node(struct ct_map_table *table, struct ct_map_node *node)
{
    struct ct_map_node **bucket = &table->buckets[node->hash & table->mask];
    node->next = *bucket;
    *bucket = node;
    table->count++;
}

static void rehash_some(struct ct_map *map)
{
    if (!rehashing(map) || map->pinned > 0) {
        return;
    }
    struct ct_map_table *from = &map->table[0];
    for (int i = 0; i < MAP_MOVE_BUCKETS && map->moved <= from->mask; i++, map->moved++) {
        struct ct_map_node *node = from->buckets[map->moved];
        from->buckets[map->moved] = NULL;
        while (node != NULL) {
            struct ct_map_node *next = node->next;
            from->count--;
            link_node(&map->table[1], node);
            node = next;
        }
    }
    if (map->moved > from->mask) {
        ct_free(from->buckets);
        map->table[0] = map->table[1];
        memset(&map->table[1], 0, sizeof(map->table[1]));
        map->moved = 0;
    }
}

static int table_alloc(struct ct_map_table *table, size_t buckets)
{
    table->buckets = ct_calloc(buckets, sizeof(struct ct_map_node *));
    if (table->buckets == NULL) {
        return CT_ENOMEM;
    }
    table->mask = buckets - 1;
    table->count = 0;
    return 0;
}

/* Returns the link that points at the node with this key, or NULL. *where gets the node's table. */
static struct ct_map_node **locate(struct ct_map *map, const void *key, size_t len,
                                   struct ct_map_table **where)
{
    rehash_some(map);
    uint64_t hash = ct_hash(&map->key, key, len);
    for (int i = 0; i < 2; i++) {
        struct ct_map_table *table = &map->table[i];
        if (table->buckets == NULL) {
            continue;
        }
        for (struct ct_map_node **link = &table->buckets[hash & table->mask]; *link != NULL;
             link = &(*link)->next) {
            if ((*link)->hash == hash && map->eq(*link, key, len)) {
                *where = table;
                return link;
            }
        }
    }
    return NULL;
}

struct ct_map_node *ct_map_find(struct ct_map *map, const void *key, size_t len)
{
    struct ct_map_table *where;
    struct ct_map_node **link = locate(map, key, len, &where);
    return link != NULL ? *link : NULL;
}

int ct_map_insert(struct ct_map *map, struct ct_map_node *node, const void *key, size_t len)
{
    CT_ASSERT(map->pinned == 0);
    rehash_some(map);
    struct ct_map_table *main = &map->table[0];
    if (main->buckets == NULL) {
        int rc = table_alloc(main, MAP_MIN_BUCKETS);
        if (rc != 0) {
            return rc;
        }
    } else if (!rehashing(map) && main->count > main->mask) {
        /* Without memory for a larger table the chains only become longer. */
        (void)table_alloc(&map->table[1], (main->mask + 1) * 2);
        map->moved = 0;
    }
    node->hash = ct_hash(&map->key, key, len);
    link_node(rehashing(map) ? &map->table[1] : main, node);
    return 0;
}

struct ct_map_node *ct_map_remove(struct ct_map *map, const void *key, size_t len)
{
    struct ct_map_table *where;
    struct ct_map_node **link = locate(map, key, len, &where);
    if (link == NULL) {
        return NULL;
    }
    struct ct_map_node *node = *link;
    *link = node->next;
    node->next = NULL;
    where->count--;
    return node;
}

void ct_map_unlink(struct ct_map *map, struct ct_map_node *node)
{
    for (int i = 0; i < 2; i++) {
        struct ct_map_table *table = &map->table[i];
        if (table->buckets == NULL) {
            continue;
        }
        struct ct_map_node **link = &table->buckets[node->hash & table->mask];
        while (*link != NULL && *link != node) {
            link = &(*link)->next;
        }
        if (*link == node) {
            *link = node->next;
            node->next = NULL;
            table->count--;
            return;
        }
    }
}

void ct_map_each(struct ct_map *map, void (*fn)(struct ct_map_node *node, void *data), void *data)
{
    map->pinned++;
    for (int i = 0; i < 2; i++) {
        struct ct_map_table *table = &map->table[i];
        for (size_t b = 0; table->buckets != NULL && b <= table->mask; b++) {
            struct ct_map_node *next;
            for (struct ct_map_node *node = table->buckets[b]; node != NULL; node = next) {
                next = node->next;
                fn(node, data);
            }
        }
    }
    map->pinned--;
}

void ct_map_drain(struct ct_map *map, void (*fn)(struct ct_map_node *node, void *data), void *data)
{
    struct ct_map old = *map;
    memset(map->table, 0, sizeof(map->table));
    map->moved = 0;
    ct_map_each(&old, fn, data);
    ct_map_fini(&old);
}
