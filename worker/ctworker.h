/* SPDX-License-Identifier: Apache-2.0
 *
 * libctworker: what a worker needs that was started by ctrun or torchrun: its rank and environment,
 * the job's key/value store, and collectives over shared memory, TCP or NCCL.
 *
 *     struct ctw_job *job;
 *     struct ctw_comm *comm;
 *     struct ct_err err = {0};
 *     if (ctw_job_open(NULL, &job, &err) != 0 || ctw_comm_open(job, NULL, &comm, &err) != 0)
 *         die(err.text);
 *     ctw_comm_all_reduce(comm, grad, grad, n, &err);
 *
 * Errors follow common/err_code.h: 0 or a negative CT_E code, with the reason in `err`, which may
 * be NULL. The library never prints, never exits and installs no signal handler, but for those that
 * ctw_preempt_outlive() is asked for. Only one thread at a time may use a job or a communicator.
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

/* The environment of a worker. Every value is checked, for example 0 <= rank < world_size <= 2^20.
 */
struct ctw_env {
    int rank, world_size;             /* RANK, WORLD_SIZE */
    int local_rank, local_world_size; /* LOCAL_RANK, LOCAL_WORLD_SIZE; 0 and world_size if unset */
    int node_rank, node_count;        /* GROUP_RANK, GROUP_WORLD_SIZE; 0 and 1 if unset */
    int generation;         /* CTRUN_GENERATION; if unset, TORCHELASTIC_RESTART_COUNT; else 0 */
    uint16_t master_port;   /* MASTER_PORT */
    bool launched;          /* false: RANK and WORLD_SIZE are unset; a single process */
    bool store_is_external; /* TORCHELASTIC_USE_AGENT_STORE=True: the launcher runs the store */
    char master_addr[CTW_HOST_MAX]; /* MASTER_ADDR */
    char run_id[CTW_RUN_ID_MAX];    /* TORCHELASTIC_RUN_ID, "none" if unset */
    char error_file[CTW_PATH_MAX];  /* TORCHELASTIC_ERROR_FILE, "" if unset */
    char snapshot[CTW_PATH_MAX];    /* CTRUN_SNAPSHOT: a file in memory, empty at first, that the
                                       launcher keeps for the next generation; "" if unset */
    int device_index; /* CTRUN_DEVICE_INDEX: the index of this worker's GPU among those it sees;
                         local_rank if unset */
    bool device_own;  /* the launcher has set that index and gives the GPU to no other worker
                         (CTRUN_GPU_SHARE is unset) */
    bool device_set;  /* the launcher has set that index, perhaps for several workers */
};

/* Reads the process environment. CT_EFORMAT, CT_ELIMIT, CT_ENOENT; err names the variable. */
CTW_API CT_MUST_CHECK int ctw_env_read(struct ctw_env *out, struct ct_err *err);

/* ---- the job and its store ------------------------------------------------------------------- */

struct ctw_job;

struct ctw_job_options {
    int64_t timeout_ms; /* for connecting and for each store call; 0 = 300 s (PyTorch's default) */
    bool lazy; /* connect with the first call that needs the store; a program that only reports its
                  progress then has no connection */
};

/* Reads the environment and connects to the store, unless this is a job of one process without a
 * launcher or is told to wait. options may be NULL. Gives *out. */
CTW_API CT_MUST_CHECK int ctw_job_open(const struct ctw_job_options *options, struct ctw_job **out,
                                       struct ct_err *err);
CTW_API void ctw_job_free(struct ctw_job *job); /* NULL is allowed */
CTW_API const struct ctw_env *ctw_job_env(const struct ctw_job *job);

/* Keys live under "ctworker/<run id>/<generation>/", so keys of an older generation are never seen.
 * Without a launcher there is no store, and store calls return CT_EUNSUPPORTED. */
CTW_API CT_MUST_CHECK int ctw_job_set(struct ctw_job *job, const char *key, const void *value,
                                      size_t len, struct ct_err *err);
/* Adding to a value that is not a number makes the store end the connection. Every later store call
 * of the job then fails with CT_ECLOSED. */
CTW_API CT_MUST_CHECK int ctw_job_add(struct ctw_job *job, const char *key, int64_t delta,
                                      int64_t *out, struct ct_err *err);
