/* SPDX-License-Identifier: Apache-2.0
 *
 * libctworker: what a worker started by ctrun (or torchrun) needs: who am I, the job's key/value
 * store, and collectives over shared memory or NCCL.
 *
 *     struct ctw_job *job;
 *     struct ctw_comm *comm;
 *     struct ct_err err = {0};
 *     if (ctw_job_open(NULL, &job, &err) != 0 || ctw_comm_open(job, NULL, &comm, &err) != 0)
 *         die(err.text);
 *     ctw_comm_all_reduce(comm, grad, grad, n, &err);
 *
 * Errors follow common/err_code.h: 0 or a negative CT_E code, the reason in `err` (which may be
 * NULL). The library never prints, never exits and installs no signal handler. One thread at a time
 * per job and per communicator.
 */
#ifndef CTWORKER_H
#define CTWORKER_H

#include "common/err_code.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CTW_API __attribute__((visibility("default")))

/* ---- who am I -------------------------------------------------------------------------------- */

#define CTW_HOST_MAX 256
#define CTW_RUN_ID_MAX 256
#define CTW_PATH_MAX 4096

/* The environment contract. Everything is bounds-checked: 0 <= rank < world_size <= 2^20 and so on.
 */
struct ctw_env {
    int rank, world_size;             /* RANK, WORLD_SIZE */
    int local_rank, local_world_size; /* LOCAL_RANK, LOCAL_WORLD_SIZE; 0 and world_size if unset */
    int node_rank, node_count;        /* GROUP_RANK, GROUP_WORLD_SIZE; 0 and 1 if unset */
    int generation;                 /* CTRUN_GENERATION, else TORCHELASTIC_RESTART_COUNT, else 0 */
    uint16_t master_port;           /* MASTER_PORT */
    bool launched;                  /* false: RANK and WORLD_SIZE unset, a single process */
    bool store_is_external;         /* TORCHELASTIC_USE_AGENT_STORE=True: somebody serves it */
    char master_addr[CTW_HOST_MAX]; /* MASTER_ADDR */
    char run_id[CTW_RUN_ID_MAX];    /* TORCHELASTIC_RUN_ID, "none" if unset */
    char error_file[CTW_PATH_MAX];  /* TORCHELASTIC_ERROR_FILE, "" if unset */
    char snapshot[CTW_PATH_MAX];    /* CTRUN_SNAPSHOT: a file in memory that the launcher keeps from
                                       one generation to the next, empty at first; "" if unset */
    int device_index; /* CTRUN_DEVICE_INDEX: which of the GPUs it sees is this worker's; local_rank
                         if unset */
    bool device_own;  /* the launcher has set it, and gives the device to no other worker
                         (CTRUN_GPU_SHARE unset) */
};

/* Reads the process environment. CT_EFORMAT, CT_ELIMIT or CT_ENOENT name the variable. */
CTW_API CT_MUST_CHECK int ctw_env_read(struct ctw_env *out, struct ct_err *err);

/* ---- the job and its store ------------------------------------------------------------------- */

struct ctw_job;

struct ctw_job_options {
    int64_t timeout_ms; /* connecting and every store call; 0 = 300 s (PyTorch's default) */
};

/* Reads the environment and connects to the store (not when world_size is 1 and no launcher is
 * there). options may be NULL. Gives *out. */
CTW_API CT_MUST_CHECK int ctw_job_open(const struct ctw_job_options *options, struct ctw_job **out,
                                       struct ct_err *err);
CTW_API void ctw_job_free(struct ctw_job *job); /* NULL is allowed */
CTW_API const struct ctw_env *ctw_job_env(const struct ctw_job *job);

/* Keys live under "ctworker/<run id>/<generation>/", so an old generation's are never seen. Without
 * a launcher there is no store: CT_EUNSUPPORTED. */
CTW_API CT_MUST_CHECK int ctw_job_set(struct ctw_job *job, const char *key, const void *value,
                                      size_t len, struct ct_err *err);
/* Adding to a value that is no number ends the connection to the store, and with CT_ECLOSED every
 * later store call of the job. */
CTW_API CT_MUST_CHECK int ctw_job_add(struct ctw_job *job, const char *key, int64_t delta,
                                      int64_t *out, struct ct_err *err);
/* Waits for the key. Gives *out (free() it), with a NUL behind the *len bytes. */
CTW_API CT_MUST_CHECK int ctw_job_get(struct ctw_job *job, const char *key, void **out, size_t *len,
                                      struct ct_err *err);

