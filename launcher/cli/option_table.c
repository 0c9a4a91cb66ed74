/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows, in the order of --help all, and the search for one; option_apply.c reads their values.
 */
#include "launcher/cli/option_table.h"

#include "rendezvous/control/control.h"

#include <limits.h>
#include <string.h>

/* Where a value is stored. A field of another C type than the row's does not compile. */
/* clang-format off */
#define FIELD(member, c_type, option_type)                                     \
    .type = _Generic(((struct ct_options *)NULL)->member, c_type: option_type), \
    .field = offsetof(struct ct_options, member)
/* clang-format on */
#define FLAG(member) FIELD(member, bool, CT_TYPE_FLAG)
#define NUMBER(member, low, high) FIELD(member, int, CT_TYPE_NUMBER), .min = (low), .max = (high)
#define TEXT(member) FIELD(member, const char *, CT_TYPE_TEXT)
#define ANY_TEXT(member) FIELD(member, const char *, CT_TYPE_ANY_TEXT)
#define WORD(member, c_type, first) \
    FIELD(member, enum c_type, CT_TYPE_WORD), .min = (int)(first), .words = member##_words

/* Each in the order of its enum. */
static const char *const bind_words[] = {"node", "socket", "exclusive", "core-complex", NULL};
static const char *const gpu_bind_words[] = {"none", "mask", NULL};
static const char *const slow_output_words[] = {"auto", "wait", "drop", NULL};
static const char *const fold_words[] = {"auto", "off", NULL};
static const char *const on_hang_words[] = {"report", "restart", "abort", NULL};

_Static_assert(sizeof(enum ct_bind) == sizeof(int), "the number of a word is stored as an int");