/* Waits for the key. Gives *out, which the caller must free(); a NUL follows the *len bytes. */
CTW_API CT_MUST_CHECK int ctw_job_get(struct ctw_job *job, const char *key, void **out, size_t *len,
                                      struct ct_err *err);

/* Writes torchrun's error file, from which the launcher takes the reason of a failure. Succeeds
 * without effect if there is no error file. `job` may be NULL, so that a failure of ctw_job_open()
 * can be reported, too. */
CTW_API int ctw_job_report_error(const struct ctw_job *job, const char *message,
                                 struct ct_err *err);

/* The same for an error that a restart would meet again, such as a wrong option or a missing file.
 * If the process then exits with a code other than 0, ctrun does not restart the job, whatever
 * --max-restarts allows. `job` may be NULL while no job is open. */
CTW_API int ctw_job_report_permanent_error(const struct ctw_job *job, const char *message,
                                           struct ct_err *err);

/* ---- the next generation --------------------------------------------------------------------- */

/* Declares that this process can survive the end of another worker. It then must notice that end
 * (collectives fail with CT_EPEER on every rank that has declared this), free its communicators and
 * call ctw_job_next(). Without the declaration, or after able = false, the launcher ends this
 * process with the others and starts a new one. CT_EUNSUPPORTED if no launcher supports this. */
CTW_API CT_MUST_CHECK int ctw_job_stay(struct ctw_job *job, bool able, struct ct_err *err);

/* Has the launcher ended the generation of this process? If so, only ctw_job_next() helps. Costs
 * one load. False unless ctw_job_stay() has succeeded. `job` may be NULL. */
CTW_API bool ctw_job_ended(const struct ctw_job *job);

/* Waits until the launcher begins the next generation, and moves `job` to it: ctw_job_env() gives
 * the new rank and world size, and the store is empty. All communicators must be freed before. The
 * process's environment does not change. `timeout_ms` (0 = 30 s) limits the wait for the end of
 * this generation: CT_ETIMEDOUT if the launcher sees no reason to end it. The wait for the next
 * generation has no limit. CT_EABORTED if none will begin. After a failure the job can still report
 * an error and be freed. */
CTW_API CT_MUST_CHECK int ctw_job_next(struct ctw_job *job, int64_t timeout_ms, struct ct_err *err);

/* ---- warm starts ----------------------------------------------------------------------------- */

/* At file scope of a program, says to `ctrun --warm` that main() calls ctw_spare_open() before it
 * does anything that only a worker may do. ctrun starts spares only of a program that says so: any
 * other would run as a worker. It is an ELF note of the name "ctrun" with the version of the
 * protocol. */
#define CTW_OFFERS_SPARES                                                           \
    __attribute__((section(".note.ctrun"), used, aligned(4))) static const struct { \
        uint32_t name_bytes, version_bytes, type;                                   \
        char name[8];                                                               \
        uint32_t version;                                                           \
    } ctw_offers_spares = {sizeof("ctrun"), sizeof(uint32_t), 1, "ctrun", 1}

struct ctw_spare;

/* Was this process started as a spare, which waits until it becomes a worker of the next
 * generation? If so, gives *out, and the program may do what takes time and needs no peer: load
 * libraries and data, but open no connection, print nothing, and keep nothing of the environment,
 * which has the rank of nobody yet. Otherwise *out is NULL. After a failure the process must end.
 */
CTW_API CT_MUST_CHECK int ctw_spare_open(struct ctw_spare **out, struct ct_err *err);

/* Answers NULL, or why what was made ready is of no use any more, for example because a file has
 * changed. */
typedef const char *(*ctw_spare_check_fn)(void *data);

/* Says that all is ready, and waits. When it returns 0, this process is the worker of its new
 * environment and of its new standard streams, and `spare` is freed. `check` is called before
 * that; NULL = all stays of use. After a failure the process must end without any effect:
 * CT_ECLOSED (the launcher does not need it), CT_EABORTED (it is of no use), CT_EPROTO, CT_EIO,
 * CT_ENOMEM. */
CTW_API CT_MUST_CHECK int ctw_spare_wait(struct ctw_spare *spare, ctw_spare_check_fn check,
                                         void *data, struct ct_err *err);

