/* SPDX-License-Identifier: Apache-2.0
 *
 * One job on this machine while it runs. agent_uv.c steps the state machine (agent.h) and carries
 * out what it says; each of the other files agent_*_uv.c has a part of that work.
 *
 * For the files agent_*_uv.c only.
 */
#ifndef CT_LAUNCHER_AGENT_AGENT_RUN_UV_H
#define CT_LAUNCHER_AGENT_AGENT_RUN_UV_H

#include "common/host_list.h"
#include "common/job_registry.h"
#include "common/log.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/agent_moves.h"
#include "launcher/agent/agent_stdin_uv.h"
#include "launcher/agent/agent_uv.h"
#include "launcher/agent/live_line_uv.h"
#include "launcher/agent/uninterruptible_monitor_uv.h"
#include "launcher/monitor/file_timer_server_uv.h"
#include "launcher/monitor/hang_monitor_uv.h"
#include "launcher/monitor/health_check_uv.h"
#include "launcher/monitor/stack_asker_uv.h"
#include "launcher/monitor/worker_uv.h"
#include "launcher/preflight/preflight_outcome.h"
#include "launcher/report/job_story.h"
#include "launcher/report/trace.h"
#include "launcher/setup/interface_uv.h"
#include "launcher/util/signals_uv.h"
#include "launcher/util/store_end.h"
#include "launcher/warm/spare.h"
#include "launcher/warm/warm.h"
#include "launcher/worker/error_file.h"
#include "launcher/worker/port_reserve.h"
#include "launcher/worker/progress_reader.h"
#include "launcher/worker/snapshot.h"
#include "rendezvous/client/elector_uv.h"
#include "rendezvous/client/link_uv.h"
#include "rendezvous/control/control.h"
#include "rendezvous/election/host_loss.h"
#include "rendezvous/server/control_uv.h"
#include "rendezvous/server/server_uv.h"

#include <sys/stat.h>
#include <uv.h>

/* How long a terminal that takes no output may delay a restart. */
#define CT_AGENT_DRAIN_MS 1000

/* The stores that this node serves. */
struct ct_agent_store {
    struct ct_server *server;   /* NULL = another machine hosts the job's store */
    struct ct_server *own;      /* the workers' store, if this is node rank 0 and does not host, and
                                   in a job that outlives its host the port where this node is asked */
    char own_host[CT_HOST_MAX]; /* where others reach `own` */
    bool own_on_all;            /* it listens on all addresses of this machine */
    struct ct_store_address address; /* of the job's store; changes when another node hosts it */
    char address_host[CT_HOST_MAX];  /* then: the text in `address` */
    bool on_loopback;   /* this node hosts the job's store at an address of the loopback, or at all
                           addresses */
    bool said_open;     /* the user was told that strangers may use a store of this node */
    bool said_unlisted; /* and that ctrun-stat does not list the job */
    char busy[CT_FAILURE_WHAT_MAX]; /* says which program has taken the store's port; "" = none */
    bool unresolved; /* the store's name was not known at the start: it may be this machine's */
    char registry[CT_JOB_FOLDER_MAX]; /* where the job is entered for ctrun-stat; "" = nowhere */
    uv_timer_t timer; /* at the start for on_kernel_log_due(), at the end for on_wait() */
    int64_t wait_until_ns;
    struct ct_store_end end;
};

/* The connection to the workers' store of another machine. */
struct ct_agent_guest {
    struct ct_link *link;        /* NULL = none is needed */
    struct ct_agent_event world; /* what the agent hears when the link is up */
    bool awaited;                /* the link is not up yet */
};

/* Addresses as this node was told them. */
struct ct_agent_address {
    struct ct_interface_search search;
    char interface[IF_NAMESIZE]; /* the interface that workers are told; "" = none */
    bool link_is_up;             /* the link is up, but the agent has not heard of it yet */
    char seen[CT_HOST_MAX];      /* this node's address, as the membership sees it */
    char master[CT_HOST_MAX]; /* address of this generation's store; "" = that of the job's store */
    char store[CT_HOST_MAX]; /* the address by which other machines reach the job's store; "" = none
                                does */
};

