/* SPDX-License-Identifier: Apache-2.0
 *
 * Node ranks from wishes and from the last world, and the workers' ranks from them.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/members/members_rank.h"

#include <stdio.h>

#define MAX 4

struct node {
    const char *host;
    int wish, had; /* -1 = none */
};

/* Numbers the nodes, which then are "host host ..." by node rank. */
static void expect_order(const struct node *nodes, int n, const char *want)
{
    struct ct_member members[MAX];
    struct ct_member *list[MAX];
    char got[64] = "";
    for (int i = 0; i < n; i++) {
        members[i] = (struct ct_member){.host = (char *)nodes[i].host,
                                        .wish = nodes[i].wish,
                                        .node_rank = nodes[i].had,
                                        .order = (uint64_t)i};
        list[i] = &members[i];
    }
    members_rank_nodes(list, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(list[i]->node_rank, i);
        size_t used = strlen(got);
        (void)snprintf(got + used, sizeof(got) - used, "%s%s", i > 0 ? " " : "", list[i]->host);
    }
    assert_string_equal(got, want);
}

#define ORDER(want, ...)                             \
    expect_order((const struct node[]){__VA_ARGS__}, \
                 (int)(sizeof((const struct node[]){__VA_ARGS__}) / sizeof(struct node)), want)
#define NODE(...)   \
    {               \
        __VA_ARGS__ \
    }

static void test_without_wishes_host_names_decide(void **state)
{
    (void)state;
    ORDER("n2 n9 n10", NODE("n10", -1, -1), NODE("n9", -1, -1), NODE("n2", -1, -1));
    ORDER("n1 n1", NODE("n1", -1, -1), NODE("n1", -1, -1));
}

static void test_a_wish_that_is_free_is_met(void **state)
{
    (void)state;
    ORDER("b c a", NODE("a", 2, -1), NODE("b", -1, -1), NODE("c", -1, -1));
    /* The first of two that wish for one. */
    ORDER("a b", NODE("a", 0, -1), NODE("b", 0, -1));
}

static void test_wishes_with_gaps_keep_their_order(void **state)
{
    (void)state;
    ORDER("b a", NODE("a", 7, -1), NODE("b", 5, -1));
    ORDER("b c a", NODE("a", 7, -1), NODE("b", 0, -1), NODE("c", 3, -1));
}

static void test_survivors_keep_their_numbers(void **state)
{
    (void)state;
    ORDER("x b c", NODE("c", -1, 2), NODE("b", -1, 1), NODE("x", -1, -1));
    /* A newcomer that wishes for a survivor's number gets a free one. */
    ORDER("a x", NODE("x", 0, -1), NODE("a", -1, 0));
    /* The world shrinks: they keep their order alone. */
    ORDER("a c", NODE("c", -1, 2), NODE("a", -1, 0));
}

static void test_ranks_are_sums_over_the_nodes_before(void **state)
{
    struct ct_member members[3] = {{.role = (char *)"t", .node_rank = 0, .workers = 2},
                                   {.role = (char *)"e", .node_rank = 1, .workers = 1},
                                   {.role = (char *)"t", .node_rank = 2, .workers = 4}};
    struct ct_member *list[3] = {&members[0], &members[1], &members[2]};
    static const int first[] = {0, 2, 3}, of_role[] = {0, 0, 2}, size[] = {6, 1, 6};
    (void)state;
    assert_int_equal(members_rank_workers(list, 3), 7);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(list[i], &members[i]);
        assert_int_equal(members[i].first_rank, first[i]);
        assert_int_equal(members[i].first_role_rank, of_role[i]);
        assert_int_equal(members[i].role_size, size[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_wishes_host_names_decide),
        cmocka_unit_test(test_a_wish_that_is_free_is_met),
        cmocka_unit_test(test_wishes_with_gaps_keep_their_order),
        cmocka_unit_test(test_survivors_keep_their_numbers),
        cmocka_unit_test(test_ranks_are_sums_over_the_nodes_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