/* Tells the launcher why this process cannot become a worker, and frees `spare`. The process must
 * end then. No more spares are made for this job. */
CTW_API void ctw_spare_refuse(struct ctw_spare *spare, const char *why);

/* ---- ranks in one process -------------------------------------------------------------------- */

struct ctw_crew;

/* A limit above the number of GPUs of any machine. */
#define CTW_CREW_MAX 64

/* Opens ranks that are threads of this process, each with a GPU of its own: jobs of ranks 0 to
 * size-1, whose device index is their rank. They need no store. Their communicators use NCCL and
 * always have all of them as members. `job` must be the only process of its world and is borrowed.
 * Only rank 0 writes to its progress page. Gives *out. */
CTW_API CT_MUST_CHECK int ctw_crew_open(struct ctw_job *job, int size, struct ctw_crew **out,
                                        struct ct_err *err);
CTW_API void ctw_crew_free(struct ctw_crew *crew); /* NULL is allowed; after its threads' end */

/* Returns the job of one rank, for one thread. The crew owns it. NULL if there is no such rank. */
CTW_API struct ctw_job *ctw_crew_job(struct ctw_crew *crew, int rank);

/* From any thread. Every rank that waits for others, now or later, fails with CT_EPEER. */
CTW_API void ctw_crew_abort(struct ctw_crew *crew);

/* ---- progress -------------------------------------------------------------------------------- */

/* What a worker is doing. A worker that waits for peers is in COLLECTIVE: ctrun's hang detection
 * blames a rank that makes no progress in another phase while others are in this one. */
enum ctw_phase {
    CTW_PHASE_STARTING, /* until the first call of ctw_progress() */
    CTW_PHASE_DATA,
    CTW_PHASE_COMPUTE,
    CTW_PHASE_COLLECTIVE,
    CTW_PHASE_CHECKPOINT,
    CTW_PHASE_DONE,
};

/* Writes phase, step (0 or more) and time to the progress page that the launcher reads. Takes about
 * 30 ns and no system call; does nothing without a launcher. One thread at a time may call it, not
 * necessarily the one that uses the store. `job` may be NULL. */
CTW_API void ctw_progress(struct ctw_job *job, enum ctw_phase phase, int64_t step);

/* Sets what the launcher's status shows besides phase and step. NAN = not known. */
CTW_API void ctw_progress_metrics(struct ctw_job *job, double loss, double samples_per_s);

/* The step with which the training ends, from which ctrun's live line knows how long it lasts. 0 =
 * not known. */
CTW_API void ctw_progress_total(struct ctw_job *job, int64_t steps);

/* ---- preemption ------------------------------------------------------------------------------ */

/* From now on a notice of preemption does not end this process, so that it can save its state:
 * SIGTERM and SIGUSR1 do nothing if the file that CTRUN_PREEMPT_FILE names is there, or appears
 * within 0.3 s. Without it, as when another rank has failed, they end the process as ever. A fork
 * is always ended. An action other than the default stays. Call it on the main thread, which also
 * gets an alternate stack for the handler if it has none. Does nothing if the variable is unset;
 * CT_ELIMIT: it is too long. */
CTW_API CT_MUST_CHECK int ctw_preempt_outlive(struct ct_err *err);

/* ---- collectives ----------------------------------------------------------------------------- */

struct ctw_comm;

enum ctw_backend {
    CTW_BACKEND_HOST, /* shared memory inside a machine, TCP between machines */
    CTW_BACKEND_NCCL, /* one GPU per process */
};

/* The order in which the ranks' numbers are added. In both every rank gets the same bits. */
enum ctw_order {
    CTW_ORDER_RANK, /* one after the other: ((0 + 1) + 2) + 3 */
    CTW_ORDER_TREE, /* as a balanced binary tree: (0 + 1) + (2 + 3). The number of ranks must be a
                       power of two. If each rank adds its own terms as such a tree before, the
                       result does not depend on the number of ranks. */
};

/* Adds as a tree on a GPU, because NCCL chooses its own order. The function queues on the
 * communicator's stream: to[i] = the sum over k < n of from[k * step + i] for i < count, as a
 * balanced binary tree. n is a power of two; `to` may be one of those arrays. */
