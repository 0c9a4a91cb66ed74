/* SPDX-License-Identifier: Apache-2.0
 *
 * Intrusive doubly linked list with a head that is itself a link: removal needs no head and costs
 * O(1). A link that is in no list points at itself.
 */
#ifndef CT_COMMON_LIST_H
#define CT_COMMON_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct ct_list {
    struct ct_list *prev, *next;
};

#define CT_CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void ct_list_init(struct ct_list *link)
{
    link->prev = link;
    link->next = link;
}

static inline bool ct_list_empty(const struct ct_list *head)
{
    return head->next == head;
}

static inline void ct_list_append(struct ct_list *head, struct ct_list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

/* Legal on a link that is in no list. */
static inline void ct_list_remove(struct ct_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    ct_list_init(link);
}

#endif