/* What is known of failures. */
struct ct_agent_report {
    struct ct_failure failure;       /* the first one here, of this generation */
    struct ct_error_file error_file; /* of the worker that failed */
    struct ct_buf tail;              /* its last lines on stderr, indented */
    bool tail_is_last;               /* no worker has shown anything after these lines */
    char *kernel_stack;              /* where it hung, to be printed with its report; NULL = none */
    struct ct_job_story story;       /* of the whole job */
    char stop_why[CT_FAILURE_WHAT_MAX];
};

/* Requests to end the job. */
struct ct_agent_requests {
    struct ct_signals_watch signals;
    struct ct_agent_stdin input;
    int64_t deadline_ms;          /* after the first request, how long workers may take to stop */
    char *notice_file;            /* tells workers of a preemption; NULL = there is none */
    struct ct_probe_task *stacks; /* asks the workers where they stand before SIGQUIT ends them */
};

/* The connection to the membership. */
struct ct_agent_membership {
    struct ct_link *link;
    struct ct_msg *msg;      /* the message that is sent next; on the heap because it is large */
    struct ct_msg_join join; /* what this node says when it joins */
    /* In this generation. To the membership each rank that a scheduler has started is a node of its
     * own, so a shim's worker is told another rank and count: see worker_env. */
    int node_rank, node_count;
};

/* The workers of this machine. Zeroed memory is not valid: see ct_agent_run(). */
struct ct_agent_workers {
    struct ct_procs *procs;
    struct ct_worker *list; /* by local rank */
    int count;
    int kept; /* workers that have gone on from the last generation */
    struct ct_snapshot snapshot;
    struct ct_oom oom;
    struct ct_progress_reader progress; /* what workers say of their progress */
    struct ct_order_writer orders;      /* what kept workers are told of the next generation */
    bool stopping;                      /* the processes of this generation have been told to end */
    bool draining;                      /* they have ended, and their last output is awaited */
    struct ct_procs_stopped stopped;    /* how the last stop went */
    int64_t memory_ns;                  /* when their memory was looked at last */
    struct ct_err start_err;            /* why a worker could not be started */
};

/* The checks of this machine before a generation. */
struct ct_agent_check {
    struct ct_health_check *running;    /* NULL = none */
    bool is_preflight;                  /* that is one */
    char tail[CT_HEALTH_TAIL_MAX + 1];  /* what a check that failed wrote last */
    char advice[CT_FAILURE_WHAT_MAX];   /* what to do about it; "" = the usual */
    bool passed;                        /* the preflight has passed here */
    struct ct_preflight_outcome result; /* of the last preflight, if it had a report */
};

/* Watch for workers that make no progress. */
struct ct_agent_monitors {
    struct ct_hang_monitor hang;
    struct ct_file_timer_server timers;
    struct ct_uninterruptible_monitor uninterruptible;
};

/* Questions about stacks that workers are being asked. */
#define CT_AGENT_QUERIES_MAX 2
struct ct_agent_queries {
    struct ct_agent_query_open {
        struct ct_agent_run *run;
        struct ct_probe_task *task; /* NULL = the place is free */
        int id;
        int only; /* as in struct ct_stack_question */
    } open[CT_AGENT_QUERIES_MAX];
};

/* Spare interpreters. */
struct ct_agent_warm {
    bool on;
    struct ct_warm policy;
    struct ct_list all;              /* struct ct_agent_spare, until their processes have ended */
    uv_timer_t timer;                /* for on_look() */
    uv_timer_t set_timer;            /* for on_set_look(), during the hand-over */
    char *folder;                    /* of ctrun's part in Python; NULL = the program needs none */
    char *plan;                      /* what spares are told to import; NULL = not known */
    struct stat files[2];            /* of the command and of ctrun's part, as the plan began */
    bool said_off;                   /* the user was told that no spare is made any more */
    bool said_full;                  /* the user was told that memory is too small for all spares */
    enum ct_warm_making at_stop;     /* what became of spares when the last generation stopped */
    int taken;                       /* workers of this generation that were spares */
    int taken_in_all;                /* and of all generations */
    char cold[CT_WARM_WHY_MAX];      /* the first reason why a spare is no worker; "" = all are */
    int64_t set_until_ns;            /* when spares must have said that they are set */
    int64_t import_until_ns;         /* when one that still imports must have said it is ready */
    struct ct_spare_message message; /* the one that came last */
};