typedef int (*ctw_tree_sum_fn)(void *data, size_t n, size_t count, size_t step, const float *from,
                               float *to, struct ct_err *err);

struct ctw_comm_options {
    enum ctw_backend backend;
    int64_t timeout_ms; /* longest wait in one collective; 0 = 600 s (NCCL watchdog's default) */
    int device;         /* CUDA device index (nccl) */
    void *stream;       /* cudaStream_t on which collectives are ordered (nccl); NULL = default */
    enum ctw_order order;
    ctw_tree_sum_fn tree_sum; /* needed by nccl with CTW_ORDER_TREE, otherwise ignored */
    void *tree_sum_data;
};

/* Any failure of a call below, even a wrong argument, ends the communicator: later calls fail at
 * once with the same code, and the peers' calls with CT_EPEER. If ranks do not make the same calls
 * in the same order, they get CT_EPROTO (host back end).
 *
 * Collective: returns when all ranks of the job have called it, or fails within the deadline. One
 * process needs no peers. options NULL = host back end. Borrows `job`. Gives *out. */
CTW_API CT_MUST_CHECK int ctw_comm_open(struct ctw_job *job, const struct ctw_comm_options *options,
                                        struct ctw_comm **out, struct ct_err *err);

/* Waits for no peer, except where collectives are still queued on a GPU: for these at most
 * `timeout_ms`, then they are aborted. Frees the memory of ctw_comm_alloc(), too. NULL is allowed.
 */
CTW_API void ctw_comm_free(struct ctw_comm *comm);

enum ctw_memory {
    CTW_MEMORY_OWN,    /* each rank has its own; peers can read it, so collectives need no copy */
    CTW_MEMORY_SHARED, /* one block that all ranks of a machine map (host back end only) */
};

/* Collective: every rank asks for the same kind and size in the same order. The memory is zeroed,
 * aligned to 4096 bytes and owned by the communicator; with nccl it is device memory. */
CTW_API CT_MUST_CHECK int ctw_comm_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes,
                                         void **out, struct ct_err *err);

/* recv[i] = sum over ranks of send[i], added in the order that the options chose, with the same
 * bits on every rank. send == recv is allowed. Copies nothing if send is CTW_MEMORY_OWN and recv is
 * CTW_MEMORY_SHARED. */
CTW_API CT_MUST_CHECK int ctw_comm_all_reduce(struct ctw_comm *comm, const float *send, float *recv,
                                              size_t count, struct ct_err *err);

/* The half of an all-reduce that a rank needs if it updates only its own share of the parameters:
 * afterwards buf[*begin, *end) holds the sum, and the rest of buf is undefined. The shares of a
 * machine's ranks cover [0, count) exactly once and depend only on count and on the number of those
 * ranks. buf must be CTW_MEMORY_OWN. With nccl the share is the whole array. There is no barrier at
 * the end: call ctw_comm_barrier() before peers read what was computed from the share, and before
 * buf is written again. */
CTW_API CT_MUST_CHECK int ctw_comm_reduce_scatter(struct ctw_comm *comm, float *buf, size_t count,
                                                  size_t *begin, size_t *end, struct ct_err *err);

CTW_API CT_MUST_CHECK int ctw_comm_broadcast(struct ctw_comm *comm, void *buf, size_t bytes,
                                             int root, struct ct_err *err);
CTW_API CT_MUST_CHECK int ctw_comm_barrier(struct ctw_comm *comm, struct ct_err *err);

/* Collective over `comm`: ranks that give the same color become a communicator of their own,
 * ordered by `key`, then by rank in comm. A rank with a negative color must call it, too, and gets
 * NULL. color and key are within +-2^24. The host back end returns CT_EINVAL if the keys put ranks
 * of other machines between two ranks of one machine. The new communicator has the deadline and the
 * order of comm, borrows its job, and may outlive comm. Its messages use its own numbers of ranks
 * and machines. Gives *out. */
CTW_API CT_MUST_CHECK int ctw_comm_split(struct ctw_comm *comm, int color, int key,
                                         struct ctw_comm **out, struct ct_err *err);

/* Returns 0 while no failure is known. With CT_EPEER the message names the rank that died or
 * aborted. Never blocks. */
