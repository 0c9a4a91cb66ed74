/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of ctrun, by torchrun's rules: dashes and underscores are the same, "--opt V"
 * and "--opt=V", bundled short options ("-mr3"), unique abbreviations; parsing stops at the first
 * word that is no option, and a "--" in front of it is dropped. An option may also come from
 * PET_<NAME> in the environment (PET_NPROC_PER_NODE, ...); the command line wins. An empty PET_
 * variable counts as unset.
 *
 * One table drives parsing, --help, completion and the PET_ variables; see option_table.h.
 */
#ifndef CT_LAUNCHER_CLI_OPTIONS_H
#define CT_LAUNCHER_CLI_OPTIONS_H

#include "common/addr.h"
#include "common/err.h"
#include "common/job_registry.h"
#include "launcher/binding/binding.h"
#include "launcher/binding/gpu_mask.h"
#include "launcher/cli/completion.h"
#include "launcher/cli/rdzv_conf.h"
#include "launcher/cli/redirects.h"
#include "launcher/util/code_set.h"
#include "rendezvous/control/restarts.h"

#include <stdbool.h>
#include <stdint.h>

/* The most workers on one machine that launch times were measured with. */
#define CT_WORKERS_MAX 4096

/* Words with one bit for each option. */
#define CT_OPTION_WORDS 2

enum ct_nproc_kind {
    CT_NPROC_COUNT, /* as many as `nproc` */
    CT_NPROC_AUTO,  /* one for each GPU, or for each CPU if there is no GPU */
    CT_NPROC_CPU,
    CT_NPROC_GPU,
};

enum ct_rdzv_backend {
    CT_RDZV_STATIC, /* --master-addr and --master-port, or an endpoint with a port */
    CT_RDZV_C10D,   /* an endpoint, or any free port of this machine */
    CT_RDZV_ETCD,   /* the endpoint is etcd, which knows who hosts the store */
};

/* What happens to lines that ctrun's stdout or stderr does not take at once. */
enum ct_slow_output {
    CT_SLOW_OUTPUT_AUTO, /* dropped where it is a terminal */
    CT_SLOW_OUTPUT_WAIT, /* the workers wait */
    CT_SLOW_OUTPUT_DROP,
};

/* Are equal lines of several workers shown as one? */
enum ct_fold_mode {
    CT_FOLD_MODE_AUTO, /* where they go to a terminal */
    CT_FOLD_MODE_OFF,
};

/* Before which generations the machines and their network are checked. */
enum ct_preflight_when { CT_PREFLIGHT_OFF, CT_PREFLIGHT_FIRST, CT_PREFLIGHT_EACH };

enum ct_on_hang { CT_ON_HANG_REPORT, CT_ON_HANG_RESTART, CT_ON_HANG_ABORT };

struct ct_rank_set {
    bool given; /* false: every rank is in it */
    uint64_t bits[CT_WORKERS_MAX / 64];
};

/* Where the value of an option comes from. */
enum ct_given {
    CT_GIVEN_NOT, /* it is the default */
    CT_GIVEN_ENV, /* its PET_ variable */
    CT_GIVEN_FLAG,
};

/* The options that the user gave, and the defaults of the others. Nothing changes after
 * ct_options_parse(). Where struct ct_resolved has a field of the same name, read that one, because
 * it is the decided value. Strings are borrowed from argv and the environment. */
