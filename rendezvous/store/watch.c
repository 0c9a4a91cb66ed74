/* SPDX-License-Identifier: Apache-2.0
 *
 * A watch is in two lists: that of its key, for notices, and that of its watcher, for the end of
 * the watcher. Watchers are found by their address, because they have no list of their own. So a
 * connection that watches nothing, as nearly all do, needs no memory for it.
 */
#include "rendezvous/store/watch.h"

#include "common/alloc.h"
#include "common/list.h"
#include "common/map.h"

#include <string.h>

struct watched {
    struct ct_map_node node;
    struct ct_list watches; /* watch.at_key */
    size_t key_len;
    unsigned char key[];
};

struct watcher {
    struct ct_map_node node;
    struct ct_list watches; /* watch.of_watcher */
    void *who;
    ct_notice_fn fn;
};

struct watch {
    struct ct_list at_key, of_watcher;
    struct watched *key;
    struct watcher *watcher;
};

struct ct_watches {
    struct ct_map keys, watchers;
    struct ct_budget *budget;
};

/* ---- memory, all of which the budget counts ------------------------------------------------- */

static void *take(struct ct_watches *watches, size_t size, size_t around)
{
    size_t cost = size + CT_BLOCK_COST + around;
    if (!ct_budget_take(watches->budget, cost)) {
        return NULL;
    }
    void *block = ct_malloc(size);
    if (block == NULL) {
        ct_budget_give(watches->budget, cost);
    }
    return block;
}

static void give(struct ct_watches *watches, void *block, size_t size, size_t around)
{
    ct_free(block);
    ct_budget_give(watches->budget, size + CT_BLOCK_COST + around);
}

/* ---- keys ----------------------------------------------------------------------------------- */

static struct watched *watched_of(const struct ct_map_node *node)
{
    return CT_CONTAINER_OF(node, struct watched, node);
}

static bool has_key(const struct ct_map_node *node, const void *key, size_t len)
{
    const struct watched *watched = watched_of(node);
    return watched->key_len == len && (len == 0 || memcmp(watched->key, key, len) == 0);
}

static struct watched *find_key(struct ct_watches *watches, struct ct_bytes key)
{
    struct ct_map_node *node = ct_map_find(&watches->keys, key.ptr, key.len);
    return node != NULL ? watched_of(node) : NULL;
}

static struct watched *add_key(struct ct_watches *watches, struct ct_bytes key)
{
    size_t size = sizeof(struct watched) + key.len;
    struct watched *watched = take(watches, size, CT_BUCKET_COST);
    if (watched == NULL) {
        return NULL;
    }
    ct_list_init(&watched->watches);
    watched->key_len = key.len;
    if (key.len > 0) {
        memcpy(watched->key, key.ptr, key.len);
    }
    if (ct_map_insert(&watches->keys, &watched->node, key.ptr, key.len) != 0) {
        give(watches, watched, size, CT_BUCKET_COST);
        return NULL;
    }
    return watched;
}

/* NULL is allowed. */
static void drop_key_if_idle(struct ct_watches *watches, struct watched *watched)
{
    if (watched != NULL && ct_list_empty(&watched->watches)) {
        (void)ct_map_remove(&watches->keys, watched->key, watched->key_len);
        give(watches, watched, sizeof(*watched) + watched->key_len, CT_BUCKET_COST);
    }
}

/* ---- watchers ------------------------------------------------------------------------------- */

static struct watcher *watcher_of(const struct ct_map_node *node)
{
    return CT_CONTAINER_OF(node, struct watcher, node);
}

/* `key` points at the watcher's address. */
static bool is_watcher(const struct ct_map_node *node, const void *key, size_t len)
{
    return memcmp(&watcher_of(node)->who, key, len) == 0;
}

static struct watcher *find_watcher(struct ct_watches *watches, const void *who)
{
    struct ct_map_node *node = ct_map_find(&watches->watchers, &who, sizeof(who));
    return node != NULL ? watcher_of(node) : NULL;
}