CTW_API CT_MUST_CHECK int ctw_comm_poll(struct ctw_comm *comm, struct ct_err *err);

/* Waits until collectives queued so far are done (a no-op for the host back end). */
CTW_API CT_MUST_CHECK int ctw_comm_sync(struct ctw_comm *comm, struct ct_err *err);

/* Ends the communicator for every rank: peers' collectives fail with CT_EPEER at once. With nccl
 * the peers learn of it from NCCL, at the latest at their deadline. */
CTW_API void ctw_comm_abort(struct ctw_comm *comm);

/* Registers a function that drops the CUDA graphs with collectives of this communicator: NCCL waits
 * for ever if a communicator, even a failed one, ends before such graphs are destroyed. The
 * function is called once, when the communicator ends for any reason (ctw_comm_free() included), or
 * when a communicator that was split from it, or a link of either, ends by a failure. After a
 * failure the collectives in those graphs do not wait for peers any more, so that CUDA can destroy
 * the graphs. The function runs on the thread of the call that ends the communicator, and must not
 * use it. NULL removes the function. */
typedef void (*ctw_let_go_fn)(void *data);
CTW_API void ctw_comm_on_end(struct ctw_comm *comm, ctw_let_go_fn let_go, void *data);

CTW_API int ctw_comm_rank(const struct ctw_comm *comm);
CTW_API int ctw_comm_size(const struct ctw_comm *comm);
CTW_API enum ctw_backend ctw_comm_backend(const struct ctw_comm *comm);

/* ---- two ranks ------------------------------------------------------------------------------- */

struct ctw_link;

/* The longest message for which ctw_link_open() accepts a buffer. */
#define CTW_LINK_BUFFER_MAX ((size_t)1 << 30)

/* Opens a channel in both directions between this rank and `peer`. Both call this, once for each
 * pair of a communicator, with the same `buffer` (else CT_EPROTO). Each direction buffers at least
 * one message of `buffer` bytes: ctw_link_send() waits while the peer has not yet taken earlier
 * messages. Between machines, bytes beyond what the network buffers move only while both ends are
 * in a call of the link. So two ranks that send to each other do not deadlock, but three that send
 * in a circle may. The link has the deadline of comm and borrows its job; it may outlive comm.
 * CT_EUNSUPPORTED if the back end has no links. Gives *out. */
CTW_API CT_MUST_CHECK int ctw_link_open(struct ctw_comm *comm, int peer, size_t buffer,
                                        struct ctw_link **out, struct ct_err *err);
CTW_API void ctw_link_free(struct ctw_link *link); /* NULL is allowed */

/* Messages arrive whole and in order. If the receiver expects another length or tag, it gets
 * CT_EPROTO. CT_EPEER: the peer has died, or has closed or aborted its end. CT_ETIMEDOUT: the
 * deadline has passed. Any failure ends the link for both. What a peer sent before it closed its
 * end can still be received. */
CTW_API CT_MUST_CHECK int ctw_link_send(struct ctw_link *link, const void *buf, size_t bytes,
                                        int tag, struct ct_err *err);
CTW_API CT_MUST_CHECK int ctw_link_recv(struct ctw_link *link, void *buf, size_t bytes, int tag,
                                        struct ct_err *err);

/* With nccl `buf` is device memory, and the calls only queue work on the communicator's stream, in
 * the order of the calls. There a send waits until the peer has taken the previous message, and a
 * receive until the message comes. A wait for the whole device after a send also waits until the
 * peer has received it, and deadlocks if the peer first receives something that this rank sends
 * later. Do not call them while the stream is captured.
 *
 * NCCL carries neither length nor tag, so both ends must know them. A message longer than `buffer`
 * is CT_ELIMIT. A communicator, those split from it, and their links share the stream: while
 * anything is queued there, a failure or abort of one ends them all, and ctw_comm_sync() of any
 * fails if one of the others has an error. Ranks of one process can neither split nor open links:
 * CT_EUNSUPPORTED. */

/* Ends the link for both: the peer's calls fail with CT_EPEER at once. NULL is allowed. */
CTW_API void ctw_link_abort(struct ctw_link *link);

#ifdef __cplusplus
}
#endif

#endif
