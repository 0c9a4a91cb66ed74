/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between two GPUs, over the stand-in for NCCL: a message of it is done only when both
 * ends have come to it, and must not change before.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/nccl_ranks.h"

extern const struct comm_nccl_module ctworker_nccl_module;

/* Floats of a message. */
#define COUNT ((size_t)100 * 1000)
#define BYTES (COUNT * sizeof(float))
#define ROUNDS 8
#define SEEDS 6
/* A deadline that passes; until then nothing else may take so long. */
#define SHORT_MS 2000
/* The same where everything may fail. */
#define SWEEP_MS 200

/* Frees what a rank has of a link and its memory, when the device is done. */
static void end(struct nccl_rank *r, struct ctw_link *link, float *a, float *b)
{
    RANK_CHECK(r, ctw_comm_sync(r->comm, NULL) == 0);
    ctw_link_free(link);
    (void)cudaFree(a);
    (void)cudaFree(b);
}

static struct ctw_link *open_link(struct nccl_rank *r, int peer)
{
    struct ctw_link *link = NULL;
    struct ct_err err = {0};
    if (ctw_link_open(r->comm, peer, BYTES, &link, &err) != 0) {
        nccl_rank_check_failed(r, __FILE__, __LINE__, err.text);
    }
    return link;
}

static void run_seeds(int size, nccl_rank_fn fn)
{
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        nccl_ranks_run(&(struct nccl_ranks){.size = size,
                                            .script = {.seed = seed, .call_turns = (int)seed % 3}},
                       fn);
    }
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Both send first; each sends from and receives into one place, again and again. */
static void send_at_once(struct nccl_rank *r)
{
    int bad = 0, peer = 1 - r->rank;
    struct ctw_link *link = open_link(r, peer);
    float *mine = nccl_rank_floats(r, COUNT), *theirs = nccl_rank_floats(r, COUNT);
    for (int i = 0; i < ROUNDS; i++) {
        /* What is overwritten right behind the send has been read. */
        nccl_rank_fill(r, mine, COUNT, (float)(10 * i + r->rank));
        RANK_CHECK(r, ctw_link_send(link, mine, BYTES, 0, NULL) == 0);
        nccl_rank_fill(r, mine, COUNT, -1);
        /* What was there before the message is read first, and the message by what comes behind. */
        nccl_rank_fill(r, theirs, COUNT, -2);
        nccl_rank_expect(r, theirs, COUNT, -2, &bad);
        RANK_CHECK(r, ctw_link_recv(link, theirs, BYTES, 0, NULL) == 0);
        nccl_rank_expect(r, theirs, COUNT, (float)(10 * i + peer), &bad);
    }
    end(r, link, mine, theirs);
    RANK_CHECK(r, bad == 0);
}

static void both_may_send_at_once(void **state)
{
    (void)state;
    run_seeds(2, send_at_once);
}

/* Two messages of a direction are two, and short ones are, too. */
static void send_lengths(struct nccl_rank *r)
{
    int bad = 0;
    struct ctw_link *link = open_link(r, 1 - r->rank);
    float *x = nccl_rank_floats(r, COUNT);
    const size_t counts[] = {1, 0, COUNT, 3, COUNT - 1, 0};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (r->rank == 0) {
            nccl_rank_fill(r, x, counts[i], (float)i);
            RANK_CHECK(r, ctw_link_send(link, x, counts[i] * sizeof *x, 0, NULL) == 0);
        } else {
            RANK_CHECK(r, ctw_link_recv(link, x, counts[i] * sizeof *x, 0, NULL) == 0);
            nccl_rank_expect(r, x, counts[i], (float)i, &bad);
        }
    }
    end(r, link, x, NULL);
    RANK_CHECK(r, bad == 0);
}

static void messages_of_any_length(void **state)
{
    (void)state;
    run_seeds(2, send_lengths);
}

/* As stages of a pipeline do it: two passes ahead at the bottom, one in the middle; between two of
 * them sums of a group. */