/* Writes torchrun's error file, from which the launcher takes the reason of a failure. Does nothing
 * and succeeds when there is no error file. `job` may be NULL, for the case that opening it is what
 * failed. */
CTW_API int ctw_job_report_error(const struct ctw_job *job, const char *message,
                                 struct ct_err *err);

/* The same for an error that another start would meet again: a wrong option, a file that is not
 * there. When the process then exits with a code other than 0, ctrun restarts nothing, whatever
 * --max-restarts allows. `job` may be NULL while no job is open. */
CTW_API int ctw_job_report_permanent_error(const struct ctw_job *job, const char *message,
                                           struct ct_err *err);

/* ---- the next generation --------------------------------------------------------------------- */

/* Says that this process need not end when another worker of the job does: that it will notice
 * (collectives fail with CT_EPEER then, on every rank that says so), free its communicators and
 * call ctw_job_next(). Until it says so, and once it takes that back, it is ended and started anew
 * with the others. CT_EUNSUPPORTED where no launcher hands anything over. */
CTW_API CT_MUST_CHECK int ctw_job_stay(struct ctw_job *job, bool able, struct ct_err *err);

/* Has the launcher ended the generation that this process works in? Then only ctw_job_next() helps.
 * A load, no more; false where ctw_job_stay() has not succeeded. `job` may be NULL. */
CTW_API bool ctw_job_ended(const struct ctw_job *job);

/* Waits, with nothing of the old generation open, until the launcher begins the next one, and makes
 * `job` that one's: ctw_job_env() tells the new rank and so on, the store is empty. The process's
 * environment stays as it was. `timeout_ms` (0 = 30 s) is for the launcher to end this generation,
 * CT_ETIMEDOUT when it sees no reason to; how long the next one takes is its own affair.
 * CT_EABORTED when there will be none. After a failure the job can report it and be freed. */
CTW_API CT_MUST_CHECK int ctw_job_next(struct ctw_job *job, int64_t timeout_ms, struct ct_err *err);

/* ---- ranks in one process -------------------------------------------------------------------- */

struct ctw_crew;

/* More GPUs than any machine has. */
#define CTW_CREW_MAX 64

/* Ranks that are threads of this process, a GPU each: jobs of ranks 0 to size - 1, whose device
 * index is their rank. They need no store, and their communicators are of all of them and by NCCL
 * only. `job` must be a process without peers; rank 0's stamps go to its progress page. Borrows it.
 * Gives *out. */
CTW_API CT_MUST_CHECK int ctw_crew_open(struct ctw_job *job, int size, struct ctw_crew **out,
                                        struct ct_err *err);
CTW_API void ctw_crew_free(struct ctw_crew *crew); /* NULL is allowed; after its threads' end */

/* One rank's, for one thread; belongs to the crew. NULL when there is no such rank. */
CTW_API struct ctw_job *ctw_crew_job(struct ctw_crew *crew, int rank);

/* From any thread: every rank that waits for others, or comes to that, fails with CT_EPEER. */
CTW_API void ctw_crew_abort(struct ctw_crew *crew);

/* ---- progress -------------------------------------------------------------------------------- */

/* What a worker is doing. Who waits for peers says COLLECTIVE: ctrun's hang detection blames a rank
 * that stands still in another phase while others stand in this one. */
enum ctw_phase {
    CTW_PHASE_STARTING, /* until the first stamp */
    CTW_PHASE_DATA,
    CTW_PHASE_COMPUTE,
    CTW_PHASE_COLLECTIVE,
    CTW_PHASE_CHECKPOINT,
    CTW_PHASE_DONE,
};

/* Stamps the progress page that the launcher reads: phase, step (0 or more) and the time. Costs
 * some 30 ns and no system call; does nothing without a launcher that reads it. From one thread at
 * a time, which need not be the one that uses the job's store. `job` may be NULL. */
CTW_API void ctw_progress(struct ctw_job *job, enum ctw_phase phase, int64_t step);

/* What the launcher's status shows beside it. NAN = not known. */
CTW_API void ctw_progress_metrics(struct ctw_job *job, double loss, double samples_per_s);

/* ---- collectives ----------------------------------------------------------------------------- */

struct ctw_comm;

