/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages between agents and the membership core, and their form on the wire. Pure.
 *
 * A frame begins with four bytes, big-endian: the top bit is set, the other bits are the length of
 * what follows. So the first byte is 0x80, which tells this dialect from TCPStore's and HTTP's.
 * Then comes one JSON object with the member "type". Unknown members are ignored, unknown types are
 * an error.
 *
 * A connection begins with the proof that both ends have the job's token
 * (rendezvous/admission/token.h):
 *
 *     agent:  {"type":"open","version":3,"nonce":"<64 hex digits>"}
 *     server: {"type":"challenge","nonce":"...","answer":"..."}   no answer without a token
 *     agent:  {"type":"answer","answer":"..."}                    the same
 *     server: {"type":"accepted","address":"10.0.0.6"}            the address it sees
 *
 * The host of a job that outlives it adds "id", "term" and "host" to the last one.
 *
 * At any time the server may send {"type":"refused","reason":"...","code":N} and end the
 * connection. The messages below follow the proof. With a token, every frame after the agent's
 * answer, in either direction, ends with a number and a MAC (rendezvous/control/frame_mac.h).
 */
#ifndef CT_RENDEZVOUS_CONTROL_CONTROL_H
#define CT_RENDEZVOUS_CONTROL_CONTROL_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/control/failure_history.h"
#include "rendezvous/control/hang_vote.h"
#include "rendezvous/control/query.h"
#include "rendezvous/control/restarts.h"
#include "rendezvous/control/stands.h"
#include "rendezvous/control/worker_rows.h"
#include "rendezvous/election/election.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_CONTROL_VERSION 3
#define CT_CONTROL_FIRST_BYTE 0x80
#define CT_CONTROL_HEADER 4

/* Bytes of one frame, header included. A failure history always fits: it leaves out long texts of
 * old failures where there is no room. */
#define CT_CONTROL_MAX_FRAME ((size_t)1 << 20)
/* Bytes of a frame before the peer has proved the token. */
#define CT_CONTROL_MAX_GREETING ((size_t)1024)
/* Bytes of the longest JOIN: every byte of its texts is escaped. */
#define CT_CONTROL_MAX_JOIN ((size_t)8192)
/* Bytes of the longest message of a node with so many workers: the texts of a failure with every
 * byte escaped, or a row for each worker with every number at its longest. */
#define CT_CONTROL_MAX_OF_NODE(workers) ((size_t)200 * 1024 + (size_t)(workers)*256)
/* JSON values of one frame: a little more than the longest beat has. They are limited, because a
 * value takes far more memory and time than its bytes suggest. */
#define CT_CONTROL_MAX_VALUES ((size_t)16 * CT_MAX_NODE_WORKERS)

/* The longest timeout in milliseconds: ten years, so that sums of nanoseconds cannot overflow. */
#define CT_CONTROL_MAX_MS INT64_C(315360000000)

#define CT_RUN_ID_MAX 256
/* Bytes of the text with the ports of a job: 16 names of 32 bytes, with numbers. */
#define CT_CONTROL_PORTS_MAX 680
#define CT_ROLE_MAX 128
/* Nodes of one job; 10,000 are simulated. */
#define CT_MAX_NODES 65536
/* Workers of one job; libctworker has the same limit. */
#define CT_MAX_WORLD (1 << 20)

enum ct_msg_type {
    /* the proof */
    CT_MSG_OPEN,
    CT_MSG_CHALLENGE,
    CT_MSG_ANSWER,
    CT_MSG_ACCEPTED,
    CT_MSG_REFUSED, /* also after the proof, if the membership does not take this agent */
    /* agent to server */
    CT_MSG_JOIN,     /* once, first */
    CT_MSG_SERVING,  /* node rank 0: the workers' store is empty and listens on `port` */
    CT_MSG_STARTED,  /* all workers of the generation run */
    CT_MSG_FAILED,   /* a worker here has failed, the first one here in this generation */
    CT_MSG_FINISHED, /* all workers here have exited with 0 */
    CT_MSG_STOPPED,  /* nothing of the generation is left here */
    CT_MSG_BEAT,     /* the sender is alive; both ways */
    CT_MSG_PREEMPT,  /* a signal has asked this node to end; from the server: it asks the whole job
                        to end */
    CT_MSG_LEAVE,    /* the agent ends; no restart follows if the job is over or preempted */
    CT_MSG_GUEST,    /* instead of JOIN, with a token: while the channel is open, workers at the
                        agent's address may use this store */
    CT_MSG_RESULT,   /* what a QUERY has asked for, or why there is none */
    CT_MSG_STANDS,   /* where the workers here stand; the answer to a verdict that `asks` */
    CT_MSG_PLEDGE,   /* the agent's record is now the one of this term and version */
    /* agent to agent (rendezvous/election/election.h) */
    CT_MSG_ASK,  /* who is the host, and do I have your vote? */
    CT_MSG_VOTE, /* the answer */
    /* server to agent */
    CT_MSG_WAITING, /* the world is not complete; `text` says who is missing */
    CT_MSG_SPARE,   /* the world is full; wait here */
    CT_MSG_WORLD,   /* begin: your place in the generation */
    CT_MSG_STOP,    /* the generation is over: stop the workers, answer STOPPED */
    CT_MSG_OVER,    /* the job is over; answer LEAVE and end with `exit_code` */
    CT_MSG_QUERY,   /* tell something of a worker; only to an agent whose JOIN had `queries` */
    CT_MSG_RECORD,  /* what is decided or proposed; answer PLEDGE. Only to an agent with `voter` */
    CT_MSG_TYPES,
};