static void work_in_a_pipeline(struct nccl_rank *r)
{
    int bad = 0, ahead = r->all->size - 1 - r->rank;
    struct ctw_comm *group = NULL;
    struct ctw_link *below = NULL, *above = NULL;
    RANK_CHECK(r, ctw_comm_split(r->comm, r->rank, 0, &group, NULL) == 0);
    below = r->rank > 0 ? open_link(r, r->rank - 1) : NULL;
    above = ahead > 0 ? open_link(r, r->rank + 1) : NULL;
    float *up = nccl_rank_floats(r, COUNT), *down = nccl_rank_floats(r, COUNT);
    for (int i = 0; i < ROUNDS + ahead; i++) {
        if (i < ROUNDS) {
            if (below != NULL) {
                RANK_CHECK(r, ctw_link_recv(below, up, BYTES, 0, NULL) == 0);
                nccl_rank_expect(r, up, COUNT, (float)(100 * i + r->rank - 1), &bad);
            }
            nccl_rank_fill(r, up, COUNT, (float)(100 * i + r->rank));
            if (above != NULL) {
                RANK_CHECK(r, ctw_link_send(above, up, BYTES, 0, NULL) == 0);
            }
        }
        if (i >= ahead) {
            if (above != NULL) {
                RANK_CHECK(r, ctw_link_recv(above, down, BYTES, 1, NULL) == 0);
                nccl_rank_expect(r, down, COUNT, (float)(1000 + i - ahead), &bad);
            }
            nccl_rank_fill(r, down, COUNT, (float)(1000 + i - ahead));
            if (below != NULL) {
                RANK_CHECK(r, ctw_link_send(below, down, BYTES, 1, NULL) == 0);
            }
            RANK_CHECK(r, ctw_comm_all_reduce(group, up, up, COUNT, NULL) == 0);
        }
    }
    end(r, below, up, down);
    ctw_link_free(above);
    ctw_comm_free(group);
    RANK_CHECK(r, bad == 0);
}

static void stages_of_a_pipeline(void **state)
{
    (void)state;
    run_seeds(2, work_in_a_pipeline);
    run_seeds(4, work_in_a_pipeline);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

/* A rank's part in steps that exchange an array, and what it has recorded of them. */
struct steps {
    struct nccl_rank *r;
    struct ctw_link *link;
    float *mine, *theirs; /* the peer's of the same step */
    int bad;
    cudaGraphExec_t exec;
    bool recording;
};

static void run_next(const void *data)
{
    const struct steps *s = *(struct steps *const *)data;
    for (size_t i = 0; i < COUNT; i++) {
        s->mine[i] += 1;
    }
}

static void run_compare(const void *data)
{
    struct steps *s = *(struct steps *const *)data;
    for (size_t i = 0; i < COUNT; i++) {
        s->bad |= s->theirs[i] - s->mine[i] != (float)(100 - 200 * s->r->rank);
    }
}

static void queue_kernel(struct steps *s, fake_run_fn run)
{
    FAKE_ALONE;
    fake_queue(s->r->stream, run, &s, sizeof s);
}

/* Ends with a collective, as a step of a pipeline does. */
static void queue_step(struct steps *s)
{
    queue_kernel(s, run_next);
    RANK_CHECK(s->r, ctw_link_send(s->link, s->mine, BYTES, 0, NULL) == 0);
    RANK_CHECK(s->r, ctw_link_recv(s->link, s->theirs, BYTES, 0, NULL) == 0);
    queue_kernel(s, run_compare);
    RANK_CHECK(s->r, ctw_comm_all_reduce(s->r->comm, s->theirs, s->theirs, 1, NULL) == 0);
}

static void begin_steps(struct steps *s, struct nccl_rank *r)
{
    *s = (struct steps){.r = r, .link = open_link(r, 1 - r->rank)};
    s->mine = nccl_rank_floats(r, COUNT);
    s->theirs = nccl_rank_floats(r, COUNT);
    nccl_rank_fill(r, s->mine, COUNT, (float)(100 * r->rank));
    queue_step(s); /* connects all */
}

static void begin_recording(struct steps *s)
{
    RANK_CHECK(s->r, cudaStreamBeginCapture(s->r->stream, cudaStreamCaptureModeThreadLocal) ==
                         cudaSuccess);
    s->recording = true;
}

static void record_step(struct steps *s)
{
    cudaGraph_t graph;
    begin_recording(s);
    queue_step(s);
    s->recording = false;
    RANK_CHECK(s->r, cudaStreamEndCapture(s->r->stream, &graph) == cudaSuccess);
    RANK_CHECK(s->r, cudaGraphInstantiate(&s->exec, graph,
                                          cudaGraphInstantiateFlagUseNodePriority) == cudaSuccess);
    (void)cudaGraphDestroy(graph);
}

/* What a program gives to ctw_comm_on_end(). */
static void forget_steps(void *data)
{
    struct steps *s = data;
    cudaGraph_t graph;
    if (s->recording) {
        s->recording = false;
        (void)cudaStreamEndCapture(s->r->stream, &graph);
    }
    if (s->exec != NULL) {
        (void)cudaGraphExecDestroy(s->exec);
        s->exec = NULL;
    }
}

static void end_steps(struct steps *s)
{
    forget_steps(s);
    end(s->r, s->link, s->mine, s->theirs);
    RANK_CHECK(s->r, s->bad == 0);
}

static void replay_steps(struct nccl_rank *r)
{
    struct steps s;
    begin_steps(&s, r);
    record_step(&s);
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 == 2) { /* between replays some are queued one by one */
            queue_step(&s);
        } else {
            RANK_CHECK(r, cudaGraphLaunch(s.exec, r->stream) == cudaSuccess);
        }
    }
    RANK_CHECK(r, ctw_comm_sync(r->comm, NULL) == 0);
    RANK_CHECK(r, s.mine[COUNT - 1] == (float)(100 * r->rank + 1 + ROUNDS));
    end_steps(&s);
}