enum ctw_backend {
    CTW_BACKEND_HOST, /* shared memory inside a machine, TCP between machines */
    CTW_BACKEND_NCCL, /* one GPU per process */
};

/* The order in which the ranks' numbers are added. Both give the same bits on every rank. */
enum ctw_order {
    CTW_ORDER_RANK, /* ((0 + 1) + 2) + 3: one after the other */
    CTW_ORDER_TREE, /* (0 + 1) + (2 + 3): as a balanced binary tree, for a power of two of ranks. If
                     * each rank brings such a sum of its own, then the bits do not depend on how
                     * many ranks the terms are spread over. */
};

/* How a GPU adds as a tree, since NCCL adds in an order of its own: queues, on the communicator's
 * stream, to[i] = the sum over k < n of from[k * step + i] for i < count, as a balanced binary
 * tree; n is a power of two, and `to` may be one of those arrays. */
typedef int (*ctw_tree_sum_fn)(void *data, size_t n, size_t count, size_t step, const float *from,
                               float *to, struct ct_err *err);

struct ctw_comm_options {
    enum ctw_backend backend;
    int64_t
        timeout_ms; /* longest wait inside one collective; 0 = 600 s (NCCL watchdog's default) */
    int device;     /* CUDA device index (nccl) */
    void *stream;   /* cudaStream_t on which collectives are ordered (nccl); NULL = default */
    enum ctw_order order;
    ctw_tree_sum_fn tree_sum; /* nccl with CTW_ORDER_TREE needs it; else unread */
    void *tree_sum_data;
};

/* Any failure of a call below (a wrong argument included) ends the communicator: later calls fail
 * at once with the same code, the peers' with CT_EPEER. Ranks that do not make the same calls in
 * the same order are told so with CT_EPROTO (host back end).
 *
 * Collective: returns when every rank of the job has come, or fails within the deadline. A single
 * process needs no peers. options NULL = host back end. The communicator borrows `job`. Gives *out.
 */
CTW_API CT_MUST_CHECK int ctw_comm_open(struct ctw_job *job, const struct ctw_comm_options *options,
                                        struct ctw_comm **out, struct ct_err *err);

/* After ctw_comm_abort() or an error: local clean-up only. Otherwise waits for nobody either, but
 * memory of ctw_comm_alloc() dies with it. NULL is allowed. */
CTW_API void ctw_comm_free(struct ctw_comm *comm);

enum ctw_memory {
    CTW_MEMORY_OWN,    /* each rank has its own; peers can read it, so collectives need no copy */
    CTW_MEMORY_SHARED, /* one block that all ranks of a machine see (host back end only) */
};

/* Collective: every rank asks for the same kind and size in the same order. Zeroed, aligned to 4096
 * bytes, owned by the communicator. Device memory with nccl. */
CTW_API CT_MUST_CHECK int ctw_comm_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes,
                                         void **out, struct ct_err *err);

/* recv[i] = sum over ranks of send[i], added in the order that the options chose, the same bits
 * on every rank. send == recv is allowed. Free of copies when send is CTW_MEMORY_OWN and recv is
 * CTW_MEMORY_SHARED. */
CTW_API CT_MUST_CHECK int ctw_comm_all_reduce(struct ctw_comm *comm, const float *send, float *recv,
                                              size_t count, struct ct_err *err);

/* The part of an all-reduce that a rank needs when it updates only its own share of the parameters:
 * afterwards buf[*begin, *end) holds the sum, the rest is undefined. The shares of a machine's
 * ranks cover [0, count) once and depend only on count and on how many they are. buf is
 * CTW_MEMORY_OWN. With nccl the share is everything. Ends with no barrier: call ctw_comm_barrier()
 * before peers may read what was computed from it and before buf is written again. */
CTW_API CT_MUST_CHECK int ctw_comm_reduce_scatter(struct ctw_comm *comm, float *buf, size_t count,
                                                  size_t *begin, size_t *end, struct ct_err *err);

CTW_API CT_MUST_CHECK int ctw_comm_broadcast(struct ctw_comm *comm, void *buf, size_t bytes,
                                             int root, struct ct_err *err);
CTW_API CT_MUST_CHECK int ctw_comm_barrier(struct ctw_comm *comm, struct ct_err *err);

/* Collective over `comm`: ranks that give the same color become a communicator of their own, in the
 * order of `key` (ties: of their ranks in comm). A negative color takes part and gets NULL. color
 * and key lie within +-2^24. Ranks of a machine must follow each other in a group (host back end):
 * CT_EINVAL when the keys put others between them. Keeps the deadline of comm and its order of
 * adding, and borrows its job; may outlive it. Messages number ranks and machines within the new
 * one. Gives *out. */