/* What --trace records. Zeroed memory records nothing. */
struct ct_agent_trace {
    struct ct_trace data;
    uv_timer_t timer;
    struct ct_progress *pages; /* of all workers, as they were read last */
    bool *valid;
};

/* What outlives the host of the membership. */
struct ct_agent_failover {
    struct ct_elector *elector;         /* NULL = the job ends with its host */
    char trouble[CT_FAILURE_WHAT_MAX];  /* why etcd cannot be used; "" = it can */
    char unjoined[CT_FAILURE_WHAT_MAX]; /* why the host that it names was not joined */
    struct ct_control_station station;
    struct ct_agent_moves moves;   /* from host to host, before the first world */
    uint64_t dialling;             /* the id of the host that is being joined; 0 = none */
    bool adrift;                   /* the host is lost, and no other is found yet */
    bool daemon;                   /* the host is a ctrdzvd */
    int64_t pledged_ns;            /* when the last record was pledged */
    int64_t stop_by_ns;            /* the workers must be gone by then; INT64_MAX = no hurry */
    int64_t formed_ms;             /* Unix time at which the last world came */
    char host[CT_HOST_MAX];        /* the machine that hosts: its name, ... */
    char where[CT_HOST_MAX];       /* ... and its address */
    struct ct_host_loss loss;      /* that has ended the newest generation: ... */
    bool silent;                   /* ... that host had not answered, ... */
    char lost_host[CT_HOST_MAX];   /* ... its machine, ... */
    char why[CT_FAILURE_WHAT_MAX]; /* ... and why it was lost */
};

struct ct_agent_run {
    const struct ct_job_spec *job;
    struct ct_log log;
    uv_loop_t loop;
    struct ct_output *output;
    struct ct_agent agent;           /* the state machine */
    struct ct_worker_env worker_env; /* what this generation's workers are told */
    struct ct_job_ports ports;       /* of this generation */
    struct ct_port_reserve reserve;  /* of these ports, on the machine of rank 0 */
    struct ct_agent_requests requests;
    struct ct_agent_store store;
    struct ct_agent_membership membership;
    struct ct_agent_guest guest;
    struct ct_agent_failover failover;
    struct ct_agent_address address;
    struct ct_agent_workers workers;
    struct ct_agent_check check;
    struct ct_agent_monitors monitors;
    struct ct_stack_asker asker;
    struct ct_agent_queries queries;
    struct ct_live_line_timer live;
    struct ct_agent_report report;
    struct ct_agent_warm warm;
    struct ct_agent_trace trace;
    struct ct_outcome outcome;
};

/* Steps the state machine and carries out what it says. */
void ct_agent_dispatch(struct ct_agent_run *run, struct ct_agent_event event);

/* ---- agent_store_uv.c ------------------------------------------------------------------------ */

/* Hosts the job's store if this node has to; every address is bound when it returns. */
CT_MUST_CHECK int ct_agent_store_open(struct ct_agent_run *run, struct ct_err *err);

/* Hosts the job's store if its port was taken at the start and is free now: another job has ended,
 * or two agents of this machine tried at the same moment, and the kernel refused both. Or if its
 * name is known now and is this machine's, as a pod's name becomes known after the pod has begun.
 * Returns the server, or NULL if it still cannot. */
struct ct_server *ct_agent_store_open_late(struct ct_agent_run *run);

/* Gives the workers of a new generation an empty store. Only node rank 0 calls it. */
CT_MUST_CHECK int ct_agent_store_serve(struct ct_agent_run *run, struct ct_err *err);

/* The address at which this machine reaches the job's store, HOST:PORT. */
void ct_agent_store_reached(const struct ct_agent_run *run, char out[CT_ADDR_JOIN_MAX]);

/* The address of the workers' store that this node serves. */
const char *ct_agent_store_address(const struct ct_agent_run *run);

/* Opens the store of this node that is not the job's. To be called when the link is up. */
CT_MUST_CHECK int ct_agent_store_open_own(struct ct_agent_run *run, struct ct_err *err);

/* Closes the workers' store, if it is not the job's. */
void ct_agent_store_close_own(struct ct_agent_store *store);

/* From now on the job's store is there. `host` is copied. */
void ct_agent_store_move(struct ct_agent_store *store, const char *host, uint16_t port);

