/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares command lines with the options or the error that must become of them, and checks that
 * every option of torchrun is known.
 */
#include "tests/lib/ct_test.h"

#include "launcher/cli/option_table.h"
#include "launcher/cli/options.h"

#include <stdio.h>

#define WORDS 12

/* One command line (without argv[0]) in one environment. */
struct row {
    const char *words[WORDS];
    const char *env[4];
    const char *error; /* part of the message; NULL = it parses */
    const char *shows; /* what show() makes of the options */
};

/* The options in one line, defaults left out. */
static void show(const struct ct_options *o, char *out, size_t size)
{
    static const char *const kinds[] = {"", "auto", "cpu", "gpu"};
    out[0] = '\0';
#define ADD(cond, ...)                                            \
    do {                                                          \
        if (cond) {                                               \
            size_t used = strlen(out);                            \
            (void)snprintf(out + used, size - used, __VA_ARGS__); \
        }                                                         \
    } while (0)
    ADD(o->nproc_kind != CT_NPROC_COUNT, "n=%s ", kinds[o->nproc_kind]);
    ADD(o->nproc != 1, "n=%d ", o->nproc);
    ADD(o->standalone, "standalone ");
    ADD(o->module, "module ");
    ADD(o->no_python, "no-python ");
    ADD(o->help, "help ");
    ADD(o->help_topic != NULL, "about=%s ", o->help_topic);
    ADD(o->version, "version ");
    ADD(o->completion != CT_SHELL_NONE, "completion=%d ", o->completion);
    ADD(o->master_addr[0] != '\0', "addr=%s ", o->master_addr);
    ADD(o->master_port != -1, "port=%d ", o->master_port);
    ADD(o->max_nodes > 1, "nodes=%d:%d+%d #%d ", o->min_nodes, o->max_nodes, o->spares,
        o->node_rank);
    ADD(o->report != NULL, "report=%s ", o->report);
    ADD(o->token_file != NULL, "token=%s ", o->token_file);
    ADD(o->backend == CT_RDZV_C10D, "c10d ");
    ADD(o->backend == CT_RDZV_ETCD, "etcd=%s ", o->endpoint_text != NULL ? o->endpoint_text : "");
    ADD(o->has_endpoint, "at=%s,%d ", o->endpoint.host,
        o->endpoint.has_port ? o->endpoint.port : -1);
    ADD(o->local_addr[0] != '\0', "local=%s ", o->local_addr);
    ADD(o->local_addr[0] != '\0' && !ct_options_name_address(o), "listens ");
    ADD(o->max_restarts != 0, "restarts=%d ", o->max_restarts);
    ADD(o->limits.window_restarts > 0, "budget=%d/%lld ", o->limits.window_restarts,
        (long long)o->limits.window_ms);
    ADD(o->limits.max_no_progress > 0, "stuck=%d ", o->limits.max_no_progress);
    ADD(ct_code_set_has(&o->no_restart_on, 139), "barred=%d%d%d ",
        ct_code_set_has(&o->no_restart_on, 3), ct_code_set_has(&o->no_restart_on, 4),
        ct_code_set_has(&o->no_restart_on, 139));
    ADD(o->shutdown_timeout_ms != 30000, "timeout=%d ", (int)o->shutdown_timeout_ms);
    ADD(ct_redirects_any(&o->redirects), "r=%u%u ", ct_redirects_of(&o->redirects, 0),
        ct_redirects_of(&o->redirects, 1));
    ADD(ct_redirects_any(&o->tee), "t=%u%u ", ct_redirects_of(&o->tee, 0),
        ct_redirects_of(&o->tee, 1));
    ADD(o->log_dir != NULL, "log=%s ", o->log_dir);
    ADD(o->shown.given, "shown=%d%d%d ", ct_rank_set_has(&o->shown, 0),
        ct_rank_set_has(&o->shown, 1), ct_rank_set_has(&o->shown, 4095));
    ADD(strcmp(o->role, "default") != 0, "role=%s ", o->role);
    ADD(o->preempt_signal != 0, "preempt=%d ", o->preempt_signal);
    ADD(o->fold == CT_FOLD_MODE_OFF, "fold=off ");
    ADD(!o->help && strcmp(o->signals, "SIGTERM,SIGINT,SIGHUP,SIGQUIT") != 0, "signals=%s ",
        o->signals);
    ADD(o->virtual_local_rank, "virtual ");
    ADD(o->gpu_bind != CT_GPU_BIND_UNSET, "gpus=%d ", o->gpu_bind);
    ADD(o->share_gpu, "share ");
    ADD(o->slow_output != 0, "slow=%d ", o->slow_output);
    ADD(o->prefix_template != NULL, "prefix=%s ", o->prefix_template);
    ADD(o->out_filter != NULL, "out=%s ", o->out_filter);
    ADD(o->err_filter != NULL, "err=%s ", o->err_filter);
    ADD(o->run_id != NULL, "id=%s ", o->run_id);
    ADD(o->command != NULL, ":");
    for (int i = 0; o->command != NULL && o->command[i] != NULL; i++) {
        ADD(true, " %s", o->command[i]);
    }
#undef ADD
}