static struct watcher *add_watcher(struct ct_watches *watches, void *who, ct_notice_fn fn)
{
    struct watcher *watcher = take(watches, sizeof(*watcher), CT_BUCKET_COST);
    if (watcher == NULL) {
        return NULL;
    }
    ct_list_init(&watcher->watches);
    watcher->who = who;
    watcher->fn = fn;
    if (ct_map_insert(&watches->watchers, &watcher->node, &who, sizeof(who)) != 0) {
        give(watches, watcher, sizeof(*watcher), CT_BUCKET_COST);
        return NULL;
    }
    return watcher;
}

/* NULL is allowed. */
static void drop_watcher_if_idle(struct ct_watches *watches, struct watcher *watcher)
{
    if (watcher != NULL && ct_list_empty(&watcher->watches)) {
        (void)ct_map_remove(&watches->watchers, &watcher->who, sizeof(watcher->who));
        give(watches, watcher, sizeof(*watcher), CT_BUCKET_COST);
    }
}

/* ---- watches --------------------------------------------------------------------------------- */

int ct_watches_add(struct ct_watches *watches, struct ct_bytes key, void *watcher, ct_notice_fn fn)
{
    struct watched *at = find_key(watches, key);
    at = at != NULL ? at : add_key(watches, key);
    struct watcher *by = find_watcher(watches, watcher);
    by = by != NULL ? by : add_watcher(watches, watcher, fn);
    struct watch *watch = at != NULL && by != NULL ? take(watches, sizeof(*watch), 0) : NULL;
    if (watch == NULL) {
        drop_key_if_idle(watches, at);
        drop_watcher_if_idle(watches, by);
        return CT_ENOMEM;
    }
    watch->key = at;
    watch->watcher = by;
    ct_list_append(&at->watches, &watch->at_key);
    ct_list_append(&by->watches, &watch->of_watcher);
    return 0;
}

void ct_watches_drop(struct ct_watches *watches, const void *watcher)
{
    struct watcher *by = find_watcher(watches, watcher);
    while (by != NULL && !ct_list_empty(&by->watches)) {
        struct watch *watch = CT_CONTAINER_OF(by->watches.next, struct watch, of_watcher);
        ct_list_remove(&watch->of_watcher);
        ct_list_remove(&watch->at_key);
        drop_key_if_idle(watches, watch->key);
        give(watches, watch, sizeof(*watch), 0);
    }
    drop_watcher_if_idle(watches, by);
}

void ct_watches_tell(struct ct_watches *watches, const struct ct_notice *notice)
{
    const struct watched *watched = find_key(watches, notice->key);
    if (watched == NULL) {
        return;
    }
    for (struct ct_list *at = watched->watches.next; at != &watched->watches; at = at->next) {
        const struct watcher *watcher = CT_CONTAINER_OF(at, struct watch, at_key)->watcher;
        watcher->fn(watcher->who, notice);
    }
}

bool ct_watches_empty(const struct ct_watches *watches)
{
    return ct_map_count(&watches->watchers) == 0;
}

int ct_watches_new(struct ct_budget *budget, struct ct_watches **out)
{
    struct ct_watches *watches = ct_calloc(1, sizeof(*watches));
    if (watches == NULL) {
        return CT_ENOMEM;
    }
    watches->budget = budget;
    ct_budget_force(budget, sizeof(*watches) + CT_BLOCK_COST);
    ct_map_init(&watches->keys, has_key);
    ct_map_init(&watches->watchers, is_watcher);
    *out = watches;
    return 0;
}

void ct_watches_free(struct ct_watches *watches)
{
    if (watches == NULL) {
        return;
    }
    CT_ASSERT(ct_watches_empty(watches));
    ct_map_fini(&watches->keys);
    ct_map_fini(&watches->watchers);
    give(watches, NULL, sizeof(*watches), 0);
    ct_free(watches);
}