static void steps_with_messages_are_replayed(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        const struct fake_gpu script = {
            .seed = seed, .call_turns = (int)seed % 3, .nccl_threads = seed % 2 > 0};
        nccl_ranks_run(&(struct nccl_ranks){.size = 2, .script = script}, replay_steps);
        assert_int_equal(fake.graph_launches, 2 * (ROUNDS - ROUNDS / 3));
    }
}

/* Its message has been queued nowhere, and nothing later may wait for it. */
static void go_on_after_a_broken_recording(struct nccl_rank *r)
{
    struct steps s;
    cudaGraph_t graph;
    begin_steps(&s, r);
    begin_recording(&s);
    RANK_CHECK(r, ctw_link_send(s.link, s.mine, BYTES, 0, NULL) == 0);
    s.recording = false;
    RANK_CHECK(r, cudaStreamEndCapture(r->stream, &graph) == cudaErrorStreamCaptureUnjoined);
    queue_step(&s);
    record_step(&s);
    RANK_CHECK(r, cudaGraphLaunch(s.exec, r->stream) == cudaSuccess);
    RANK_CHECK(r, ctw_comm_sync(r->comm, NULL) == 0);
    end_steps(&s);
}

static void a_broken_recording_leaves_no_message_behind(void **state)
{
    (void)state;
    run_seeds(2, go_on_after_a_broken_recording);
}

/* A link does not know who records its messages; the communicator does, and is told. */
struct ending {
    enum { RECORDED, REPLAYED, RECORDING } when;
    atomic_int ready;
};

static void abort_a_recorded_link(struct nccl_rank *r)
{
    struct ending *ending = r->all->data;
    struct steps s;
    begin_steps(&s, r);
    ctw_comm_on_end(r->comm, forget_steps, &s);
    if (ending->when != RECORDING) {
        record_step(&s);
    }
    RANK_CHECK(r, ctw_comm_sync(r->comm, NULL) == 0);
    ending->ready++;
    nccl_ranks_await(&ending->ready, 2); /* the peer has nothing queued that would hear of it */
    if (ending->when == REPLAYED && r->rank == 0) { /* stuck, because the peer does not replay */
        RANK_CHECK(r, cudaGraphLaunch(s.exec, r->stream) == cudaSuccess);
    }
    if (ending->when == RECORDING) {
        begin_recording(&s);
        RANK_CHECK(r, ctw_link_send(s.link, s.mine, BYTES, 0, NULL) == 0);
    }
    ctw_link_abort(s.link);
    RANK_CHECK(r, s.exec == NULL && !s.recording);
    /* A replay could be under way on another stream, so all end that it may have used. */
    RANK_CHECK(r, ctw_comm_sync(r->comm, NULL) != 0);
    ctw_link_free(s.link);
    (void)cudaFree(s.mine);
    (void)cudaFree(s.theirs);
}

