/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the hash map with an array through random operations, and checks that its growth is
 * spread over calls and survives lack of memory.
 */
#include "common/alloc.h"
#include "common/map.h"
#include "tests/lib/ct_test.h"

/* Keys are small integers as bytes; the model is an array of pointers indexed by key. */
#define KEYS 3000

struct entry {
    struct ct_map_node node;
    uint32_t key;
    int visits;
};

static bool entry_eq(const struct ct_map_node *node, const void *key, size_t len)
{
    return len == sizeof(uint32_t) && memcmp(&((const struct entry *)node)->key, key, len) == 0;
}

static struct ct_map_node *find(struct ct_map *map, uint32_t key)
{
    return ct_map_find(map, &key, sizeof(key));
}

static struct entry *insert_new(struct ct_map *map, uint32_t key)
{
    struct entry *entry = ct_calloc(1, sizeof(*entry));
    assert_non_null(entry);
    entry->key = key;
    assert_int_equal(ct_map_insert(map, &entry->node, &key, sizeof(key)), 0);
    return entry;
}

static void free_entry(struct ct_map_node *node, void *data)
{
    (*(size_t *)data)++;
    ct_free(node);
}

static void fini_all(struct ct_map *map, size_t expected)
{
    size_t freed = 0;
    ct_map_drain(map, free_entry, &freed);
    assert_int_equal(freed, expected);
    assert_int_equal(ct_map_count(map), 0);
    ct_map_fini(map);
}

static bool rehash_under_way(const struct ct_map *map)
{
    return map->table[1].buckets != NULL;
}

/* Inserts keys 0, 1, .. until a rehash has begun; returns how many. */
static uint32_t fill_until_rehash(struct ct_map *map)
{
    uint32_t key = 0;
    while (!rehash_under_way(map) || map->table[0].count < 100) {
        (void)insert_new(map, key++);
    }
    return key;
}

static void test_an_empty_map_finds_and_removes_nothing(void **state)
{
    (void)state;
    struct ct_map map;
    ct_map_init(&map, entry_eq);
    assert_int_equal(ct_map_count(&map), 0);
    assert_null(find(&map, 1));
    assert_null(ct_map_remove(&map, "k", 1));
    fini_all(&map, 0);
    ct_map_fini(&map);
    ct_map_fini(NULL);
    struct ct_map zeroed;
    memset(&zeroed, 0, sizeof(zeroed));
    ct_map_fini(&zeroed);
}

static void test_random_operations_match_the_model(void **state)
{
    (void)state;
    static struct entry *model[KEYS];
    memset(model, 0, sizeof(model));
    struct ct_map map;
    ct_map_init(&map, entry_eq);
    size_t count = 0;
    int in_rehash = 0;
    uint32_t seed = 20240229;
    for (int step = 0; step < 200000; step++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t key = (seed >> 4) % KEYS;
        /* Grows for a while, then shrinks, so that removals also fall into a rehash. */
        bool grow = (seed >> 20) % 8 < (step / 20000 % 2 == 0 ? 6u : 2u);
        if (grow && model[key] == NULL) {
            model[key] = insert_new(&map, key);
            count++;
        } else if (!grow) {
            struct ct_map_node *gone = find(&map, key);
            if (gone != NULL && step % 2 == 0) {
                ct_map_unlink(&map, gone);
            } else {
                assert_ptr_equal(ct_map_remove(&map, &key, sizeof(key)), gone);
            }
            assert_ptr_equal(gone, (void *)model[key]);
            count -= gone != NULL;
            model[key] = NULL;
            ct_free(gone);
        }
        assert_ptr_equal(find(&map, key), (void *)model[key]);
        assert_int_equal(ct_map_count(&map), count);
        in_rehash += rehash_under_way(&map);
    }
    /* The run is worth nothing if it never met a rehash. */
    assert_true(in_rehash > 1000);
    for (uint32_t key = 0; key < KEYS; key++) {
        assert_ptr_equal(find(&map, key), (void *)model[key]);
    }
    fini_all(&map, count);
}

static void test_rehash_is_spread_over_calls(void **state)
{
    (void)state;
    struct ct_map map;
    ct_map_init(&map, entry_eq);
    uint32_t n = fill_until_rehash(&map);
    assert_true(rehash_under_way(&map));
    size_t calls = 0;
    while (rehash_under_way(&map)) {
        size_t before = map.moved;
        assert_non_null(find(&map, 0));
        assert_true(map.moved <= before + 2);
        calls++;
    }
    assert_true(calls > 10);
    for (uint32_t key = 0; key < n; key++) {
        assert_non_null(find(&map, key));
    }
    /* Load stays at or below one node a bucket. */
    assert_true(ct_map_count(&map) <= map.table[0].mask + 1);
    fini_all(&map, n);
}

