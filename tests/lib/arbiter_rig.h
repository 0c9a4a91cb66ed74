/* SPDX-License-Identifier: Apache-2.0
 *
 * The arbiter of a job against functions that stand in for the client of etcd. They keep what is
 * called, and the test carries it out on a store of one key, or fails it. A test that must not wait
 * moves the clock. The test is linked with --wrap of clock_gettime() and of the client's functions.
 */
#ifndef CT_TESTS_LIB_ARBITER_RIG_H
#define CT_TESTS_LIB_ARBITER_RIG_H

#include "tests/lib/ct_test.h"

#include "rendezvous/etcd/arbiter_uv.h"
#include "rendezvous/etcd/etcd_uv.h"

#define LEASE_MS 600 /* a beat is a sixth of it */
#define SELF 7
#define OTHER 9
#define TERM UINT64_C(0x100000007)
#define LATER UINT64_C(0x200000009)
#define MAX_CALLS 4

enum rig_call_kind { READ, WRITE, GRANT, KEEP };

struct rig_call {
    enum rig_call_kind what;
    int64_t revision, lease, sent_ns;
    char *value; /* of a WRITE */
    ct_etcd_done done;
    void *data;
};

struct arbiter_rig {
    uv_loop_t loop;
    struct ct_etcd_arbiter *arbiter;

    /* etcd */
    char *value; /* NULL = the key does not exist */
    const char *cluster;
    int64_t revision, mod_revision, value_lease, lease, next_lease;
    struct rig_call calls[MAX_CALLS]; /* without an answer, in order */
    int num_calls;
    bool called; /* there is one */

    /* what the arbiter has said */
    int met, answers, served, unserved, bound, troubles, ends, refusals;
    struct ct_vote_answer answer;
    struct ct_voter host; /* of the answer */
    uint64_t version;     /* the last one that was served */
    char trouble[300];
    enum { NEVER, ON_MET, ON_ANSWER, ON_TROUBLE, ON_END } closes;
    uint64_t void_id;
    uint64_t dead_id;
};

extern struct arbiter_rig *rig;

/* Somebody writes; NULL deletes the key. */
void put(const char *value);
void put_state(const struct ct_arbiter_state *state);
/* Runs the loop until there is a call, which must be of this kind. */
void await_call(enum rig_call_kind what);
/* The first call fails. */
void lose(int rc, const char *why);
/* Does the first call, which is of this kind. */
void carry_out(enum rig_call_kind what);
void move_clock(int64_t ms);
/* Set-up and tear-down of a test. */
int begin(void **state);
int end(void **state);
/* The agent SELF asks in this term. */
void ask(uint64_t term);
/* It hosts in TERM, with this version of its record. */
void host(uint64_t version);
/* Another host, or another candidate, in a later term. */
struct ct_arbiter_state other(bool hosts);
/* It hosts, and the arbiter has pledged the first version. */
void begin_hosting(void);

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

#endif