static const struct row rows[] = {
    /* torchrun's examples and the shapes of argparse */
    {{"--standalone", "--nproc-per-node=4", "t.py", "--lr", "0.1"},
     {NULL},
     NULL,
     "n=4 standalone : t.py --lr 0.1"},
    {{"--standalone", "--nnodes", "1:4", "x"}, {NULL}, NULL, "standalone : x"},
    {{"--standalone", "x"}, {"PET_NNODES=2", "PET_NODE_RANK=1", NULL}, NULL, "standalone : x"},
    {{"--nnodes", "1:1", "--nproc_per_node=gpu", "--rdzv_id=j1", "t.py"},
     {NULL},
     NULL,
     "n=gpu id=j1 : t.py"},
    {{"--no-python", "--nproc-per-node", "2", "./a.out"}, {NULL}, NULL, "n=2 no-python : ./a.out"},
    {{"-r", "3", "-t", "0:1,1:2", "--log-dir", "L", "t.py"},
     {NULL},
     NULL,
     "r=33 t=12 log=L : t.py"},
    {{"--master-addr", "[::1]", "--master_port", "1234", "-m", "pkg.mod", "a", "b"},
     {NULL},
     NULL,
     "module addr=::1 port=1234 : pkg.mod a b"},
    {{"-mr3", "x"}, {NULL}, NULL, "module r=33 : x"},
    {{"-r=1", "x"}, {NULL}, NULL, "r=11 : x"},
    {{"-n2", "x"}, {NULL}, NULL, "n=2 : x"},
    {{"-n", "auto", "x"}, {NULL}, NULL, "n=auto : x"},
    {{"-n", "cpu", "x"}, {NULL}, NULL, "n=cpu : x"},
    {{"-n2", "-n", "3", "x"}, {NULL}, NULL, "n=3 : x"},
    {{"-np", "4", "x"}, {NULL}, NULL, "n=4 : x"},
    {{"-np=4", "x"}, {NULL}, NULL, "n=4 : x"},
    {{"-np"}, {NULL}, "-n: N|auto|cpu|gpu must follow (see ctrun --help nproc-per-node)", NULL},
    {{"-np4", "x"}, {NULL}, "-n: 'p4'", NULL},
    {{"-V"}, {"PET_NNODES=bad"}, NULL, "version timeout=-1 "},
    {{"-mV"}, {NULL}, NULL, "module version timeout=-1 "},
    {{"--nproc-per", "2", "x"}, {NULL}, NULL, "n=2 : x"},
    {{"--max-r", "1", "x"}, {NULL}, NULL, "restarts=1 : x"},
    {{"--restart-budget", "10/24", "x"},
     {NULL},
     NULL,
     "restarts=2147483647 budget=10/86400000 : x"},
    {{"--restart-budget", "3/30m", "--max-restarts", "5", "x"},
     {NULL},
     NULL,
     "restarts=5 budget=3/1800000 : x"},
    {{"--max-no-progress", "4", "x"}, {NULL}, NULL, "stuck=4 : x"},
    {{"--max-no-progress", "-1", "x"}, {NULL}, "--max-no-progress: '-1'", NULL},
    {{"--no-restart-on", "3,SIGSEGV", "x"}, {NULL}, NULL, "barred=101 : x"},
    {{"x"}, {"PET_NO_RESTART_ON=139"}, NULL, "barred=001 : x"},
    {{"--no-restart-on", "", "x"},
     {NULL},
     "--no-restart-on: there is no exit code and no signal",
     NULL},
    {{"--no-restart-on", "SEGV", "x"}, {NULL}, "--no-restart-on: 'SEGV' is no signal", NULL},
    {{"--local-ranks-filter", "0, 4095", "x"}, {NULL}, NULL, "shown=101 : x"},
    {{"--shutdown-timeout", "0", "x"}, {NULL}, NULL, "timeout=0 : x"},
    {{"--role", "trainer", "x"}, {NULL}, NULL, "role=trainer : x"},
    {{"--rdzv_backend=c10d", "--rdzv_endpoint=h0:29400", "x"},
     {NULL},
     NULL,
     "c10d at=h0,29400 : x"},
    {{"--rdzv-backend", "c10d", "--rdzv-endpoint", "[::1]", "x"},
     {NULL},
     NULL,
     "c10d at=::1,-1 : x"},
    {{"--rdzv-endpoint", "h:0", "--rdzv-endpoint=", "x"}, {NULL}, NULL, ": x"},
    {{"--rdzv-endpoint", "h,[::1]:5,https://g", "--rdzv-backend", "etcd", "x"},
     {NULL},
     NULL,
     "etcd=h,[::1]:5,https://g : x"},
    {{"--rdzv-backend=etcd-v2", "x"}, {"PET_RDZV_ENDPOINT=h"}, NULL, "etcd=h : x"},
    {{"--standalone", "--rdzv-backend=etcd", "x"}, {NULL}, NULL, "standalone etcd= : x"},
    {{"--standalone", "--rdzv-endpoint", "h", "x"}, {NULL}, NULL, "standalone at=h,-1 : x"},
    {{"--rdzv-conf", "'join_timeout=5, my_key=a=b'", "x"}, {NULL}, NULL, ": x"},
    {{"--node-rank", "0", "--local-addr", "[::1]", "x"}, {NULL}, NULL, "local=::1 : x"},
    {{"--local-addr", "0.0.0.0", "x"}, {NULL}, NULL, "local=0.0.0.0 listens : x"},
    {{"--local-addr", "[::]", "x"}, {NULL}, NULL, "local=:: listens : x"},
    {{"--monitor-interval", "0.5", "--start-method", "fork", "--event-log-handler=null", "x"},
     {NULL},
     NULL,
     ": x"},
    {{"x"},
     {"PET_RDZV_BACKEND=c10d", "PET_NODE_RANK=0", "PET_START_METHOD=bogus"},
     NULL,
     "c10d : x"},
    {{"--signals-to-handle=SIGUSR1,X", "x"}, {NULL}, NULL, "signals=SIGUSR1,X : x"},
    {{"--preempt-signal", "SIGUSR1", "x"}, {NULL}, NULL, "preempt=10 : x"},
    {{"--preempt-signal", "SIGSTOP", "x"}, {NULL}, "'SIGSTOP' is no signal that a program", NULL},
    {{"--preempt-signal", "USR1", "x"}, {NULL}, "'USR1' is no signal that a program can", NULL},
    {{"--fold=off", "x"}, {NULL}, NULL, "fold=off : x"},
    {{"--fold", "on", "x"}, {NULL}, "--fold: 'on' is not auto or off", NULL},
    {{"--virtual-local-rank", "x"}, {NULL}, NULL, "virtual : x"},
    {{"--gpu-bind", "mask", "--share-gpu", "x"}, {NULL}, NULL, "gpus=2 share : x"},
    {{"--gpu-bind=none", "x"}, {"PET_GPU_BIND=mask", "PET_SHARE_GPU=1"}, NULL, "gpus=1 share : x"},
    {{"--slow-output", "drop", "x"}, {NULL}, NULL, "slow=2 : x"},
    {{"--gpu-bind", "all", "x"}, {NULL}, "--gpu-bind: 'all' is not none or mask", NULL},
    {{"--log-line-prefix-template", "a", "x"},
     {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=b"},
     NULL,
     "prefix=a : x"},
    {{"x"}, {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=b"}, NULL, "prefix=b : x"},
    {{"--duplicate-stdout-filters=a,b", "--duplicate_stderr_filters", "c", "x"},
     {NULL},
     NULL,
     "out=a,b err=c : x"},
    /* what torchrun takes empty: the default, and a role and a prefix that are empty */
    {{"--role", "", "x"}, {"PET_ROLE=r"}, NULL, "role= : x"},
    {{"--rdzv-id", "", "--log-dir=", "--local-ranks-filter", "", "x"},
     {"PET_RDZV_ID=j", "PET_LOG_DIR=L", "PET_LOCAL_RANKS_FILTER=0"},
     NULL,
     ": x"},
    {{"--local-addr", "", "--master-addr", "", "--rdzv-endpoint", "", "x"},
     {"PET_LOCAL_ADDR=a", "PET_MASTER_ADDR=b", "PET_RDZV_ENDPOINT=c:1"},
     NULL,
     ": x"},
    {{"--log-line-prefix-template", "", "x"},
     {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=t"},
     NULL,
     "prefix= : x"},
    {{"--rdzv-id", "team a/job 7", "x"}, {NULL}, NULL, "id=team a/job 7 : x"},
    {{"--max-restarts", " 3 ", "--nproc-per-node", " 2", "--nnodes", " 1 : 1 ", "x"},
     {"PET_MASTER_PORT=\t7\n", "PET_MODULE= 1 ", "PET_MONITOR_INTERVAL= 0.1 "},
     NULL,
     "n=2 module port=7 restarts=3 : x"},
    /* where options end */
    {{"x", "--nproc-per-node", "2", "--", "-h"}, {NULL}, NULL, ": x --nproc-per-node 2 -- -h"},
    {{"-n2", "--", "--odd-name", "--"}, {NULL}, NULL, "n=2 : --odd-name --"},
    {{"-"}, {NULL}, NULL, ": -"},
    {{"--nnodes", "2:4", "--spares=1", "--node-rank=4", "--report", "f", "--token-file=t", "x"},
     {NULL},
     NULL,
     "nodes=2:4+1 #4 report=f token=t : x"},
    /* an abbreviation keeps to what torchrun has */
    {{"--re", "1", "--t", "2", "--sig", "SIGTERM", "x"},
     {NULL},
     NULL,
     "r=11 t=22 signals=SIGTERM : x"},
    {{"--help", "x", "--bogus"}, {NULL}, "no text has the word 'x'", NULL},
    {{"--help", "--bogus"}, {NULL}, "'--bogus' (see ctrun --help)", NULL},
    {{"--help", "--nprc-per-node", "2"}, {NULL}, "did you mean --nproc-per-node?", NULL},
    {{"--nprc-per-node", "2", "--help"}, {NULL}, "did you mean --nproc-per-node?", NULL},
    {{"--help", "--max_retries"}, {NULL}, "did you mean --max-restarts?", NULL},
    {{"--help", "-n", "0", "x", "--bogus"}, {NULL}, NULL, "help timeout=-1 "},
    {{"--help=--nprc-per-node"}, {NULL}, "did you mean ctrun --help nproc-per-node?", NULL},
    {{"--help", "max_retries"}, {NULL}, "'max_retries'; did you mean --max-restarts?", NULL},
    {{"--help", "ntasks"}, {NULL}, "'ntasks'; the workers of each machine are", NULL},
    {{"--version", "--bogus"}, {NULL}, "'--bogus'", NULL},
    {{"-mh"}, {NULL}, NULL, "module help timeout=-1 "},
    {{"-h", "output", "--bogus"}, {NULL}, "'--bogus'", NULL},
    {{"-h", "output", "--tee"}, {NULL}, NULL, "help about=output timeout=-1 "},
    {{"--help=all"}, {NULL}, NULL, "help about=all timeout=-1 "},
    {{"--he", "log_dir"}, {NULL}, NULL, "help about=log_dir timeout=-1 "},
    {{"--help", "ouput"}, {NULL}, "has the word 'ouput'; did you mean ctrun --help output?", NULL},
    {{"--help", "prempt"}, {NULL}, "did you mean ctrun --help preempt?", NULL},
    {{"--help", "yoghurt"},
     {NULL},
     "no text has the word 'yoghurt'; the topics are job restart",
     NULL},
    {{"--help", "--warm"}, {NULL}, NULL, "help about=--warm timeout=-1 "},
    {{"-h", "-n"}, {NULL}, NULL, "help about=-n timeout=-1 "},
    {{"--help", "--warm", "x.py"}, {NULL}, NULL, "help timeout=-1 "},
    {{"--help="}, {NULL}, "no text has the word ''", NULL},
    {{"--help", "preemption"}, {NULL}, NULL, "help about=preemption timeout=-1 "},
    {{"--help", "notice"}, {NULL}, NULL, "help about=notice timeout=-1 "},
    {{"--help", "requeue"}, {NULL}, NULL, "help about=requeue timeout=-1 "},
    {{"--help", "run-path"}, {NULL}, "no text has the word 'run-path'", NULL},
    {{"--print-completion", "zsh"}, {"PET_NNODES=bad"}, NULL, "completion=2 timeout=-1 "},
    {{"--version"}, {"PET_NNODES=bad"}, NULL, "version timeout=-1 "},
    /* the environment */
    {{"x"}, {"PET_NPROC_PER_NODE=8", "PET_NNODES=1"}, NULL, "n=8 : x"},
    {{"-n2", "x"}, {"PET_NPROC_PER_NODE=8"}, NULL, "n=2 : x"},
    {{"x"}, {"PET_MODULE=1", "PET_STANDALONE=0"}, NULL, "module : x"},
    {{"x"}, {"PET_REDIRECTS=1", "PET_TEE=2", "PET_MAX_RESTARTS="}, NULL, "r=11 t=22 : x"},
    {{"x"}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7"}, NULL, "timeout=7000 : x"},
    {{"x"},
     {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7", "PET_SHUTDOWN_TIMEOUT=8"},
     NULL,
     "timeout=8000 : x"},
    {{"--shutdown-timeout=9", "x"},
     {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=bad"},
     NULL,
     "timeout=9000 : x"},
    {{"x"}, {"PET_RUN_PATH=0"}, NULL, ": x"},
    {{"x"}, {"PET_HELP=1", "PET_NUMA_BINDING=node"}, NULL, ": x"},
    /* errors name the culprit */
    {{NULL}, {NULL}, "no program", NULL},
    {{"-n2"}, {NULL}, "no program to run is given (see", NULL},
    {{"-n", "2"}, {NULL}, "no program to run is given (see", NULL},
    {{"--report", "x.py"},
     {NULL},
     "no program to run is given: 'x.py' is the FILE of --report",
     NULL},
    {{"--report=x.py"}, {NULL}, "no program to run is given (see", NULL},
    {{"--report", "x.py", "--standalone"}, {NULL}, "no program to run is given (see", NULL},
    {{"--report", "x.py", "--"}, {NULL}, "no program to run is given (see", NULL},
    {{""}, {NULL}, "empty", NULL},
    {{"--bogus", "x"}, {NULL}, "'--bogus' (see ctrun --help)", NULL},
    {{"--max-restart5=2", "x"}, {NULL}, "'--max-restart5=2'; did you mean --max-restarts?", NULL},
    {{"--max_retsarts", "2", "x"}, {NULL}, "did you mean --max-restarts?", NULL},
    {{"-standalone", "x"}, {NULL}, "'-standalone'; did you mean --standalone?", NULL},
    {{"--runpath", "x"}, {NULL}, "'--runpath' (see", NULL},
    {{"--=1", "x"}, {NULL}, "'--=1'", NULL},
    {{"-x"}, {NULL}, "'-x'", NULL},
    {{"-mx", "x"}, {NULL}, "'-mx'", NULL},
    {{"-N", "2", "x"}, {NULL}, "'-N'; machines are --nnodes (srun -N), workers of each", NULL},
    {{"-N2", "x"}, {NULL}, "workers of each are --nproc-per-node (mpirun -N)", NULL},
    {{"-Nx", "x"}, {NULL}, "'-Nx' (see ctrun --help)", NULL},
    {{"-x", "FOO=1", "x"}, {NULL}, "'-x'; workers get ctrun's own variables", NULL},
    {{"--max_retries", "3", "x"}, {NULL}, "'--max_retries'; did you mean --max-restarts?", NULL},
    {{"--daemon", "x"}, {NULL}, "'--daemon'; did you mean --detach?", NULL},
    {{"--detach", "--preflight-only"}, {NULL}, "--detach and --preflight-only exclude", NULL},
    {{"--attach", "a", "x"}, {NULL}, "and starts none: leave out 'x'", NULL},
    {{"-n2", "--attach"}, {NULL}, "leave out --nproc-per-node", NULL},
    {{"--num_processes=4", "x"}, {NULL}, "of each machine are --nproc-per-node", NULL},
    {{"--num-nodes", "4", "x"}, {NULL}, "did you mean --nnodes?", NULL},
    {{"--bind-to", "core", "x"}, {NULL}, "the CPUs of a worker are chosen by --bind", NULL},
    {{"--gres=gpu:4", "x"}, {NULL}, "see ctrun --help gpu", NULL},
    {{"-ppn", "4", "x"}, {NULL}, "of each machine are --nproc-per-node", NULL},
    {{"-machinefile", "f", "x"}, {NULL}, "did you mean --hostfile?", NULL},
    {{"--timeout", "4", "x"}, {NULL}, "see ctrun --help timeout", NULL},
    {{"--allow-run-as-root", "x"}, {NULL}, "leave it out", NULL},
    {{"--ntasks-per-node=4", "x"}, {NULL}, "are --nproc-per-node", NULL},
    {{"--warm", "2", "x.py"}, {NULL}, "--warm: its value follows an equals sign: --warm=2", NULL},
    {{"--preflight", "each", "x"}, {NULL}, "an equals sign: --preflight=each", NULL},
    {{"--warm", "", "x"}, {NULL}, "empty", NULL},
    {{"--warm", "-n", "2", "2"}, {NULL}, NULL, "n=2 : 2"},
    {{"--warm", "--", "2"}, {NULL}, NULL, ": 2"},
    {{"--warm", "2.py"}, {NULL}, NULL, ": 2.py"},
    {{"--preflight", "2"}, {NULL}, NULL, ": 2"},
    {{"--n", "1", "x"}, {NULL}, "ambiguous", NULL},
    {{"--log", "d", "x"}, {NULL}, "ambiguous", NULL},
    {{"--rdzv", "3", "x"}, {NULL}, " or 2 others?", NULL},
    {{"--standalone=1", "x"}, {NULL}, "--standalone takes no value", NULL},
    {{"--log-dir"}, {NULL}, "--log-dir: DIR must follow (see ctrun --help log-dir)", NULL},
    {{"--log-dir", "--standalone", "x"}, {NULL}, "--log-dir: DIR must follow", NULL},
    {{"-r"}, {NULL}, " must follow (see ctrun --help redirects)", NULL},
    {{"-n", "0", "x"}, {NULL}, "-n: '0'", NULL},
    {{"-n", "-3", "x"}, {NULL}, "-n: '-3'", NULL},
    {{"-n", "4097", "x"}, {NULL}, "-n: '4097'", NULL},
    {{"-n", "2x", "x"}, {NULL}, "-n: '2x'", NULL},
    {{"-n", "xpu", "x"}, {NULL}, "xpu is not supported yet", NULL},
    {{"--sp", "-1", "x"}, {NULL}, "--spares: '-1'", NULL},
    {{"--nnodes", "2:1", "x"}, {NULL}, "--nnodes: '2:1'", NULL},
    {{"--nnodes", "1:2:3", "x"}, {NULL}, "--nnodes: '1:2:3'", NULL},
    {{"--nnodes", "0", "x"}, {NULL}, "--nnodes: '0'", NULL},
    {{"--nnodes", "11111111111111111111:1", "x"}, {NULL}, "--nnodes", NULL},
    {{"--master-port", "65536", "x"}, {NULL}, "--master-port: '65536'", NULL},
    {{"--master-addr", "h:1", "x"}, {NULL}, "--master-port", NULL},
    {{"--max-restarts", "-1", "x"}, {NULL}, "--max-restarts: '-1'", NULL},
    {{"--report=", "x"}, {NULL}, "--report: the value is empty; is the variable set ", NULL},
    {{"--shutdown-timeout", "1.5", "x"},
     {NULL},
     "--shutdown-timeout: '1.5' is not a whole number of seconds from 0 to 86400",
     NULL},
    {{"--linger", "1h", "x"},
     {NULL},
     "'1h' is not a whole number of seconds from 0 to 86400",
     NULL},
    {{"--warm-memory", "1G", "x"}, {NULL}, "'1G' is not a whole number of MiB from 1 to ", NULL},
    {{"--redirects", "4", "x"}, {NULL}, "--redirects: '4'", NULL},
    {{"--local-ranks-filter", "0,,1", "x"}, {NULL}, "--local-ranks-filter", NULL},
    {{"--local-ranks-filter", "4096", "x"}, {NULL}, "--local-ranks-filter", NULL},
    {{"--rdzv-id", "a\nb", "x"}, {NULL}, "--rdzv-id", NULL},
    {{"--nproc-per-node", " ", "x"}, {NULL}, "--nproc-per-node: ' '", NULL},
    {{"--max-restarts", "1 2", "x"}, {NULL}, "--max-restarts: '1 2'", NULL},
    {{"--redirects", "", "x"}, {NULL}, "--redirects: ''", NULL},
    {{"--rdzv-backend", "", "x"}, {NULL}, "--rdzv-backend", NULL},
    {{"-m", "--no-python", "x"}, {NULL}, "exclude each other", NULL},
    {{"x"}, {"PET_NPROC_PER_NODE=zero"}, "PET_NPROC_PER_NODE: 'zero'", NULL},
    {{"x"}, {"PET_STANDALONE=yes"}, "PET_STANDALONE: 'yes'", NULL},
    {{"x"}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=bad"}, "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", NULL},
    {{"--rdzv-backend=zk", "x"}, {NULL}, "--rdzv-backend zk is not supported: ctrun serves", NULL},
    {{"--rdzv-backend=etcd", "x"}, {NULL}, "--rdzv-backend etcd needs --rdzv-endpoint", NULL},
    {{"--rdzv-backend=etcd-v2", "x"}, {NULL}, "etcd needs --rdzv-endpoint HOST[:PORT][,...]", NULL},
    {{"--rdzv-backend=etcd", "--rdzv-endpoint", "h:x", "x"},
     {NULL},
     "--rdzv-endpoint: etcd: address 'h:x'",
     NULL},
    {{"--rdzv-endpoint", "h,", "--rdzv-backend=etcd", "x"},
     {NULL},
     "--rdzv-endpoint: the list of etcd's addresses has an empty one",
     NULL},
    {{"--rdzv-endpoint", "joe:sesame@h", "--rdzv-backend=etcd", "x"},
     {NULL},
     "--rdzv-endpoint: an address of etcd has an '@'",
     NULL},
    {{"--rdzv-backend=etcd", "x"}, {"PET_RDZV_ENDPOINT=h:0"}, "PET_RDZV_ENDPOINT: etcd: ", NULL},
    {{"--rdzv-endpoint", "h:1,g:1", "x"}, {NULL}, "--rdzv-endpoint", NULL},
    {{"--rdzv-endpoint", "h", "x"}, {NULL}, "needs a port", NULL},
    {{"--rdzv-endpoint", "h:65536", "x"}, {NULL}, "--rdzv-endpoint", NULL},
    {{"--rdzv-endpoint", "[::1", "x"}, {NULL}, "--rdzv-endpoint", NULL},
    {{"--rdzv-conf", "a=1,b", "x"}, {NULL}, "--rdzv-conf: 'b'", NULL},
    {{"--local-addr", "h:1", "x"}, {NULL}, "has a port", NULL},
    {{"--standalone", "--nnodes", "2", "x"}, {NULL}, "--standalone is a job on this machine", NULL},
    {{"--node-rank", "-1", "x"}, {NULL}, "--node-rank: '-1'", NULL},
    {{"--warm-import", "", "x"}, {NULL}, "--warm-import: ''", NULL},
    {{"--warm-import", ",,,", "x"}, {NULL}, "--warm-import: ',,,' is neither auto nor names", NULL},
    {{"--warm-import", "torch,", "x"}, {NULL}, "--warm-import: 'torch,'", NULL},
    {{"--warm-import", ".torch", "x"}, {NULL}, "--warm-import: '.torch'", NULL},
    {{"--warm-import", "a..b", "x"}, {NULL}, "--warm-import: 'a..b'", NULL},
    {{"--warm-import", "torch, numpy", "x"}, {NULL}, "--warm-import: 'torch, numpy'", NULL},
    {{"--warm-import", "a.2b", "x"}, {NULL}, "--warm-import: 'a.2b'", NULL},
    {{"--monitor-interval", "soon", "x"}, {NULL}, "--monitor-interval: 'soon'", NULL},
    {{"--start-method", "bogus", "x"}, {NULL}, "--start-method: 'bogus' is none of spawn", NULL},
    {{"--event-log-handler", "my", "x"}, {NULL}, "--event-log-handler: 'my'", NULL},
    {{"--print-completion=tcsh"}, {NULL}, "--print-completion tcsh is not supported", NULL},
    /* what torchrun has and ctrun does not */
    {{"--run-path", "x"}, {NULL}, "--run-path is not supported: ", NULL},
    {{"--logs-specs", "s", "x"}, {NULL}, "--logs-specs is not supported: ", NULL},
    {{"--numa-binding", "none", "x"},
     {NULL},
     "--numa-binding: 'none' is not node, socket, exclusive or core-complex",
     NULL},
    {{"--bind", "node", "x"}, {NULL}, "--bind: 'node' is not none, numa or core", NULL},
    {{"x"}, {"PET_RUN_PATH=1"}, "PET_RUN_PATH is not supported: ", NULL},
};

static void each_command_line_gives_its_options_or_its_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        char *argv[WORDS + 2] = {(char *)"ctrun"};
        char *env[5] = {NULL};
        char shown[1024];
        struct ct_options options = {.max_restarts = 77};
        struct ct_err err = {0};
        memcpy(argv + 1, row->words, sizeof(row->words));
        memcpy(env, row->env, sizeof(row->env));
        int rc = ct_options_parse(argv, env, &options, &err);
        if (row->error != NULL) {
            if (rc >= 0 || strstr(err.text, row->error) == NULL || strchr(err.text, '\n') != NULL) {
                fail_msg("row %zu (%s): rc %d, '%s' instead of an error with '%s'", i,
                         row->words[0], rc, err.text, row->error);
            }
            assert_int_equal(options.max_restarts, 77);
            continue;
        }
        if (rc != 0) {
            fail_msg("row %zu (%s): %s", i, row->words[0], err.text);
        }
        show(&options, shown, sizeof(shown));
        assert_string_equal(shown, row->shows);
    }
}

/* Every option of torchrun 2.14 is either there or refused by name. */
static void knows_all_of_torchrun(void **state)
{
    static const char *const torchrun[] = {
        "nnodes",
        "nproc-per-node",
        "rdzv-backend",
        "rdzv-endpoint",
        "rdzv-id",
        "rdzv-conf",
        "standalone",
        "max-restarts",
        "monitor-interval",
        "start-method",
        "event-log-handler",
        "role",
        "module",
        "no-python",
        "run-path",
        "log-dir",
        "redirects",
        "tee",
        "log-line-prefix-template",
        "local-ranks-filter",
        "duplicate-stdout-filters",
        "duplicate-stderr-filters",
        "node-rank",
        "master-addr",
        "master-port",
        "local-addr",
        "logs-specs",
        "numa-binding",
        "signals-to-handle",
        "shutdown-timeout",
        "virtual-local-rank",
        "print-completion",
        "help",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(torchrun) / sizeof(torchrun[0]); i++) {
        size_t found = 0;
        for (size_t k = 0; k < ct_option_count; k++) {
            found += strcmp(ct_option_table[k].name, torchrun[i]) == 0;
        }
        if (found != 1) {
            fail_msg("--%s stands %zu times in the table", torchrun[i], found);
        }
    }
}

static void a_preflight_alone_needs_no_program(void **state)
{
    char ctrun[] = "ctrun", only[] = "--preflight-only", limits[] = "--preflight-limits=disk=1G",
         each[] = "--preflight=each", program[] = "train";
    char *alone[] = {ctrun, only, NULL};
    char *more[] = {ctrun, each, only, limits, program, NULL};
    char *bare[] = {ctrun, each, NULL};
    char *env[] = {NULL};
    struct ct_options options;
    (void)state;
    assert_int_equal(ct_options_parse(alone, env, &options, NULL), 0);
    assert_true(options.preflight_only);
    assert_int_equal(options.preflight, CT_PREFLIGHT_FIRST);
    assert_null(options.command[0]);
    assert_int_equal(ct_options_parse(more, env, &options, NULL), 0);
    assert_int_equal(options.preflight, CT_PREFLIGHT_EACH);
    assert_string_equal(options.preflight_limits, "disk=1G");
    assert_string_equal(options.command[0], "train");
    assert_int_equal(ct_options_parse(bare, env, &options, NULL), CT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_command_line_gives_its_options_or_its_error),
        cmocka_unit_test(knows_all_of_torchrun),
        cmocka_unit_test(a_preflight_alone_needs_no_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
