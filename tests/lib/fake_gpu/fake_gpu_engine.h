/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the fake GPU share: streams, on which functions of the host are queued.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_GPU_ENGINE_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_GPU_ENGINE_H

#include "tests/lib/fake_gpu/fake_gpu.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*fake_run_fn)(const void *data);
typedef bool (*fake_can_fn)(const void *data);

/* Every function that a program calls begins with FAKE_ALONE. Ranks may be threads, and the fake
 * GPU serves one thread at a time. */
int fake_enter(void);
void fake_leave(const int *held);
#define FAKE_ALONE __attribute__((cleanup(fake_leave), unused)) const int alone_ = fake_enter()

/* Waits a short time until another thread or process queues something, because nothing can run
 * before. Returns false if there is no other one, or if none has queued anything for seconds. */
bool fake_await_others(void);

#define NODES_MAX 4096
#define EDGES_MAX 8
#define HELD_MAX 8

/* The nodes for which the next node waits. */
struct frontier {
    int node[EDGES_MAX];
    int count;
};

struct graph_node {
    fake_run_fn run;
    fake_can_fn can; /* may it run now? NULL = always */
    bool collective;
    int priority; /* that of the stream */
    void *data;
    struct frontier after;
};

/* What graphs need to know of a communicator. */
struct fake_hold {
    int graphs;   /* how many have its collectives */
    bool aborted; /* its kernels end, even if they wait for a peer */
};

/* cudaGraph_t points to one of these, too. */
struct CUgraph_st {
    struct graph_node nodes[NODES_MAX];
    int count, holders;
    bool broken, ended;
    pthread_t owner;                  /* the thread that captures it */
    struct fake_hold *held[HELD_MAX]; /* of each communicator with a collective in it */
    int held_count;
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

/* cudaEvent_t */
struct CUevent_st {
    uint64_t asked, done;       /* recordings that are queued, and those that have run */
    struct CUgraph_st *capture; /* the last recording went into this graph; NULL = into none */
    struct frontier frontier;
};

enum op_kind { OP_RUN, OP_RECORD, OP_WAIT, OP_GRAPH };

struct op {
    struct op *next;
    enum op_kind kind;
    fake_run_fn run;
    fake_can_fn can;
    void *data;
    struct CUevent_st *event;
    uint64_t number;
    struct CUgraph_st *graph;
    bool *done; /* which nodes of the graph have run */
    int left;   /* how many have not */
    bool collective;
};

/* cudaStream_t */
struct CUstream_st {
    struct CUstream_st *next;
    struct op *head, *tail;
    struct CUgraph_st *capture;
    struct frontier frontier;
    bool origin; /* the capture began on this stream */
    int device, priority;
};

extern struct CUstream_st *fake_streams; /* all but the default stream */

struct CUstream_st *fake_stream_of(cudaStream_t stream);
struct op *fake_append(struct CUstream_st *s, enum op_kind kind);
uint32_t fake_draw(void);

/* Draws one of the nodes that can run, in any order that the edges allow; -1 if there is none. */
int fake_pick_node(const struct op *op);
void fake_run_node(struct op *op, int node);
void fake_drop_graph(struct CUgraph_st *g); /* the last holder's drop frees it */

/* Counts a violation, described by `text`, unless `kept`. */
void fake_rule(bool kept, const char *text);

/* True if the script makes this call fail. */
bool fake_fails(void);

/* The error of a launch, until cudaGetLastError() returns it. */
extern cudaError_t fake_last_error;

/* Queues run(copy of data), or puts it into the graph that is being captured. */
void fake_queue(cudaStream_t stream, fake_run_fn run, const void *data, size_t bytes);

/* The same for work that can run only when can(copy of data) is true; NULL = always. */
void fake_queue_when(cudaStream_t stream, fake_can_fn can, fake_run_fn run, const void *data,
                     size_t bytes);
bool fake_is_capturing(cudaStream_t stream);

/* Says that the work queued last is a collective. If it was captured, the graph keeps the
 * communicator, which counts such graphs in `held`. */
void fake_count_collective(cudaStream_t stream, struct fake_hold *held);

/* The device of the calling thread, or -1. */
int fake_current_device(void);
void fake_be_on(int device);

/* Wakes the threads in fake_await_others() and fake_await_told(). */
void fake_tell_others(void);
void fake_await_told(void);

/* True if nothing is queued on any stream. */
bool fake_is_idle(void);

/* Call it before anything that waits, allocates or frees. False, and a violation, if this thread
 * captures. */
bool fake_may_block(const char *what);

/* Call it before the host waits for the device without a deadline. Checks that this wait would end
 * even if all peers were gone. NULL for both = all streams of the device. */
void fake_wait_needs_no_peer(struct CUstream_st *s, const struct CUevent_st *event,
                             const char *what);
/* Waits for all replays of a graph. The same holds, but for communicators that are aborted. */
void fake_await_replays(const struct CUgraph_st *g);
extern bool fake_stalled;  /* while this is true, no collective runs */
extern uint64_t fake_done; /* number of pieces of work that have run, on any stream */

/* Runs one operation of any stream; false if none can run. */
bool fake_turn(void);

/* Runs everything that is queued on `stream`, or on all streams as far as it can run. */
void fake_drain(cudaStream_t stream);
void fake_drain_all(void);

/* Drops everything that is queued, because a communicator in it was aborted. */
void fake_drop_all(void);

#endif