static void a_recording_is_dropped_before_its_link_ends(void **state)
{
    (void)state;
    for (int when = RECORDED; when <= RECORDING; when++) {
        struct ending ending = {.when = when};
        nccl_ranks_run(&(struct nccl_ranks){.size = 2, .data = &ending}, abort_a_recorded_link);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Its communicator is gone, and the sender goes, too, before the message has been asked for. */
static void send_and_go(struct nccl_rank *r)
{
    atomic_int *going = r->all->data;
    int bad = 0;
    struct ctw_link *link = open_link(r, 1 - r->rank);
    struct ctw_comm *group = NULL;
    RANK_CHECK(r, ctw_comm_split(r->comm, 0, 0, &group, NULL) == 0);
    ctw_comm_free(r->comm);
    r->comm = group;
    float *x = nccl_rank_floats(r, COUNT);
    if (r->rank == 0) {
        nccl_rank_fill(r, x, COUNT, 5);
        RANK_CHECK(r, ctw_link_send(link, x, BYTES, 0, NULL) == 0);
        *going = 1;
        ctw_link_free(link);
        link = NULL;
    } else {
        nccl_ranks_await(going, 1);
        RANK_CHECK(r, ctw_link_recv(link, x, BYTES, 0, NULL) == 0);
        nccl_rank_expect(r, x, COUNT, 5, &bad);
    }
    end(r, link, x, NULL);
    RANK_CHECK(r, bad == 0);
}

static void what_was_sent_before_the_end_arrives(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        atomic_int going = 0;
        nccl_ranks_run(&(struct nccl_ranks){.size = 2, .script = {.seed = seed}, .data = &going},
                       send_and_go);
    }
}

static void open_with_other_buffers(struct nccl_rank *r)
{
    struct ctw_link *link = NULL;
    struct ct_err err = {0};
    size_t buffer = r->rank == 0 ? 100 : 104;
    RANK_CHECK(r, ctw_link_open(r->comm, 1 - r->rank, buffer, &link, &err) == CT_EPROTO);
    RANK_CHECK(r, strstr(err.text, r->rank == 0 ? "its end buffers 104 bytes, this one 100"
                                                : "its end buffers 100 bytes, this one 104"));
    RANK_CHECK(r, link == NULL);
    RANK_CHECK(r, ctw_comm_barrier(r->comm, NULL) == 0);
}

static void both_ends_must_buffer_the_same(void **state)
{
    (void)state;
    run_seeds(2, open_with_other_buffers);
}

static void send_too_much(struct nccl_rank *r)
{
    struct ctw_link *link = open_link(r, 1 - r->rank);
    struct ct_err err = {0};
    float *x = nccl_rank_floats(r, COUNT + 1);
    RANK_CHECK(r, ctw_comm_barrier(r->comm, NULL) == 0);
    RANK_CHECK(r, ctw_link_send(link, x, BYTES + 1, 0, &err) == CT_ELIMIT);
    RANK_CHECK(r, strstr(err.text, "400001 bytes are more than the 400000") != NULL);
    RANK_CHECK(r, ctw_link_recv(link, x, 1, 0, NULL) == CT_ELIMIT);
    RANK_CHECK(r, ctw_comm_barrier(r->comm, NULL) == 0);
    end(r, link, x, NULL);
}

static void no_message_is_longer_than_the_buffer(void **state)
{
    (void)state;
    nccl_ranks_run(&(struct nccl_ranks){.size = 2}, send_too_much);
}

/* ---- a peer that does not come --------------------------------------------------------------- */

enum end { BY_DEADLINE, BY_LAUNCHER, BY_ABORT };

struct scene {
    atomic_int came;
    int rank;
    enum end how;
};

static void open_alone(struct nccl_rank *r)
{
    struct ctw_link *link = NULL;
    struct ct_err err = {0};
    struct scene *scene = r->all->data;
    if (r->rank == scene->rank) {
        RANK_CHECK(r, ctw_link_open(r->comm, 1 - r->rank, BYTES, &link, &err) == CT_ETIMEDOUT);
        RANK_CHECK(r, strstr(err.text, "cannot open a link to rank") != NULL);
        scene->came++;
    }
    nccl_ranks_await(&scene->came, 1);
    RANK_CHECK(r, ctw_comm_barrier(r->comm, NULL) == 0);
}

static void a_link_needs_both(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct scene scene = {.rank = rank};
        nccl_ranks_run(&(struct nccl_ranks){.size = 2, .timeout_ms = SHORT_MS, .data = &scene},
                       open_alone);
    }
}