struct sweep {
    struct ct_map *map;
    size_t visited;
    uint32_t drop_odd;
};

static void visit(struct ct_map_node *node, void *data)
{
    struct sweep *sweep = data;
    struct entry *entry = (struct entry *)node;
    assert_int_equal(entry->visits++, 0);
    sweep->visited++;
    /* Looking up any key in between is legal. */
    assert_non_null(find(sweep->map, entry->key));
    if (sweep->drop_odd && entry->key % 2 == 1) {
        assert_ptr_equal(ct_map_remove(sweep->map, &entry->key, sizeof(entry->key)), node);
        ct_free(entry);
    }
}

static void test_each_visits_once_and_may_remove_the_given_node(void **state)
{
    (void)state;
    struct ct_map map;
    ct_map_init(&map, entry_eq);
    uint32_t n = fill_until_rehash(&map);
    struct sweep sweep = {.map = &map, .drop_odd = 1};
    assert_true(rehash_under_way(&map));
    ct_map_each(&map, visit, &sweep);
    assert_int_equal(sweep.visited, n);
    assert_int_equal(ct_map_count(&map), (n + 1) / 2);
    for (uint32_t key = 0; key < n; key++) {
        assert_int_equal(find(&map, key) != NULL, key % 2 == 0);
    }
    /* The rehash goes on afterwards. */
    for (size_t i = 0; i < n && rehash_under_way(&map); i++) {
        (void)find(&map, 0);
    }
    assert_false(rehash_under_way(&map));
    fini_all(&map, (n + 1) / 2);
}

static void test_drained_map_is_usable(void **state)
{
    (void)state;
    struct ct_map map;
    ct_map_init(&map, entry_eq);
    uint32_t n = fill_until_rehash(&map);
    size_t freed = 0;
    ct_map_drain(&map, free_entry, &freed);
    assert_int_equal(freed, n);
    assert_null(find(&map, 0));
    (void)insert_new(&map, 7);
    assert_non_null(find(&map, 7));
    fini_all(&map, 1);
}

static void test_keys_with_equal_prefix_and_length_differ(void **state)
{
    (void)state;
    struct ct_map map;
    ct_map_init(&map, entry_eq);
    (void)insert_new(&map, 0x01000000);
    assert_null(ct_map_find(&map, "\0\0\0", 3));
    assert_null(find(&map, 0));
    assert_non_null(find(&map, 0x01000000));
    fini_all(&map, 1);
}

/* The first table's allocation fails the insert; a failed growth only means longer chains. */
static int insert_many(void *data)
{
    (void)data;
    struct ct_map map;
    static struct entry entries[200];
    ct_map_init(&map, entry_eq);
    int rc = 0;
    size_t held = 0;
    for (uint32_t i = 0; rc == 0 && i < 200; i++) {
        entries[i] = (struct entry){.key = i};
        rc = ct_map_insert(&map, &entries[i].node, &i, sizeof(i));
        held += rc == 0;
        assert_int_equal(ct_map_count(&map), held);
    }
    for (uint32_t i = 0; i < held; i++) {
        assert_ptr_equal(find(&map, i), (void *)&entries[i]);
    }
    ct_map_fini(&map);
    return rc;
}

static void test_a_map_survives_lack_of_memory(void **state)
{
    (void)state;
    ct_fault_begin(0);
    assert_int_equal(insert_many(NULL), CT_ENOMEM);
    assert_int_equal(ct_fault_end(), 0);
    /* 16 -> 32 -> 64 -> 128 -> 256 buckets */
    assert_int_equal(ct_fault_sweep(insert_many, NULL, 1), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_map_finds_and_removes_nothing),
        cmocka_unit_test(test_random_operations_match_the_model),
        cmocka_unit_test(test_rehash_is_spread_over_calls),
        cmocka_unit_test(test_each_visits_once_and_may_remove_the_given_node),
        cmocka_unit_test(test_drained_map_is_usable),
        cmocka_unit_test(test_keys_with_equal_prefix_and_length_differ),
        cmocka_unit_test(test_a_map_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("map", tests, NULL, NULL);
}