/* How a node is checked with all others before a generation: with --preflight=first or each, or
 * with --preflight-only. */
enum ct_join_preflight {
    CT_JOIN_PREFLIGHT_NONE,
    CT_JOIN_PREFLIGHT_FIRST,
    CT_JOIN_PREFLIGHT_EACH,
    CT_JOIN_PREFLIGHT_ONLY,
    CT_JOIN_PREFLIGHTS,
};

/* What an agent tells about its node, and about the job as it was started there. */
struct ct_msg_join {
    char run_id[CT_RUN_ID_MAX];
    char host[CT_HOST_MAX]; /* the name that the machine has for itself */
    char role[CT_ROLE_MAX];
    int node_rank; /* the rank that it wants; -1 = any */
    int workers;   /* that it will start */
    int64_t pid;   /* of ctrun */
    bool hosts;    /* it is the one that hosts the store (in the same process) */
    bool queries;  /* it understands QUERY; an older ctrun does not */
    bool stands;   /* it answers a verdict that `asks`; an older ctrun does not */
    /* The parameters of the job. Those of the ctrun that hosts the store count, or of the first one
     * that joins; all others must send the same. */
    int min_nodes, max_nodes, spares;
    int max_restarts;
    int preflight;        /* enum ct_join_preflight; NONE for an older ctrun */
    int64_t settle_ms;    /* how long to wait for more nodes after min_nodes are there; --rdzv-conf
                             last_call_timeout */
    int64_t join_ms;      /* how long a world may take to form; join_timeout */
    int64_t heartbeat_ms; /* silence of an agent that counts as its death */
    struct ct_restart_limits limits;
    /* This life of the agent, and where it listens for other agents. Its address is "" here: the
     * server sees it. An id of 0: it can neither vote nor host. */
    struct ct_voter voter;
    uint64_t record_term, record_version; /* of the record that it has; 0 = it has none */
};

struct ct_msg_world {
    int node_rank, node_count;
    int first_rank, world_size;
    int first_role_rank, role_size; /* among the workers of the agent's role */
    int restarts;                   /* of the budget that are used up */
    bool serve; /* node rank 0: open or empty the workers' store, answer SERVING; begin at once */
    /* For the node that serves it is "", since that node knows its address. For others "" means the
     * address of the job's store. */
    char master_addr[CT_HOST_MAX];
    uint16_t master_port;
    /* The address of the store's machine to which the first agent of another machine connected; ""
     * = there is none. Agents on that machine may have used an address that others cannot reach. */
    char store_addr[CT_HOST_MAX];
    char ports[CT_CONTROL_PORTS_MAX]; /* also in SERVING: the ports that the machine of rank 0 has
                                         reserved for programs, "NAME=PORT ..."; "" = none */
};

struct ct_msg_query {
    int id; /* the answer has the same */
    int rank;
    /* What is asked. A text, because an agent must be able to refuse a kind that is newer than it.
     */
    char kind[CT_QUERY_KIND_MAX];
};

#define CT_WARM_WHY_TEXT_MAX ((size_t)200)

/* What becomes of the spares of --warm. */
enum ct_warm_making {
    CT_WARM_MAKING_UNKNOWN, /* an older ctrun does not say */
    CT_WARM_MAKING_DONE,    /* all that are wanted are ready */
    CT_WARM_MAKING_NOW,
    CT_WARM_MAKING_LATER,  /* when all workers of a generation run */
    CT_WARM_MAKING_MEMORY, /* memory allows no more in this generation */
    CT_WARM_MAKING_OFF,    /* they cannot be made: `off` says why */
    CT_WARM_MAKINGS,
};

/* In status and reports: "unknown", "ready", "making", "waiting", "memory" and "off". */
const char *ct_msg_making_name(enum ct_warm_making making);