/* The store of this node that is not the job's becomes the job's, and the other way round. */
void ct_agent_store_take_over(struct ct_agent_run *run);
void ct_agent_store_let_go(struct ct_agent_run *run);

/* Closes the job's store: after --linger, and one that other machines share only when their agents
 * have left, or have had time to leave. */
void ct_agent_store_close(struct ct_agent_run *run);

/* ---- agent_page_uv.c ------------------------------------------------------------------------- */

/* Says where the live page is, if this node hosts it and somebody wants to know. `at_end` says that
 * --linger keeps it. */
void ct_agent_page_say(struct ct_agent_run *run, bool at_end);

/* Returns true if the page stays after the end of this job. It does not if a signal has ended the
 * job, or if the job never began. */
bool ct_agent_page_lingers(const struct ct_agent_run *run);

/* ---- agent_link_uv.c ------------------------------------------------------------------------- */

/* Opens the link to the membership. The agent gets CT_AGENT_EV_UP when the link is up. */
CT_MUST_CHECK int ct_agent_link_open(struct ct_agent_run *run, struct ct_err *err);

/* Sends the messages that are named (enum ct_agent_message). */
void ct_agent_link_send(struct ct_agent_run *run, unsigned say);

/* Sends the states of the workers now, without waiting for the next beat. */
void ct_agent_link_beat(struct ct_agent_run *run);

/* Waits until the last messages to the membership have been sent, then closes the stores. */
void ct_agent_link_close(struct ct_agent_run *run);

/* ---- agent_failover_uv.c --------------------------------------------------------------------- */

/* Decides whether this job outlives the host of its membership, and prepares that. CT_ENOMEM,
 * CT_EIO.
 */
CT_MUST_CHECK int ct_agent_failover_open(struct ct_agent_run *run, struct ct_err *err);

/* To be called when this node has opened the job's store, before any agent can join. */
void ct_agent_failover_host_first(struct ct_agent_run *run);

/* In a job that meets through etcd: begins to look for its host. */
CT_MUST_CHECK int ct_agent_failover_seek(struct ct_agent_run *run, struct ct_err *err);

/* To be called when the link is up. Returns false if it leads to no host of the job; then it is
 * closed. */
bool ct_agent_failover_up(struct ct_agent_run *run);

/* A RECORD has come. */
void ct_agent_failover_record(struct ct_agent_run *run, const struct ct_msg *msg);

/* A world has come. */
void ct_agent_failover_world(struct ct_agent_run *run);

/* The machine at the other end of the link does not host the job, and says who does. */
void ct_agent_failover_moved(struct ct_agent_run *run, const struct ct_voter *host);

/* The link is lost. Returns true if another host is looked for. */
bool ct_agent_failover_lost(struct ct_agent_run *run, const struct ct_err *why);

/* The time that workers may take to stop: `grace_ms`, or what is left before others may start the
 * next world without this node. */
int64_t ct_agent_failover_grace_ms(const struct ct_agent_run *run, int64_t grace_ms);

/* Gives the addresses of the other machines of this world that may go on with the job when this
 * one is lost; "" = it ends then. */
void ct_agent_failover_others(const struct ct_agent_run *run, char out[CT_HOST_LIST_MAX]);

void ct_agent_failover_close(struct ct_agent_run *run);

/* ---- agent_query_uv.c ------------------------------------------------------------------------ */

/* Answers a question of the membership about a worker of this node, now or in a few seconds. */
void ct_agent_query(struct ct_agent_run *run, const struct ct_msg_query *query, int generation);

/* Answers no question any more. */
void ct_agent_queries_close(struct ct_agent_run *run);

/* Tells the membership where the workers stand; NULL = nothing is known. `data` is the run. */
void ct_agent_tell_stands(void *data, const struct ct_stands *stands);

/* Tells the membership that a hang was reported, or is over. `data` is the run. */
void ct_agent_tell_hang(void *data);

/* Looks at the memory of the workers, unless that was done a short while ago. */
void ct_agent_sample_memory(struct ct_agent_run *run);

/* ---- agent_address_uv.c ---------------------------------------------------------------------- */

/* Looks up this machine's own name, for a job of several machines. */
void ct_agent_address_open(struct ct_agent_run *run);

/* To be called when the link is up. The agent hears of it at once or, if the name of this machine
 * is still being looked up, afterwards. */
void ct_agent_address_link_up(struct ct_agent_run *run);