const struct ct_option_spec ct_option_table[] = {
    {CT_OPT_NPROC_PER_NODE, 'n', false, "nproc-per-node", "N|auto|cpu|gpu",
     "workers to start: a number, gpu (one per GPU), cpu (one per CPU), or\n"
     "auto (gpu if there is one, else cpu); -np N is the same. Default 1",
     .topic = CT_HELP_JOB, .brief = "workers to start"},
    {CT_OPT_MODULE, 'm', false, "module", NULL,
     "PROGRAM is a Python module: run python3 -u -m PROGRAM", .topic = CT_HELP_JOB,
     .brief = "PROGRAM is a Python module", FLAG(module)},
    {CT_OPT_NO_PYTHON, 0, false, "no-python", NULL,
     "execute PROGRAM directly even if its name ends in .py", .topic = CT_HELP_JOB,
     FLAG(no_python)},
    {CT_OPT_ROLE, 0, false, "role", "NAME", "role of the workers (ROLE_NAME). Default: default",
     .topic = CT_HELP_JOB, ANY_TEXT(role)},
    {CT_OPT_RDZV_ID, 0, false, "rdzv-id", "ID",
     "id of the job (TORCHELASTIC_RUN_ID). Default: a random one", .empty_is_default = true,
     .topic = CT_HELP_JOB},
    {CT_OPT_REPORT, 0, false, "report", "FILE",
     "at the end, write a report of the job to FILE as JSON; see ctreport(5)", .ctrun_only = true,
     .topic = CT_HELP_JOB, .brief = "write a report of the job as JSON", TEXT(report)},
    {CT_OPT_TRACE, 0, false, "trace", "FILE",
     "at the end, write what happened on this machine to FILE: spans and\n"
     "counters that ui.perfetto.dev and chrome://tracing show",
     .ctrun_only = true, .topic = CT_HELP_JOB, TEXT(trace)},
    {CT_OPT_DETACH, 0, true, "detach", NULL,
     "let the job go on without this terminal; its output goes to a file, and\n"
     "lines say where it is, how to see it again, and how to end it",
     .ctrun_only = true, .topic = CT_HELP_JOB, .brief = "let the job go on without the terminal",
     FLAG(detach)},
    {CT_OPT_ATTACH, 0, true, "attach", "[JOB]",
     "show a job of --detach on this machine, by its id, a beginning of that,\n"
     "or its store's HOST:PORT; exit with its code. Default: the only one",
     .ctrun_only = true, .topic = CT_HELP_JOB, .brief = "show such a job, and exit with its code"},
    {CT_OPT_PRINT_CONFIG, 0, true, "print-config", NULL,
     "print which scheduler was found, what would be started, and where each\n"
     "value comes from; start nothing",
     .ctrun_only = true, .topic = CT_HELP_JOB, .brief = "show what would be started, and why",
     FLAG(print_config)},
    {CT_OPT_PRINT_COMPLETION, 0, true, "print-completion", "bash|zsh",
     "print a completion script for this shell and exit", .topic = CT_HELP_JOB},
    {CT_OPT_VERSION, 'V', true, "version", NULL, "print the version and exit", .topic = CT_HELP_JOB,
     FLAG(version)},
    {CT_OPT_HELP, 'h', true, "help", "[WORD]",
     "print the usual options, those of a topic, all options (all), or those\n"
     "whose name or text has the word, and exit",
     .topic = CT_HELP_JOB}, /* the overview ends with it */
    {CT_OPT_MAX_RESTARTS, 0, false, "max-restarts", "N",
     "how often to restart all workers after one of them failed. Default 0",
     .topic = CT_HELP_RESTART, .brief = "how often to restart the workers",
     NUMBER(max_restarts, 0, INT_MAX)},
    {CT_OPT_RESTART_BUDGET, 0, false, "restart-budget", "N/TIME",
     "at most N restarts in any window of TIME, as in 10/24h or 3/30m.\n"
     "Without --max-restarts there is no other limit",
     .ctrun_only = true, .topic = CT_HELP_RESTART},
    {CT_OPT_MAX_NO_PROGRESS, 0, false, "max-no-progress", "N",
     "end the job with 119 after N failed generations in a row that reached\n"
     "no new step; only if the program reports steps. Default 0: off",
     .ctrun_only = true, .topic = CT_HELP_RESTART,
     NUMBER(limits.max_no_progress, 0, CT_RESTARTS_ROW_MAX)},
    {CT_OPT_NO_RESTART_ON, 0, false, "no-restart-on", "CODE|SIGNAL,...",
     "exit codes (3, 64-78) and signals (SIGSEGV) of a worker after which the\n"
     "job ends with 119 instead of restarting",
     .ctrun_only = true, .topic = CT_HELP_RESTART},
    {CT_OPT_BAN_AFTER, 0, false, "ban-after", "K",
     "leave out a machine on which K generations in a row failed first, if a\n"
     "spare or a smaller world allows it. Default 0: never",
     .ctrun_only = true, .topic = CT_HELP_RESTART,
     NUMBER(limits.ban_after, 0, CT_RESTARTS_ROW_MAX)},
    {CT_OPT_HEALTH_CHECK, 0, false, "health-check", "COMMAND",
     "run COMMAND on each machine before each generation; a machine on which\n"
     "it does not exit with 0 is left out, if another one can take its place",
     .ctrun_only = true, .topic = CT_HELP_RESTART, TEXT(health_check)},
    {CT_OPT_HEALTH_CHECK_TIMEOUT, 0, false, "health-check-timeout", "SECONDS",
     "how long that command may take, before it is killed and the machine\n"
     "counts as failed. Default 30",
     .ctrun_only = true, .topic = CT_HELP_RESTART, NUMBER(health_check_timeout, 1, 86400)},
    {CT_OPT_PREFLIGHT, 0, false, "preflight", "[=first|each]",
     "before the first generation (each: before each), check shared memory,\n"
     "limits, disk, clock and GPUs of every machine, and the network between\n"
     "them; a machine that is not fit is left out as by --health-check",
     .after_equals = true, .ctrun_only = true, .topic = CT_HELP_RESTART},
    {CT_OPT_PREFLIGHT_ONLY, 0, false, "preflight-only", NULL,
     "check the machines, print a table, and run no program", .ctrun_only = true,
     .topic = CT_HELP_RESTART, FLAG(preflight_only)},
    {CT_OPT_PREFLIGHT_LIMITS, 0, false, "preflight-limits", "KEY=VALUE,...",
     "what a machine must have. Keys: shm (32M for each worker), disk (256M),\n"
     "clock (10 s), memlock, gpus, bandwidth (bytes/s) and latency (seconds)",
     .ctrun_only = true, .topic = CT_HELP_RESTART},
    {CT_OPT_SHUTDOWN_TIMEOUT, 0, false, "shutdown-timeout", "SECONDS",
     "how long a worker may take to stop, before it is killed. Default:\n"
     "TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30",
     .topic = CT_HELP_RESTART},
    {CT_OPT_SIGNALS, 0, false, "signals-to-handle", "SIGNAL,SIGNAL,...",
     "signals that end the job and are passed on to the workers. Default\n"
     "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
     .topic = CT_HELP_RESTART, ANY_TEXT(signals)},
    {CT_OPT_PREEMPT_SIGNAL, 0, false, "preempt-signal", "SIGNAL",
     "the signal that workers get at a notice of preemption, which is any\n"
     "signal but SIGINT that ends the job. Default: the same signal",
     .ctrun_only = true, .topic = CT_HELP_RESTART},
    {CT_OPT_WARM, 0, false, "warm", "[=N]",
     "keep N interpreters ready that have imported what the program imports,\n"
     "for the next generation. Default of N: one for each worker. Needs\n"
     "--max-restarts, --restart-budget, or a job of several machines",
     .after_equals = true, .ctrun_only = true, .topic = CT_HELP_RESTART},
    {CT_OPT_WARM_IMPORT, 0, false, "warm-import", "NAME,NAME,...|auto",
     "the modules that they import. Default auto: those of the standard\n"
     "library and of site-packages that the program imports first",
     .ctrun_only = true, .topic = CT_HELP_RESTART},
    {CT_OPT_WARM_MEMORY, 0, false, "warm-memory", "MIB",
     "how much memory all of them may take. Default: until less than a tenth\n"
     "of the memory is free",
     .ctrun_only = true, .topic = CT_HELP_RESTART, NUMBER(warm_memory_mib, 1, INT_MAX)},
    {CT_OPT_HANG_TIMEOUT, 0, false, "hang-timeout", "SECONDS|auto|off",
     "report a worker that makes no progress for this long while others\n"
     "wait for it, and restart the job (see --on-hang). Progress is a step\n"
     "that is told with ctworker, else more than a fiftieth of a CPU.\n"
     "Default off",
     .ctrun_only = true, .topic = CT_HELP_HANG, .brief = "report a worker that hangs"},
    {CT_OPT_ON_HANG, 0, false, "on-hang", "report|restart|abort",
     "what to do when a worker hangs. Default restart", .ctrun_only = true, .topic = CT_HELP_HANG,
     WORD(on_hang, ct_on_hang, CT_ON_HANG_REPORT)},
    {CT_OPT_HANG_STACKS, 0, false, "hang-stacks", "SECONDS|off",
     "at a hang, ask the workers for so long where they stand, and print\n"
     "their stacks. Default 5",
     .ctrun_only = true, .topic = CT_HELP_HANG},
    {CT_OPT_SLOW_FACTOR, 0, false, "slow-factor", "FACTOR|off",
     "say which worker works so many times as long as the others, which\n"
     "wait for it, and where it stands. Default off",
     .ctrun_only = true, .topic = CT_HELP_HANG},
    {CT_OPT_REDIRECTS, 'r', false, "redirects", "MAP",
     "write output to files instead: 0 none, 1 stdout, 2 stderr, 3 both,\n"
     "or by local rank as in 0:1,1:3. Default 0",
     .topic = CT_HELP_OUTPUT, .brief = "write output to files instead"},
    {CT_OPT_TEE, 't', false, "tee", "MAP", "like --redirects, and also show the output. Default 0",
     .topic = CT_HELP_OUTPUT, .brief = "write it to files and show it"},
    {CT_OPT_LOG_DIR, 0, false, "log-dir", "DIR",
     "folder for the files of --redirects and --tee, and for error files.\n"
     "/dev/null: no such files. Default: a temporary one",
     .empty_is_default = true, .topic = CT_HELP_OUTPUT, .brief = "folder for log and error files",
     TEXT(log_dir)},
    {CT_OPT_LOCAL_RANKS_FILTER, 0, false, "local-ranks-filter", "RANK,RANK,...",
     "show output of these local ranks only", .empty_is_default = true, .topic = CT_HELP_OUTPUT},
    {CT_OPT_PREFIX_TEMPLATE, 0, false, "log-line-prefix-template", "TEXT",
     "prefix of each line, in which ${role_name} ${local_rank} ${rank} and\n"
     "${hostname} are replaced; '' = none. Default:\n"
     "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, else the rank",
     .topic = CT_HELP_OUTPUT, ANY_TEXT(prefix_template)},
    {CT_OPT_STDOUT_FILTERS, 0, false, "duplicate-stdout-filters", "TEXT,TEXT,...",
     "copy the lines of stdout that contain one of these texts to the file\n"
     "filtered_stdout.log (needs --tee); \",,\" is a comma within a text",
     .topic = CT_HELP_OUTPUT, .empty_is_default = true, TEXT(out_filter)},
    {CT_OPT_STDERR_FILTERS, 0, false, "duplicate-stderr-filters", "TEXT,TEXT,...",
     "the same for stderr and filtered_stderr.log", .topic = CT_HELP_OUTPUT,
     .empty_is_default = true, TEXT(err_filter)},
    {CT_OPT_SLOW_OUTPUT, 0, false, "slow-output", "auto|wait|drop",
     "if stdout or stderr is not read fast enough, let workers wait, or drop\n"
     "lines and say how many. Default auto: drop on a terminal, else wait",
     .ctrun_only = true, .topic = CT_HELP_OUTPUT,
     WORD(slow_output, ct_slow_output, CT_SLOW_OUTPUT_AUTO)},
    {CT_OPT_FOLD, 0, false, "fold", "auto|off",
     "on a terminal, show equal lines of several workers as one: [0-7] text.\n"
     "Default auto",
     .ctrun_only = true, .topic = CT_HELP_OUTPUT, WORD(fold, ct_fold_mode, CT_FOLD_MODE_AUTO)},
    {CT_OPT_PRINT_URL, 0, false, "print-url", NULL,
     "print the address of the job's live page even if stderr is no terminal", .ctrun_only = true,
     .topic = CT_HELP_OUTPUT, FLAG(print_url)},
    {CT_OPT_LINGER, 0, false, "linger", "SECONDS",
     "how long to keep the live page after the end of the job. Default 0", .ctrun_only = true,
     .topic = CT_HELP_OUTPUT, NUMBER(linger, 0, 86400)},
    {CT_OPT_NO_PROGRESS, 0, false, "no-progress", NULL,
     "on a terminal, do not show the live line below the output", .ctrun_only = true,
     .topic = CT_HELP_OUTPUT, FLAG(no_progress)},
    {CT_OPT_NNODES, 0, false, "nnodes", "N|MIN:MAX",
     "number of machines; with MIN:MAX the job may grow and shrink. Start\n"
     "ctrun on each machine. Default 1",
     .topic = CT_HELP_NODES, .brief = "number of machines"},
    {CT_OPT_STANDALONE, 0, false, "standalone", NULL,
     "one machine, with the store on 127.0.0.1 and a free port; --master-addr,\n"
     "--master-port and --rdzv-endpoint are ignored",
     .topic = CT_HELP_NODES, FLAG(standalone)},
    {CT_OPT_MASTER_ADDR, 0, false, "master-addr", "ADDRESS",
     "address the store listens on and workers connect to. Default\n"
     "127.0.0.1",
     .empty_is_default = true, .topic = CT_HELP_NODES, .brief = "address and port of the store,"},
    {CT_OPT_MASTER_PORT, 0, false, "master-port", "PORT",
     "port of the store; 0 = a free one, for one machine. Default 0, or 29500\n"
     "with several machines",
     .topic = CT_HELP_NODES, .brief = "the same on every machine", NUMBER(master_port, 0, 65535)},
    {CT_OPT_NODE_RANK, 0, false, "node-rank", "N",
     "number of this machine. Default: by the order of the host names", .topic = CT_HELP_NODES,
     NUMBER(node_rank, 0, CT_MAX_NODES - 1)},
    {CT_OPT_LOCAL_ADDR, 0, false, "local-addr", "ADDRESS",
     "address that workers are given for a store on this machine, if neither\n"
     "--master-addr nor a static endpoint gives it",
     .empty_is_default = true, .topic = CT_HELP_NODES},
    {CT_OPT_RDZV_BACKEND, 0, false, "rdzv-backend", "static|c10d|etcd",
     "which options give the address of the store. static: --rdzv-endpoint,\n"
     "else --master-addr and --master-port; c10d: --rdzv-endpoint only;\n"
     "etcd: none, the machines meet through etcd at --rdzv-endpoint, and need\n"
     "a token and --rdzv-id. Default static",
     .topic = CT_HELP_NODES},
    {CT_OPT_RDZV_ENDPOINT, 0, false, "rdzv-endpoint", "HOST[:PORT]",
     "address and port of the store, or of etcd (HOST[:PORT],...; 2379). On\n"
     "one machine, port 0 or no port (c10d only) means a free port",
     .empty_is_default = true, .topic = CT_HELP_NODES},
    {CT_OPT_RDZV_CONF, 0, false, "rdzv-conf", "KEY=VALUE,...",
     "keys: join_timeout (600), last_call_timeout (3), heartbeat_timeout (3),\n"
     "all in seconds, is_host and failover; other keys have no effect",
     .topic = CT_HELP_NODES},
    {CT_OPT_SPARES, 0, false, "spares", "N",
     "machines beyond --nnodes that wait to replace a lost one. Default 0", .ctrun_only = true,
     .topic = CT_HELP_NODES, NUMBER(spares, 0, CT_MAX_NODES - 1)},
    {CT_OPT_TOKEN_FILE, 0, false, "token-file", "FILE",
     "file with the token, the secret of the job's machines; else CTRUN_TOKEN.\n"
     "(umask 077 && head -c 32 /dev/urandom | base64 >FILE) makes one",
     .ctrun_only = true, .topic = CT_HELP_NODES, TEXT(token_file)},
    {CT_OPT_OPEN, 0, false, "open", NULL,
     "admit every client that reaches the store, also of other users of this\n"
     "machine, and do not warn that there is no token",
     .ctrun_only = true, .topic = CT_HELP_NODES, FLAG(open)},
    {CT_OPT_HOSTS, 'H', false, "hosts", "HOST[:N],...",
     "start a ctrun on each of these machines, with N workers each", .ctrun_only = true,
     .topic = CT_HELP_HOSTS, .brief = "start ctrun on these machines"},
    {CT_OPT_HOSTFILE, 0, false, "hostfile", "FILE",
     "like --hosts, from a file with \"HOST slots=N\" or \"HOST:N\" on each line",
     .ctrun_only = true, .topic = CT_HELP_HOSTS},
    {CT_OPT_LAUNCH_AGENT, 0, false, "launch-agent", "COMMAND",
     "the command that starts ctrun on another machine. Default ssh", .ctrun_only = true,
     .topic = CT_HELP_HOSTS, TEXT(launch_agent)},
    {CT_OPT_AGENT_STDIN, 0, true, "agent-stdin", NULL, NULL, .ctrun_only = true,
     .topic = CT_HELP_HOSTS, FLAG(agent_stdin)},
    {CT_OPT_AGENT_JOB, 0, true, "agent-job", "ID", NULL, .ctrun_only = true, .topic = CT_HELP_HOSTS,
     TEXT(agent_job)},
    {CT_OPT_BIND, 0, false, "bind", "none|numa|core",
     "bind each worker to the CPUs of its NUMA node, or to its share of\n"
     "the node's cores. Default none",
     .ctrun_only = true, .topic = CT_HELP_BINDING, .brief = "bind workers to CPUs"},
    {CT_OPT_NUMA_BINDING, 0, true, "numa-binding", "node|socket|exclusive|core-complex",
     "like --bind, with torchrun's names", .topic = CT_HELP_BINDING,
     WORD(bind, ct_bind, CT_BIND_NODE)},
    {CT_OPT_GPU_BIND, 0, false, "gpu-bind", "none|mask",
     "show each worker its own GPU only (mask), or all of them. Default\n"
     "none, but mask for MIG devices",
     .ctrun_only = true, .topic = CT_HELP_GPU, .brief = "show each worker one GPU, or all",
     WORD(gpu_bind, ct_gpu_bind, CT_GPU_BIND_NONE)},
    {CT_OPT_VIRTUAL_LOCAL_RANK, 0, false, "virtual-local-rank", NULL,
     "LOCAL_RANK is 0 for all, and each worker sees one GPU", .topic = CT_HELP_GPU,
     FLAG(virtual_local_rank)},
    {CT_OPT_SHARE_GPU, 0, false, "share-gpu", NULL,
     "let several workers use one GPU if there are fewer GPUs than workers", .ctrun_only = true,
     .topic = CT_HELP_GPU, FLAG(share_gpu)},
    {CT_OPT_MONITOR_INTERVAL, 0, false, "monitor-interval", "SECONDS",
     "no effect: the kernel tells ctrun at once when a worker ends", .topic = CT_HELP_TORCHRUN},
    {CT_OPT_START_METHOD, 0, false, "start-method", "spawn|fork|forkserver",
     "no effect: it concerns Python functions, not programs", .topic = CT_HELP_TORCHRUN},
    {CT_OPT_EVENT_LOG_HANDLER, 0, false, "event-log-handler", "null|console|dynamic_rendezvous",
     "no effect: ctrun has no such events", .topic = CT_HELP_TORCHRUN},

    /* The other options of torchrun 2.14. They are refused by name, and their abbreviations do not
     * silently mean another option. */
    {CT_OPT_REFUSED, 0, false, "run-path", NULL, NULL,
     "is not supported: it runs a script inside a Python launcher"},
    {CT_OPT_REFUSED, 0, true, "logs-specs", "", NULL,
     "is not supported: it names a Python plug-in"},
};

const size_t ct_option_count = sizeof(ct_option_table) / sizeof(ct_option_table[0]);

const struct ct_option_spec *ct_option_by_name(const char *name, size_t len)
{
    for (size_t i = 0; i < ct_option_count; i++) {
        const char *ours = ct_option_table[i].name;
        size_t same = 0;
        while (same < len &&
               (name[same] == ours[same] || (name[same] == '_' && ours[same] == '-'))) {
            same++;
        }
        if (same == len && ours[same] == '\0' && ct_option_is_shown(&ct_option_table[i])) {
            return &ct_option_table[i];
        }
    }
    return NULL;
}