/* What an agent keeps ready with --warm. */
struct ct_warm_facts {
    int wanted;  /* spares; 0 = it has no --warm */
    int ready;   /* of them */
    int workers; /* of this generation that were spares */
    int mib;     /* of memory that one spare takes alone; 0 = not known */
    /* Why there are none; "" = there are, or there will be. */
    char off[CT_WARM_WHY_TEXT_MAX];
    /* Why a spare did not become a worker of this generation, the last one of which that is true.
     */
    char cold[CT_WARM_WHY_TEXT_MAX];
    enum ct_warm_making making;
};

struct ct_msg {
    enum ct_msg_type type;
    int generation;   /* SERVING to STOPPED, STANDS, WORLD, STOP, QUERY; other messages have none */
    int64_t clock_ms; /* FAILED, BEAT and PLEDGE from an agent: its monotonic clock when sent; the
                         answer to a BEAT has the same */
    int64_t lease_ms; /* the answer to a BEAT, if `has_lease`: how long from then the agent may go
                         on without another answer (docs/FAILOVER.md) */
    bool has_lease;
    struct ct_msg_join join;        /* JOIN */
    struct ct_msg_world world;      /* WORLD; `restarts` of OVER, too */
    uint16_t port;                  /* SERVING */
    char text[CT_FAILURE_WHAT_MAX]; /* REFUSED, WAITING, STOP, PREEMPT, LEAVE, OVER: why, "" = no
                                     more to say; SERVING, ACCEPTED: an address */
    int exit_code;                  /* REFUSED, OVER, LEAVE */
    int signo;                      /* PREEMPT */
    int64_t deadline_ms;            /* PREEMPT: from now until workers are killed; -1 = never */
    bool will_restart;              /* STOP: another generation follows */
    struct ct_failure failure;      /* FAILED; STOPPED: again with its texts, if `has_failure` */
    bool has_failure;
    struct ct_failure_history history; /* STOP and OVER */
    struct ct_worker_row *rows;        /* BEAT and STARTED, owned: of the workers here */
    int num_rows;
    bool has_rows;              /* without it the message says nothing about workers */
    struct ct_hang_vote still;  /* BEAT from an agent: of its workers; to it: the verdict on
                               the job, with the host of that rank in `text`, or of a
                               CT_HANG_VOTE_NAMED the reason */
    struct ct_hang_report hang; /* BEAT from an agent; absent if none stands */
    struct ct_warm_facts warm;  /* BEAT from an agent; absent if it wants no spares */
    struct ct_msg_query query;  /* QUERY; RESULT has its id alone */
    bool ok;                    /* RESULT: `result` is what was asked for, not why there is none */
    char *result; /* RESULT; STANDS: as ct_stands_encode() gives it; owned; NULL = "" */
    struct ct_job_record *record;  /* RECORD; VOTE if the asker's is older; owned; NULL = none */
    uint64_t term, record_version; /* PLEDGE; ACCEPTED has a term, if `host` is known */
    struct ct_vote_ask ask;        /* ASK */
    struct ct_vote_answer vote;    /* VOTE; its `record` and `host` are NULL, see here */
    struct ct_voter host; /* VOTE, ACCEPTED: id 0 = none is known. ACCEPTED has the id alone, and
                             the name of its machine in `join.host` */
    bool daemon;          /* ACCEPTED: that host is a ctrdzvd, which is no node of the job */
    bool has_answer;
    int version;
    unsigned char nonce[CT_NONCE_LEN], answer[CT_ANSWER_LEN];
    const struct ct_buf *frame; /* what ct_msg_encode() has given before, if the message goes to
                                   many peers; borrowed; NULL = nothing */
};

/* A message is large, so it should be on the heap and be used again. Zeroed memory is allowed. */
void ct_msg_fini(struct ct_msg *msg);

/* Appends header and JSON. CT_ENOMEM, CT_ELIMIT (frame too long). */
CT_MUST_CHECK int ct_msg_encode(const struct ct_msg *msg, struct ct_buf *out);

/* Outcome of ct_msg_decode(): the frame is not complete. */
#define CT_MSG_E_MORE 1

/* Gives the length of the frame at the front of `bytes`, header included, if it is complete.
 * Outcomes and errors as below. */
CT_MUST_CHECK int ct_msg_length(const void *bytes, size_t len, size_t max, size_t *out,
                                struct ct_err *err);

/* Reads one frame from the front of `bytes`; *used says how long it was. `max` bounds the frame.
 * Negative: CT_EPROTO (not a frame of ours), CT_ELIMIT, CT_EFORMAT (names the field), CT_ENOMEM.
 * Gives *out, which must start zeroed and is zeroed again on failure. If memory runs out while
 * cJSON parses the text, the code is CT_EFORMAT, because cJSON does not say why it stopped. */
CT_MUST_CHECK int ct_msg_decode(const void *bytes, size_t len, size_t max, struct ct_msg *out,
                                size_t *used, struct ct_err *err);

/* "join", "world", ... */
const char *ct_msg_name(enum ct_msg_type type);

#endif
