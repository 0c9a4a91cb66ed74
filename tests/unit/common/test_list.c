/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a list keeps its order, and that a link can be removed twice.
 */
#include "common/list.h"
#include "tests/lib/ct_test.h"

struct item {
    int value;
    struct ct_list link;
};

static int value_of(const struct ct_list *link)
{
    return CT_CONTAINER_OF(link, struct item, link)->value;
}

/* The values front to back as decimal digits, checked for the same order back to front. */
static int digits(const struct ct_list *head)
{
    int forward = 0, backward = 0, unit = 1;
    for (const struct ct_list *l = head->next; l != head; l = l->next) {
        forward = forward * 10 + value_of(l);
    }
    for (const struct ct_list *l = head->prev; l != head; l = l->prev, unit *= 10) {
        backward += value_of(l) * unit;
    }
    assert_int_equal(forward, backward);
    return forward;
}

static void test_items_keep_their_order_when_others_go(void **state)
{
    (void)state;
    struct ct_list head;
    struct item items[4];
    ct_list_init(&head);
    assert_true(ct_list_empty(&head));
    for (int i = 0; i < 4; i++) {
        items[i].value = i + 1;
        ct_list_init(&items[i].link);
        ct_list_append(&head, &items[i].link);
    }
    assert_false(ct_list_empty(&head));
    assert_int_equal(digits(&head), 1234);
    ct_list_remove(&items[1].link);
    assert_int_equal(digits(&head), 134);
    ct_list_remove(&items[0].link);
    ct_list_remove(&items[3].link);
    assert_int_equal(digits(&head), 3);
    ct_list_append(&head, &items[0].link);
    assert_int_equal(digits(&head), 31);
    ct_list_remove(&items[2].link);
    ct_list_remove(&items[0].link);
    assert_true(ct_list_empty(&head));
}

static void test_removing_twice_is_legal(void **state)
{
    (void)state;
    struct ct_list head;
    struct item a = {.value = 1}, b = {.value = 2};
    ct_list_init(&head);
    ct_list_init(&a.link);
    ct_list_remove(&a.link);
    ct_list_append(&head, &a.link);
    ct_list_append(&head, &b.link);
    ct_list_remove(&a.link);
    ct_list_remove(&a.link);
    assert_true(ct_list_empty(&a.link));
    assert_int_equal(digits(&head), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_keep_their_order_when_others_go),
        cmocka_unit_test(test_removing_twice_is_legal),
    };
    return cmocka_run_group_tests_name("list", tests, NULL, NULL);
}