/* One message leaves without the peer, for the next there is no place. */
static void send_to_nobody(struct nccl_rank *r)
{
    struct ctw_link *link = open_link(r, 1 - r->rank);
    float *x = nccl_rank_floats(r, COUNT);
    struct ct_err err = {0};
    if (r->rank == 0) {
        for (int i = 0; i < 2; i++) {
            nccl_rank_fill(r, x, COUNT, 1);
            RANK_CHECK(r, ctw_link_send(link, x, BYTES, 0, &err) == 0);
            RANK_CHECK(r, ctw_comm_sync(r->comm, &err) == (i == 0 ? 0 : CT_ETIMEDOUT));
        }
        RANK_CHECK(r, ctw_link_send(link, x, BYTES, 0, &err) == CT_EABORTED);
        ctw_link_abort(link);
    } else {
        int rc;
        do {
            rc = ctw_comm_poll(r->comm, NULL);
        } while (rc == 0);
        RANK_CHECK(r, rc == CT_EPEER);
        ctw_link_abort(link);
    }
    ctw_link_free(link);
    (void)cudaFree(x);
}

static void a_message_waits_for_the_one_before(void **state)
{
    (void)state;
    nccl_ranks_run(&(struct nccl_ranks){.size = 2, .timeout_ms = SHORT_MS}, send_to_nobody);
}

static void count_calls(void *data)
{
    ++*(int *)data;
}

/* The launcher's order, see worker/job/order_reader.h. */
static struct ct_handover_slot orders;
static const struct order_reader handover = {.slot = &orders, .generation = 7, .able = true};

/* A message never comes, and behind it the communicator's sum is queued: NCCL can end neither
 * alone. */
static void receive_from_nobody(struct nccl_rank *r)
{
    struct scene *scene = r->all->data;
    enum end how = scene->how;
    int told = 0;
    struct ctw_link *link = open_link(r, 1 - r->rank);
    float *x = nccl_rank_floats(r, COUNT);
    RANK_CHECK(r, ctw_comm_barrier(r->comm, NULL) == 0); /* connects all */
    scene->came++;
    nccl_ranks_await(&scene->came, 2);
    if (r->rank == 0) {
        ctw_comm_on_end(r->comm, count_calls, &told);
        RANK_CHECK(r, ctw_link_recv(link, x, BYTES, 0, NULL) == 0);
        if (how == BY_ABORT) {
            RANK_CHECK(r, ctw_comm_all_reduce(r->comm, x, x, COUNT, NULL) == 0);
            ctw_link_abort(link);
        }
        int code = how == BY_DEADLINE ? CT_ETIMEDOUT : how == BY_ABORT ? CT_EABORTED : CT_EPEER;
        if (how == BY_LAUNCHER) {
            __atomic_store_n(&orders.order, ct_generation_word(7, CT_ORDER_PARK), __ATOMIC_RELAXED);
        }
        RANK_CHECK(r, ctw_comm_sync(r->comm, NULL) == code);
        RANK_CHECK(r, ctw_link_recv(link, x, BYTES, 0, NULL) == CT_EABORTED);
        RANK_CHECK(r, told == 1);
    } else {
        int rc;
        do { /* hears of it */
            rc = ctw_comm_poll(r->comm, NULL);
        } while (rc == 0);
        RANK_CHECK(r, rc == CT_EPEER);
        ctw_link_abort(link);
    }
    ctw_link_free(link);
    (void)cudaFree(x);
}

static void what_is_stuck_ends_with_its_family(void **state)
{
    (void)state;
    for (enum end how = BY_DEADLINE; how <= BY_ABORT; how++) {
        struct scene scene = {.how = how};
        orders.order = CT_ORDER_NONE;
        nccl_ranks_run(&(struct nccl_ranks){.size = 2,
                                            .timeout_ms = how == BY_DEADLINE ? SHORT_MS : 0,
                                            .handover = &handover,
                                            .data = &scene},
                       receive_from_nobody);
    }
}

/* One end aborts; the other one, which waits for a message, hears of it. */
static void abort_or_wait(struct nccl_rank *r)
{
    struct scene *scene = r->all->data;
    struct ctw_link *link = open_link(r, 1 - r->rank);
    scene->came++;
    nccl_ranks_await(&scene->came, 2);
    float *x = nccl_rank_floats(r, COUNT);
    if (r->rank == 0) {
        ctw_link_abort(link);
        RANK_CHECK(r, ctw_link_send(link, x, BYTES, 0, NULL) == CT_EABORTED);
    } else {
        struct ct_err err = {0};
        int rc = ctw_link_recv(link, x, BYTES, 0, &err);
        RANK_CHECK(r, (rc == 0 ? ctw_comm_sync(r->comm, &err) : rc) == CT_EPEER);
    }
    ctw_link_free(link);
    (void)cudaFree(x);
}

