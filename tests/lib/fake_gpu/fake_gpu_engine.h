/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the stand-in for a GPU share: streams on which functions of the host are
 * queued.
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

/* What every function that a program calls begins with: ranks may be threads, and the stand-in
 * serves one at a time. */
int fake_enter(void);
void fake_leave(const int *held);
#define FAKE_ALONE __attribute__((cleanup(fake_leave), unused)) const int alone_ = fake_enter()

/* Nothing can go on before another thread or process queues something: waits a little for that.
 * False when there is none, or none has for seconds. */
bool fake_await_others(void);

#define NODES_MAX 4096
#define EDGES_MAX 8

/* A set of nodes that what comes next waits for. */
struct frontier {
    int node[EDGES_MAX];
    int count;
};

struct graph_node {
    fake_run_fn run;
    fake_can_fn can; /* NULL = always */
    bool collective;
    int priority; /* of the stream */
    void *data;
    struct frontier after;
};

/* cudaGraph_t points to one of these, too. */
struct CUgraph_st {
    struct graph_node nodes[NODES_MAX];
    int count, holders;
    bool broken, ended;
    pthread_t owner; /* who captures it */
    int *held;       /* count of the communicator whose collectives are in it; NULL = none are */
};

struct CUgraphExec_st {
    struct CUgraph_st *graph;
};

/* cudaEvent_t */
struct CUevent_st {
    uint64_t asked, done;       /* recordings */
    struct CUgraph_st *capture; /* the last recording was into this */
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
    bool *done; /* nodes of the graph */
    int left;   /* those that are not */
    bool collective;
};

/* cudaStream_t */
struct CUstream_st {
    struct CUstream_st *next;
    struct op *head, *tail;
    struct CUgraph_st *capture;
    struct frontier frontier;
    bool origin; /* of its capture */
    int device, priority;
};

extern struct CUstream_st *fake_streams; /* all but the default one */

struct CUstream_st *fake_stream_of(cudaStream_t stream);
struct op *fake_append(struct CUstream_st *s, enum op_kind kind);
uint32_t fake_draw(void);

/* A node that can run, drawn among them, or -1; and what runs it. In any order that the edges
 * allow. */
int fake_pick_node(const struct op *op);
void fake_run_node(struct op *op, int node);
void fake_drop_graph(struct CUgraph_st *g); /* the last holder's drop frees it */

void fake_rule(bool kept, const char *text);

/* True when the script lets this call fail. */
bool fake_fails(void);

/* Of a launch, until cudaGetLastError() tells it. */
extern cudaError_t fake_last_error;

/* Queues run(copy of data), or puts it into the graph that is being captured. */
void fake_queue(cudaStream_t stream, fake_run_fn run, const void *data, size_t bytes);

/* The same for what can run only when can(copy of data) says so; can may be NULL. */
void fake_queue_when(cudaStream_t stream, fake_can_fn can, fake_run_fn run, const void *data,
                     size_t bytes);
bool fake_is_capturing(cudaStream_t stream);

/* The last thing that was queued is a collective: a graph that gets it keeps the communicator,
 * whose graphs `held` counts. */
void fake_count_collective(cudaStream_t stream, int *held);

/* The device of the calling thread, or -1. */
int fake_current_device(void);
void fake_be_on(int device);

/* Wakes who is in fake_await_others(), or waits for this. */
void fake_tell_others(void);
void fake_await_told(void);

/* Nothing is queued on any stream. */
bool fake_is_idle(void);

/* Before whatever waits, allocates or frees: not legal while this thread captures. */
bool fake_may_block(const char *what);

/* Before whatever waits for the device until it is done: sees that it would, were all peers gone.
 * NULL = for all streams of the device. */
void fake_wait_needs_no_peer(struct CUstream_st *s, const struct CUevent_st *event,
                             const char *what);
extern bool fake_stalled;  /* no collective goes on */
extern uint64_t fake_done; /* pieces of work that have run, on any stream */

/* One operation of any stream that can go on; false when none can. */
bool fake_turn(void);

/* Does all that is queued on `stream`, or on all streams for fake_all. */
void fake_drain(cudaStream_t stream);
void fake_drain_all(void);

/* Drops what is queued: the communicator in it was aborted. */
void fake_drop_all(void);

#endif
