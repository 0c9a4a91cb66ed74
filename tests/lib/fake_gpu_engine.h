/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the stand-in for a GPU share: streams on which functions of the host are
 * queued.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_ENGINE_H
#define CT_TESTS_LIB_FAKE_GPU_ENGINE_H

#include "tests/lib/fake_gpu.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*fake_run_fn)(const void *data);

#define NODES_MAX 4096
#define EDGES_MAX 8

/* A set of nodes that what comes next waits for. */
struct frontier {
    int node[EDGES_MAX];
    int count;
};

struct node {
    fake_run_fn run;
    void *data;
    struct frontier after;
};

/* cudaGraph_t points to one of these, too. */
struct CUgraph_st {
    struct node nodes[NODES_MAX];
    int count, holders;
    bool broken, ended;
    bool collectives; /* there are some in it */
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
    void *data;
    struct CUevent_st *event;
    uint64_t number;
    struct CUgraph_st *graph;
};

/* cudaStream_t */
struct CUstream_st {
    struct CUstream_st *next;
    struct op *head, *tail;
    struct CUgraph_st *capture;
    struct frontier frontier;
    bool origin; /* of its capture */
};

extern struct CUstream_st *fake_streams; /* all but the default one */

struct CUstream_st *fake_stream_of(cudaStream_t stream);
struct op *fake_append(struct CUstream_st *s, enum op_kind kind);
uint32_t fake_draw(void);

/* In any order that the edges allow. */
void fake_run_graph(const struct CUgraph_st *g);
void fake_drop_graph(struct CUgraph_st *g); /* the last holder's drop frees it */

void fake_rule(bool kept, const char *text);

/* True when the script lets this call fail. */
bool fake_fails(void);

/* Queues run(copy of data), or puts it into the graph that is being captured. */
void fake_queue(cudaStream_t stream, fake_run_fn run, const void *data, size_t bytes);
bool fake_is_capturing(cudaStream_t stream);

/* A collective was queued: a graph that gets it keeps the communicator. */
void fake_count_collective(cudaStream_t stream);

/* Nothing is queued on any stream. */
bool fake_is_idle(void);

/* Before whatever waits, allocates or frees: not legal while work is captured. What the host waits
 * for may then be done. */
bool fake_may_block(const char *what);

/* Does all that is queued on `stream`, or on all streams for fake_all. */
void fake_drain(cudaStream_t stream);
void fake_drain_all(void);

/* Drops what is queued: the communicator in it was aborted. */
void fake_drop_all(void);

#endif