static void an_abort_ends_it_for_both(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        struct scene scene = {0};
        nccl_ranks_run(&(struct nccl_ranks){.size = 2, .script = {.seed = seed}, .data = &scene},
                       abort_or_wait);
    }
}

static int set_nothing(void *data, const char *key, const void *value, size_t len,
                       struct ct_err *err)
{
    (void)data, (void)key, (void)value, (void)len, (void)err;
    return 0;
}

static void ranks_of_one_process_have_no_links(void **state)
{
    (void)state;
    atomic_bool over = false;
    struct ctw_comm *comm;
    struct ctw_link *link;
    fake_gpu_begin(NULL);
    const struct comm_setup setup = {
        .size = 2, .over = &over, .timeout_ms = 1000, .set = set_nothing};
    assert_int_equal(ctworker_nccl_module.open(&setup, &comm, NULL), 0);
    assert_int_equal(ctw_link_open(comm, 1, BYTES, &link, NULL), CT_EUNSUPPORTED);
    ctw_comm_free(comm);
    assert_int_equal(fake.violations, 0);
}

/* ---- everything that can fail does, once ----------------------------------------------------- */

/* Whatever fails for one rank fails for both, by the deadline at the latest, or is made up for. */
static void exchange(struct nccl_rank *r)
{
    atomic_int *done = r->all->data;
    struct ctw_link *link = NULL;
    void *x = NULL;
    int rc = cudaMalloc(&x, 64) == cudaSuccess ? 0 : CT_ENOMEM;
    rc = rc == 0 ? ctw_link_open(r->comm, 1 - r->rank, 64, &link, NULL) : rc;
    rc = rc == 0 ? ctw_link_send(link, x, 64, 0, NULL) : rc;
    rc = rc == 0 ? ctw_link_recv(link, x, 64, 0, NULL) : rc;
    rc = rc == 0 ? ctw_comm_sync(r->comm, NULL) : rc;
    if (rc != 0) {
        ctw_link_abort(link);
    }
    ctw_link_free(link);
    (void)cudaFree(x);
    *done += rc == 0;
}

/* The sweeps' short deadline may pass on a machine that stalls; this one does not. */
static void expect_an_exchange(void)
{
    atomic_int done = 0;
    nccl_ranks_run(&(struct nccl_ranks){.size = 2, .data = &done}, exchange);
    assert_int_equal(done, 2);
}

static void survives_allocation_failures(void **state)
{
    (void)state;
    atomic_int done;
    int n = 0;
    do {
        done = 0;
        ct_fault_begin(n++);
        nccl_ranks_run(
            &(struct nccl_ranks){
                .size = 2, .timeout_ms = SWEEP_MS, .data = &done, .may_fail = true},
            exchange);
        assert_int_equal(ct_fault_end(), 0);
    } while (ct_fault_hit());
    expect_an_exchange();
    assert_true(n > 6); /* the two ends' families, communicators and links */
}

static void survives_every_failure(void **state)
{
    (void)state;
    atomic_int done;
    int n = 0;
    do {
        done = 0;
        nccl_ranks_run(&(struct nccl_ranks){.size = 2,
                                            .script = {.fail_cuda_call = ++n},
                                            .timeout_ms = SWEEP_MS,
                                            .data = &done,
                                            .may_fail = true},
                       exchange);
    } while (fake.calls >= n);
    expect_an_exchange();
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_may_send_at_once),
        cmocka_unit_test(messages_of_any_length),
        cmocka_unit_test(stages_of_a_pipeline),
        cmocka_unit_test(steps_with_messages_are_replayed),
        cmocka_unit_test(a_broken_recording_leaves_no_message_behind),
        cmocka_unit_test(a_recording_is_dropped_before_its_link_ends),
        cmocka_unit_test(what_was_sent_before_the_end_arrives),
        cmocka_unit_test(both_ends_must_buffer_the_same),
        cmocka_unit_test(no_message_is_longer_than_the_buffer),
        cmocka_unit_test(a_link_needs_both),
        cmocka_unit_test(a_message_waits_for_the_one_before),
        cmocka_unit_test(what_is_stuck_ends_with_its_family),
        cmocka_unit_test(an_abort_ends_it_for_both),
        cmocka_unit_test(ranks_of_one_process_have_no_links),
        cmocka_unit_test(survives_allocation_failures),
        cmocka_unit_test(survives_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