void ct_agent_address_close(struct ct_agent_address *address);

/* To be called when a world has come. They decide which address of the store and which interface
 * the workers here are told. `told` is passed on to ct_store_address_master(). */
void ct_agent_address_choose_master(struct ct_agent_run *run, const char *told);
void ct_agent_address_choose_interface(struct ct_agent_run *run);

/* The address by which the other machines of this world reach this one. */
const char *ct_agent_address_here(const struct ct_agent_run *run);

/* ---- agent_guest_uv.c ------------------------------------------------------------------------ */

/* To be called when a world has come and worker_env names its store. Returns true when this node's
 * workers are not admitted to that store yet; then the agent hears of the world later. */
bool ct_agent_guest_open(struct ct_agent_run *run, struct ct_agent_event world);

/* To be called when `generation` is over. Returns true when the agent has not heard of that
 * generation yet; then the membership was told that it has no workers here. */
bool ct_agent_guest_cancel(struct ct_agent_run *run, int generation);

void ct_agent_guest_close(struct ct_agent_guest *guest);

/* ---- agent_check_uv.c ------------------------------------------------------------------------ */

/* Starts the first worker of a generation, after the checks of this machine. Returns true if the
 * agent hears later of that worker; else *event says what has become of it. */
bool ct_agent_check_and_start(struct ct_agent_run *run, struct ct_agent_event *event);

/* Ends what is being checked. */
void ct_agent_check_stop(struct ct_agent_run *run);

void ct_agent_check_fini(struct ct_agent_check *check);

/* ---- agent_workers_uv.c ---------------------------------------------------------------------- */

/* Forgets the last generation. To be called before anything is known of a worker of the new one. */
CT_MUST_CHECK int ct_agent_workers_begin(struct ct_agent_run *run);

/* Starts the worker and returns the event for the agent. */
struct ct_agent_event ct_agent_workers_start(struct ct_agent_run *run, int local_rank);

/* Stops this generation. The agent hears of it when all has ended and all output has come. */
void ct_agent_workers_stop(struct ct_agent_run *run, int signo, int64_t grace_ms);

/* The local rank of the worker whose process this is. */
int ct_agent_workers_rank_of(const struct ct_agent_workers *workers, const struct ct_proc *proc);

/* ---- agent_keep_uv.c ------------------------------------------------------------------------- */

/* Answers ct_procs_set_stay_fn(). */
enum ct_proc_stay ct_agent_keep_may_stay(void *data, struct ct_proc *proc, bool late);

/* To be called when all other workers have ended. Marks the workers that have parked as kept. */
void ct_agent_keep_parked(struct ct_agent_workers *workers);

/* Lets a worker that was kept go on in this generation. Returns false when no such worker is left;
 * then a new process must be started. */
bool ct_agent_keep_resume(struct ct_agent_workers *workers, const struct ct_log *log,
                          int local_rank, const struct ct_worker_options *options);

/* To be called when all workers have started. Prints how many of them were kept. */
void ct_agent_keep_report(struct ct_agent_run *run);

/* ---- agent_warm_uv.c ------------------------------------------------------------------------- */

/* Does nothing without --warm, or where it has no effect. CT_ENOMEM. */
CT_MUST_CHECK int ct_agent_warm_open(struct ct_agent_run *run, struct ct_err *err);

/* To be called at the beginning: spares can import while machines are missing, also that of the
 * store. */
void ct_agent_warm_wait(struct ct_agent_run *run);

/* To be called when all workers of a generation have started; and when they are to stop, or a world
 * has come. A spare that imports then goes on. */
void ct_agent_warm_run(struct ct_agent_run *run);
void ct_agent_warm_stop(struct ct_agent_run *run);

/* Ends the spare that still imports, if there is one. */
void ct_agent_warm_end_import(struct ct_agent_run *run);

/* Answers for a process that is a spare, or is one no more; returns false for any other. */
bool ct_agent_warm_may_stay(struct ct_agent_run *run, struct ct_proc *proc,
                            enum ct_proc_stay *answer);

/* To be called at the end of a stop: gives up the spares that SIGKILL has not ended. Returns
 * whether any other spare lives. */
bool ct_agent_warm_stopped(struct ct_agent_run *run);

