/* SPDX-License-Identifier: Apache-2.0
 *
 * One change of the key space. The engine asks a write-ahead log, the journal, before each
 * change. The log may refuse it. After a restart the journal passes the changes back to the engine.
 */
#ifndef CT_RENDEZVOUS_STORE_CHANGE_H
#define CT_RENDEZVOUS_STORE_CHANGE_H

#include "rendezvous/wire/proto.h"

#include <stdbool.h>

enum ct_change_kind {
    CT_CHANGE_SET = 1, /* the key now has this value, whatever operation set it */
    CT_CHANGE_DELETE = 2,
    CT_CHANGE_PUSH = 3, /* `value` was added at the end of the queue `key` */
    CT_CHANGE_POP = 4,  /* the first value of the queue `key` is gone */
};

/* All bytes are borrowed for the call. */
struct ct_change {
    enum ct_change_kind kind;
    struct ct_bytes key, value; /* DELETE and POP have no value */
    /* The next change belongs to the same request: both happen, or neither. */
    bool more;
};

/* A write-ahead log: gets each change before it is made. */
struct ct_change_log {
    /* Called before the change is made, when nothing else can prevent it any more. A negative code
     * prevents it: nothing is changed, earlier changes of the same request are void, and the
     * client's request fails with the code. Must not call the store. */
    int (*append)(struct ct_change_log *change_log, const struct ct_change *change);
};

#endif