CTW_API CT_MUST_CHECK int ctw_comm_split(struct ctw_comm *comm, int color, int key,
                                         struct ctw_comm **out, struct ct_err *err);

/* 0 while all is well; CT_EPEER names the rank that died or aborted. Never blocks. */
CTW_API CT_MUST_CHECK int ctw_comm_poll(struct ctw_comm *comm, struct ct_err *err);

/* Waits until collectives queued so far are done (a no-op for the host back end). */
CTW_API CT_MUST_CHECK int ctw_comm_sync(struct ctw_comm *comm, struct ct_err *err);

/* Ends the communicator for every rank: peers' collectives fail with CT_EPEER at once. With nccl
 * the peers learn of it by NCCL's own means, at the latest by their deadline. */
CTW_API void ctw_comm_abort(struct ctw_comm *comm);

/* NCCL lets no communicator go, not even a broken one, while a CUDA graph holds collectives of it:
 * it would wait for ever. So whoever records such graphs says here how to forget them. Called once,
 * before the communicator ends for whatever reason (ctw_comm_free() included), on the thread of the
 * call that ends it; it must not use the communicator. NULL takes it back. */
typedef void (*ctw_let_go_fn)(void *data);
CTW_API void ctw_comm_on_end(struct ctw_comm *comm, ctw_let_go_fn let_go, void *data);

CTW_API int ctw_comm_rank(const struct ctw_comm *comm);
CTW_API int ctw_comm_size(const struct ctw_comm *comm);
CTW_API enum ctw_backend ctw_comm_backend(const struct ctw_comm *comm);

/* ---- two ranks ------------------------------------------------------------------------------- */

struct ctw_link;

/* The longest message that ctw_link_open() lets buffer. */
#define CTW_LINK_BUFFER_MAX ((size_t)1 << 30)

/* A channel in both directions between this rank and `peer`, both of which call this, once for each
 * pair of a communicator. Each direction buffers at least one message of `buffer` bytes: ctw_link_
 * send() waits while the peer has not yet taken what was sent before. Between machines bytes beyond
 * what the network holds move only while both ends are in calls of the link, whichever: two that
 * send at once do not wait for each other, three in a circle may. Both give the same `buffer`
 * (CT_EPROTO). Has the deadline of comm and borrows its job; lives and dies apart from it.
 * CT_EUNSUPPORTED where the back end has none. Gives *out. */
CTW_API CT_MUST_CHECK int ctw_link_open(struct ctw_comm *comm, int peer, size_t buffer,
                                        struct ctw_link **out, struct ct_err *err);
CTW_API void ctw_link_free(struct ctw_link *link); /* NULL is allowed */

/* Messages arrive whole and in order. A receiver that expects another length or tag than comes is
 * told so (CT_EPROTO). CT_EPEER when the peer has died, closed or aborted its end, CT_ETIMEDOUT;
 * any failure ends the link for both. What was sent before a peer closed its end can still be
 * received.
 */
CTW_API CT_MUST_CHECK int ctw_link_send(struct ctw_link *link, const void *buf, size_t bytes,
                                        int tag, struct ct_err *err);
CTW_API CT_MUST_CHECK int ctw_link_recv(struct ctw_link *link, void *buf, size_t bytes, int tag,
                                        struct ct_err *err);

/* With nccl `buf` is device memory, and the calls only queue: on the communicator's stream a
 * message is read and written in the order of the calls, a send waits while the peer has not taken
 * the one before, and a receive until the message comes. Whoever waits for the device between a
 * send and what the peer receives before it may wait for ever. Not while the stream is captured.
 *
 * NCCL carries neither length nor tag, so both ends must know them; no message is longer than
 * `buffer` (CT_ELIMIT). A communicator, those that were split from it and their links share the
 * stream: while anything is queued there, the failure or abort of one ends them all, and a sync of
 * any fails when one of the others has an error. Ranks of one process have neither groups nor
 * links: CT_EUNSUPPORTED. */

/* Ends the link for both: the peer's calls fail with CT_EPEER at once. NULL is allowed. */
CTW_API void ctw_link_abort(struct ctw_link *link);

#ifdef __cplusplus
}
#endif

#endif
