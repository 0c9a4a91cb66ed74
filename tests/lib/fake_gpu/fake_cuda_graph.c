/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs of the fake GPU (tests/lib/fake_gpu/fake_gpu.h): capturing them, and running their nodes.
 */
#include "tests/lib/fake_gpu/fake_gpu_engine.h"

#include <stdlib.h>

void fake_drop_graph(struct CUgraph_st *g)
{
    if (--g->holders > 0) {
        return;
    }
    for (int i = 0; i < g->count; i++) {
        free(g->nodes[i].data);
    }
    fake.holding -= g->held_count > 0;
    for (int i = 0; i < g->held_count; i++) {
        g->held[i]->graphs--;
    }
    free(g);
}

static bool contains(const bool *done, const struct frontier *f)
{
    for (int i = 0; i < f->count; i++) {
        if (!done[f->node[i]]) {
            return false;
        }
    }
    return true;
}

int fake_pick_node(const struct op *op)
{
    const struct CUgraph_st *g = op->graph;
    int ready = 0, chosen = -1;
    for (int i = 0; i < g->count; i++) {
        const struct graph_node *n = &g->nodes[i];
        if (!op->done[i] && contains(op->done, &n->after) && !(n->collective && fake_stalled) &&
            (n->can == NULL || n->can(n->data)) && fake_draw() % (unsigned)++ready == 0) {
            chosen = i;
        }
    }
    fake.widest = ready > fake.widest ? ready : fake.widest;
    return chosen;
}

void fake_run_node(struct op *op, int node)
{
    const struct graph_node *n = &op->graph->nodes[node];
    fake_done++;
    n->run(n->data);
    op->done[node] = true;
    op->left--;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    FAKE_ALONE;
    fake_rule(stream != NULL, "the default stream cannot be captured");
    fake_rule(mode == cudaStreamCaptureModeThreadLocal,
              "a capture that forbids other threads to allocate");
    if (stream->capture != NULL || fake_fails()) {
        return cudaErrorIllegalState;
    }
    stream->capture = calloc(1, sizeof *stream->capture);
    stream->capture->holders = 1;
    stream->capture->owner = pthread_self();
    stream->frontier = (struct frontier){0};
    stream->origin = true;
    fake.capturing++;
    return cudaSuccess;
}

/* Would the next work on the stream of origin wait for every node of the graph? */
static bool all_joined(const struct CUgraph_st *g, const struct frontier *last)
{
    bool reached[NODES_MAX] = {false};
    for (int i = 0; i < last->count; i++) {
        reached[last->node[i]] = true;
    }
    for (int i = g->count; i-- > 0;) { /* edges go from later nodes to earlier ones */
        if (!reached[i]) {
            return false;
        }
        for (int k = 0; k < g->nodes[i].after.count; k++) {
            reached[g->nodes[i].after.node[k]] = true;
        }
    }
    return true;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    FAKE_ALONE;
    struct CUgraph_st *g = stream->capture;
    *graph = NULL;
    fake_rule(g != NULL && stream->origin && pthread_equal(g->owner, pthread_self()),
              "the end of a capture that was not begun here");
    if (g == NULL) {
        return cudaErrorIllegalState;
    }
    bool joined = all_joined(g, &stream->frontier);
    for (struct CUstream_st *s = fake_streams; s != NULL; s = s->next) {
        s->origin = s->capture == g ? false : s->origin;
        s->capture = s->capture == g ? NULL : s->capture;
    }
    fake.capturing--;
    g->ended = true;
    if (g->broken || !joined || fake_fails()) {
        cudaError_t status =
            g->broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
        fake_drop_graph(g);
        return status;
    }
    fake.graphs++;
    *graph = g;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    FAKE_ALONE;
    (void)nodes;
    *count = (size_t)graph->count;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    FAKE_ALONE;
    for (int i = 1; i < graph->count; i++) {
        fake_rule(graph->nodes[i].priority == graph->nodes[0].priority ||
                      (flags & cudaGraphInstantiateFlagUseNodePriority) != 0,
                  "a graph that gives up its streams' priorities");
    }
    if (fake_fails()) {
        return cudaErrorMemoryAllocation;
    }
    *exec = calloc(1, sizeof **exec);
    (*exec)->graph = graph;
    graph->holders++;
    fake.execs++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    FAKE_ALONE;
    fake_drop_graph(graph);
    fake.graphs--;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    FAKE_ALONE;
    fake_await_replays(exec->graph);
    fake_drop_graph(exec->graph);
    free(exec);
    fake.execs--;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    FAKE_ALONE;
    fake_rule(fake_stream_of(stream)->capture == NULL, "a graph launched into a capture");
    if (fake_fails()) {
        return cudaErrorUnknown;
    }
    exec->graph->holders++;
    struct op *op = fake_append(fake_stream_of(stream), OP_GRAPH);
    op->graph = exec->graph;
    op->left = exec->graph->count;
    op->done = calloc((size_t)op->left + 1, sizeof *op->done);
    fake.graph_launches++;
    return cudaSuccess;
}