/* To be called when a generation begins: gives the spares the priority and the environment of
 * workers, and ends those that do not answer. One that still imports is waited for, or ended
 * (ct_warm_waits()). Returns false if there is nothing to wait for;
 * otherwise the first worker is started when all have answered. */
bool ct_agent_warm_begin(struct ct_agent_run *run);

/* Makes a worker of the spare of this local rank; see struct ct_worker_options. */
struct ct_proc *ct_agent_warm_take(void *data, int local_rank, char *const *argv, char *const *env,
                                   const int stdio[3], ct_proc_exit_fn on_exit, void *owner);

/* To be called when all workers have started. Prints how many of them were spares. */
void ct_agent_warm_report(struct ct_agent_run *run);

/* Tells what is kept ready; *out must be zeroed. Nothing without --warm. */
void ct_agent_warm_facts(const struct ct_agent_run *run, struct ct_warm_facts *out);

/* Ends what is left. Repeated calls are allowed. */
void ct_agent_warm_close(struct ct_agent_run *run);

/* ---- agent_signals_uv.c ---------------------------------------------------------------------- */

/* Takes a signal that asks for the end of the job, or of --linger after it. */
void ct_agent_signals_receive(struct ct_agent_run *run, int signo);

CT_MUST_CHECK int ct_agent_signals_open(struct ct_agent_run *run, struct ct_err *err);

/* From now on a signal ends ctrun in the usual way. Repeated calls are allowed. */
void ct_agent_signals_stop_stacks(struct ct_agent_run *run); /* nobody is asked any more */
void ct_agent_signals_close(struct ct_agent_run *run);

/* Tells the workers by key and by file that the job is asked to end. */
void ct_agent_signals_notify(struct ct_agent_run *run);

/* ---- agent_report_uv.c ----------------------------------------------------------------------- */

/* Does this ctrun print messages about the whole job? Where a scheduler starts one ctrun for each
 * rank, only the first ctrun of a machine does. Each prints messages about its own worker. */
bool ct_agent_report_speaks(const struct ct_resolved *resolved);

/* Prints one line of ctrun's own on stderr, in order with what workers wrote. Before the output is
 * open (NULL) it prints nothing. */
void ct_agent_report_say(struct ct_output *output, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* What run->log calls; `data` is a struct ct_output **. */
void ct_agent_report_log(void *data, enum ct_log_level level, const char *line);

/* To be called when a worker here has failed: notes what is known of it. */
void ct_agent_report_failure(struct ct_agent_run *run);

/* To be called when the generation is broken: says why, at once. */
void ct_agent_report_headline(struct ct_agent_run *run);

/* To be called when everything is stopped. Copies the last output and the error file of the worker
 * that failed, before its streams are freed. */
void ct_agent_report_collect(struct ct_agent_run *run);

/* To be called when it is known whether a generation follows. Prints how this one ended. */
void ct_agent_report_generation(struct ct_agent_run *run);

/* To be called at the end: reports the whole job, on the screen and in the file of --report. */
void ct_agent_report_job(struct ct_agent_run *run);

/* Tells whoever asks the store of this node for it how the job has ended. */
void ct_agent_report_end(struct ct_agent_run *run);

/* Writes the states of the workers into a BEAT or STARTED. Without memory the message has none. */
void ct_agent_report_rows(const struct ct_agent_run *run, struct ct_msg *msg);

/* ---- agent_trace_uv.c ------------------------------------------------------------------------ */

/* Begins to record if --trace is given. CT_ENOMEM. */
CT_MUST_CHECK int ct_agent_trace_open(struct ct_agent_run *run, struct ct_err *err);

/* To be called when a worker was started, or was kept, for this generation. */
void ct_agent_trace_worker_begin(struct ct_agent_run *run, int local_rank);

/* To be called when its process has ended. */
void ct_agent_trace_worker_end(struct ct_agent_run *run, int local_rank);

/* To be called when the processes of a generation have ended. Those that are kept leave it. */
void ct_agent_trace_stopped(struct ct_agent_run *run);

/* To be called when a signal has asked for the end of the job. */
void ct_agent_trace_signal(struct ct_agent_run *run, int signo);

/* Writes the file. If it cannot be written, a warning says so. */
void ct_agent_trace_write(struct ct_agent_run *run);

void ct_agent_trace_close(struct ct_agent_trace *trace); /* repeated calls are allowed */

#endif