struct ct_options {
    /* Bits by enum ct_option_id; see ct_option_given(). */
    uint64_t given_by_env[CT_OPTION_WORDS], given_by_flag[CT_OPTION_WORDS];
    enum ct_nproc_kind nproc_kind;
    int nproc;
    bool standalone;
    bool module;
    bool no_python;
    bool virtual_local_rank;
    bool share_gpu;
    enum ct_gpu_bind gpu_bind;
    enum ct_slow_output slow_output;
    enum ct_fold_mode fold;
    bool no_progress; /* no live line */
    bool help;
    const char *help_topic; /* NULL = the usual options */
    bool version;
    bool print_config;
    enum ct_shell completion;      /* to be printed, instead of starting anything */
    char master_addr[CT_HOST_MAX]; /* without brackets; "" = not given */
    int master_port;               /* -1 = not given, 0 = the kernel chooses */
    enum ct_rdzv_backend backend;
    bool has_endpoint;
    struct ct_endpoint endpoint; /* but with etcd */
    const char *endpoint_text;   /* as it was given; NULL = it was not */
    struct ct_rdzv_conf rdzv_conf;
    char local_addr[CT_HOST_MAX]; /* without brackets; "" = not given */
    int min_nodes, max_nodes;     /* 1 <= min <= max */
    int node_rank;                /* -1 = not given: any */
    int spares;                   /* nodes beyond max_nodes that wait for one to be lost */
    const char *token_file;       /* NULL = not given */
    bool open;                    /* everybody may use the store */
    const char *hosts, *hostfile; /* machines to start on; NULL = not given */
    const char *launch_agent;     /* the command that starts a ctrun there */
    bool detach;                  /* the job goes on without its terminal */
    bool attach;                  /* show a job of --detach, and start none */
    const char *attach_job;       /* which; NULL = the only one */
    bool agent_stdin;             /* another ctrun started this one and writes to its stdin */
    const char *agent_job;        /* the id of the detached job for which it did; NULL = none */
    bool print_url;               /* say where the live page is, on whatever stderr is */
    int linger;                   /* seconds that the live page stays after the end */
    const char *report;           /* file for the report of the job; NULL = none */
    const char *trace;            /* file for the trace of this machine; NULL = none */
    int max_restarts;
    struct ct_restart_limits limits;
    const char *health_check; /* a command; NULL = none */
    int health_check_timeout; /* seconds */
    enum ct_preflight_when preflight;
    bool preflight_only;
    const char *preflight_limits;     /* checked; NULL = the defaults */
    struct ct_code_set no_restart_on; /* ends of a worker after which no restart follows */
    int warm;                /* spares that are wanted; 0 = none, -1 = one for each worker */
    const char *warm_import; /* NULL = not given */
    int warm_memory_mib;     /* 0 = not given */
    int64_t shutdown_timeout_ms;
    int64_t hang_timeout_ns; /* -1 = off, 0 = auto */
    enum ct_on_hang on_hang;
    int hang_stacks_ms; /* 0 = off */
    double slow_factor; /* 0 = off */
    enum ct_bind bind;  /* --bind, --numa-binding */
    struct ct_redirects redirects;
    struct ct_redirects tee;
    const char *log_dir;      /* NULL = not given */
    struct ct_rank_set shown; /* --local-ranks-filter */
    const char *role;
    const char *prefix_template;         /* NULL = not given, "" = no prefix */
    const char *out_filter, *err_filter; /* --duplicate-stdout-filters, ...; NULL = none */
    int preempt_signal;                  /* to workers; 0 = the one that ctrun has received */
    const char *signals;                 /* --signals-to-handle, as given */
    const char *run_id;                  /* NULL = not given */
    char *const *command; /* program and its arguments, NULL-terminated; NULL when only printing,
                             empty perhaps with --preflight-only */
};

/* Do the options ask for a text such as --help, and for no job? */
bool ct_options_only_print(const struct ct_options *options);

/* Reads the PET_ variables of `env`, then argv[1...]. CT_EINVAL for bad usage, CT_EUNSUPPORTED for
 * an option of torchrun that ctrun does not have; the text names the option or variable. With
 * --help or --version it stops there and succeeds. */
CT_MUST_CHECK int ct_options_parse(char *const *argv, char *const *env, struct ct_options *out,
                                   struct ct_err *err);

/* Does --local-addr say by which address others reach this machine? By a wildcard (0.0.0.0) they
 * would find themselves, so that one only says where this machine listens. */
bool ct_options_name_address(const struct ct_options *options);

/* Writes the program and its arguments as the user has named them, cut and cleaned. */
void ct_options_program(const struct ct_options *options, char out[CT_JOB_PROGRAM_MAX]);

bool ct_rank_set_has(const struct ct_rank_set *set, int rank);

#endif
