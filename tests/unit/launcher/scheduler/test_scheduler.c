/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares environments as schedulers set them with the facts that must be found in them, and
 * checks that contradictions are refused.
 */
#include "launcher/scheduler/scheduler.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include <stdio.h>

#define WORDS_MAX 24

/* What is found where these variables are set, as by write_facts(). */
struct golden {
    const char *title;
    const char *env[WORDS_MAX];
    const char *host; /* this machine's name; NULL = "vm" */
    const char *file; /* content of whatever file is asked for; NULL = there is none */
    const char *facts;
};

static int read_file(void *data, const char *path, size_t max, struct ct_buf *out,
                     struct ct_err *err)
{
    const struct golden *golden = data;
    (void)max;
    if (golden->file == NULL) {
        return ct_err_set(err, CT_ENOENT, "cannot open '%s'", path);
    }
    return ct_buf_append(out, golden->file, strlen(golden->file));
}

static void add_int(char *out, size_t size, const char *name, const struct ct_scheduler_int *number)
{
    size_t len = strlen(out);
    if (number->from != NULL) {
        (void)snprintf(out + len, size - len, " %s=%d", name, number->value);
    }
}

static void add_text(char *out, size_t size, const char *name, const char *text)
{
    size_t len = strlen(out);
    (void)snprintf(out + len, size - len, " %s=%s", name, text);
}

static void write_facts(const struct ct_scheduler *scheduler, char *out, size_t size)
{
    (void)snprintf(out, size, "%s:", scheduler->name);
    add_int(out, size, "nodes", &scheduler->nnodes);
    add_int(out, size, "node", &scheduler->node_rank);
    add_int(out, size, "rank", &scheduler->rank);
    add_int(out, size, "of", &scheduler->world_size);
    add_int(out, size, "local", &scheduler->local_rank);
    add_int(out, size, "of", &scheduler->local_size);
    add_int(out, size, "nproc", &scheduler->nproc);
    if (scheduler->first_host.from != NULL) {
        add_text(out, size, "first", scheduler->first_host.value);
    }
    add_int(out, size, "port", &scheduler->port);
    if (scheduler->hosts_from != NULL) {
        add_text(out, size, "hosts", "");
        for (size_t i = 0; i < scheduler->hosts.count; i++) {
            size_t len = strlen(out);
            (void)snprintf(out + len, size - len, "%s%s", i > 0 ? "," : "",
                           scheduler->hosts.list[i]);
        }
    }
    if (scheduler->job_id_from != NULL) {
        add_text(out, size, "job", scheduler->job_id);
    }
    if (scheduler->end_time_from != NULL) {
        add_text(out, size, "ends", "");
        size_t len = strlen(out);
        (void)snprintf(out + len, size - len, "%lld", (long long)scheduler->end_time);
    }
    if (scheduler->kill_on_exit) {
        add_text(out, size, "kill", "1");
    }
    if (scheduler->warning[0] != '\0') {
        add_text(out, size, "warning", "1");
    }
}

static int detect(const struct golden *golden, struct ct_scheduler *scheduler, struct ct_err *err)
{
    const struct ct_scheduler_input input = {
        .env = (char *const *)golden->env,
        .host = golden->host != NULL ? golden->host : "vm",
        .read = read_file,
        .data = (void *)golden,
    };
    return ct_scheduler_detect(&input, scheduler, err);
}

/* As a real srun of Slurm 22.05 sets them. */
#define SLURM_STEP                                                                         \
    "SLURM_JOB_ID=7", "SLURM_STEP_ID=1", "SLURM_STEP_NODELIST=node[1-2]",                  \
        "SLURM_STEP_NUM_NODES=2", "SLURM_LAUNCH_NODE_IPADDR=192.0.2.99", "SLURM_NNODES=2", \
        "SLURM_JOB_NODELIST=node[1-2]", "SLURM_JOB_NUM_NODES=2", "SLURM_SRUN_COMM_HOST=192.0.2.99"

static const struct golden goldens[] = {
    {"nothing", {NULL}, NULL, NULL, "stand-alone:"},
    {"empty variables are none",
     {"OMPI_COMM_WORLD_RANK=", "SLURM_STEP_NODELIST=", "SLURM_STEP_NUM_NODES=2"},
     NULL,
     NULL,
     "stand-alone:"},
    {"Slurm, one task on each node",
     {SLURM_STEP, "SLURM_NODEID=1", "SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=2",
      "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_JOB_END_TIME=1764000000", "SLURM_GPUS_ON_NODE=8"},
     NULL,
     NULL,
     "a Slurm job step: nodes=2 node=1 rank=1 of=2 local=0 of=1 nproc=8 first=node1 "
     "hosts=node1,node2 job=slurm-7.1 ends=1764000000"},
    {"Slurm, uneven tasks",
     {SLURM_STEP, "SLURM_NODEID=1", "SLURM_PROCID=2", "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=3",
      "SLURM_STEP_TASKS_PER_NODE=2,1", "SLURM_KILL_BAD_EXIT=1"},
     NULL,
     NULL,
     "a Slurm job step: nodes=2 node=1 rank=2 of=3 local=0 of=1 first=node1 hosts=node1,node2 "
     "job=slurm-7.1 kill=1"},
    {"Slurm, older: SLURM_NTASKS; a hint that is none is passed over",
     {SLURM_STEP, "SLURM_NODEID=0", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_NTASKS=4",
      "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_GPUS_ON_NODE=gpu:2", "SLURM_JOB_END_TIME=soon"},
     NULL,
     NULL,
     "a Slurm job step: nodes=2 node=0 rank=1 of=4 local=1 of=2 first=node1 hosts=node1,node2 "
     "job=slurm-7.1"},
    {"Slurm with --mpi=pmix and --mpi=pmi2 is Slurm",
     {SLURM_STEP, "SLURM_NODEID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=2",
      "SLURM_STEP_TASKS_PER_NODE=1(x2)", "PMIX_RANK=0", "PMIX_NAMESPACE=slurm.pmix.2.0",
      "PMI_RANK=0", "PMI_SIZE=2", "PMI_JOBID=7.1"},
     NULL,
     NULL,
     "a Slurm job step: nodes=2 node=0 rank=0 of=2 local=0 of=1 first=node1 hosts=node1,node2 "
     "job=slurm-7.1"},
    /* SLURM_NODEID=0 of SLURM_NNODES=4 looks like node 0 of 4, and is none. */
    {"Slurm's batch script",
     {"SLURM_JOB_ID=7", "SLURM_NODEID=0", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NNODES=4",
      "SLURM_JOB_NUM_NODES=4", "SLURM_JOB_NODELIST=n[1-4]", "SLURM_NTASKS=4",
      "SLURM_GPUS_ON_NODE=2", "SLURM_JOB_END_TIME=1764000000"},
     NULL,
     NULL,
     "a Slurm job, outside of any step: nproc=2 ends=1764000000 warning=1"},
    {"a batch script on one node needs no warning",
     {"SLURM_JOB_ID=7", "SLURM_JOB_NUM_NODES=1"},
     NULL,
     NULL,
     "a Slurm job, outside of any step:"},
    {"Open MPI 4 on one host",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=1", "PMIX_NAMESPACE=778829825",
      "OMPI_MCA_orte_hnp_uri=778829824.0;tcp://192.0.2.2:42999;tcp6://[fd00::2]:51055"},
     NULL,
     NULL,
     "Open MPI's mpirun: nodes=1 node=0 rank=1 of=2 local=1 of=2 first=192.0.2.2 "
     "job=openmpi-778829825"},
    {"Open MPI 5 on two hosts of an LSF job",
     {"OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=4", "PMIX_NAMESPACE=prterun-h1-99@1", "LSB_DJOB_HOSTFILE=/f"},
     NULL,
     "batch5\nh1\nh1\nh2\n",
     "Open MPI's mpirun: nodes=2 node=1 rank=5 of=8 local=1 of=4 first=h1 "
     "job=openmpi-prterun-h1-99@1"},
    {"Open MPI, ranks dealt out by node: whose node this is stays open",
     {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     NULL,
     NULL,
     "Open MPI's mpirun: rank=2 of=4 local=1 of=2"},
    {"mpirun inside of a Slurm step",
     {SLURM_STEP, "SLURM_NODEID=1", "SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_STEP_NUM_TASKS=2",
      "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     NULL,
     NULL,
     "Open MPI's mpirun: nodes=2 node=1 rank=3 of=4 local=1 of=2 first=node1"},
    {"MPICH",
     {"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=8", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
     NULL,
     NULL,
     "MPICH's mpiexec (Hydra): nodes=1 node=0 rank=1 of=2 local=1 of=2"},
    {"MVAPICH2",
     {"MV2_COMM_WORLD_RANK=0", "MV2_COMM_WORLD_SIZE=4", "MV2_COMM_WORLD_LOCAL_RANK=0",
      "MV2_COMM_WORLD_LOCAL_SIZE=2", "SLURM_JOB_NODELIST=a[08-09]"},
     NULL,
     NULL,
     "MVAPICH2: nodes=2 node=0 rank=0 of=4 local=0 of=2 first=a08"},
    {"another PMI",
     {"PMI_RANK=1", "PMI_SIZE=3", "PMI_JOBID=x/1"},
     NULL,
     NULL,
     "a PMI launcher: rank=1 of=3 job=pmi-x_1"},
    {"Flux, inside of a Slurm step",
     {SLURM_STEP, "SLURM_NODEID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "FLUX_TASK_RANK=3",
      "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_SIZE=4", "FLUX_JOB_NNODES=2", "FLUX_JOB_ID=f1A"},
     NULL,
     NULL,
     "a Flux job: nodes=2 node=1 rank=3 of=4 local=1 of=2 first=node1 job=flux-f1A"},
    {"Flux that does not tell the nodes",
     {"FLUX_TASK_RANK=1", "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_SIZE=4", "FLUX_JOB_ID=f1A"},
     NULL,
     NULL,
     "a Flux job: rank=1 of=4 local=1 job=flux-f1A"},
    {"Flux with unequal nodes",
     {"FLUX_TASK_RANK=1", "FLUX_TASK_LOCAL_ID=1", "FLUX_JOB_SIZE=5", "FLUX_JOB_NNODES=2",
      "FLUX_JOB_ID=f1A"},
     NULL,
     NULL,
     "a Flux job: nodes=2 rank=1 of=5 local=1 job=flux-f1A"},
    {"Cray PALS",
     {"PALS_RANKID=4", "PALS_LOCAL_RANKID=0", "PALS_LOCAL_SIZE=4", "PMI_SIZE=8", "PMI_RANK=4",
      "PALS_APID=99", "PBS_NODEFILE=/f"},
     NULL,
     "x1000\nx1001\n",
     "Cray PALS: nodes=2 node=1 rank=4 of=8 local=0 of=4 first=x1000 job=pals-99"},
    {"Horovod",
     {"HOROVOD_RANK=3", "HOROVOD_SIZE=4", "HOROVOD_LOCAL_RANK=0", "HOROVOD_LOCAL_SIZE=1",
      "HOROVOD_CROSS_RANK=2", "HOROVOD_CROSS_SIZE=3"},
     NULL,
     NULL,
     "horovodrun: nodes=3 node=2 rank=3 of=4 local=0 of=1"},
    {"DeepSpeed",
     {"MASTER_ADDR=h", "CROSS_RANK=1", "CROSS_SIZE=2", "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1",
      "LOCAL_SIZE=2"},
     NULL,
     NULL,
     "DeepSpeed's launcher: nodes=2 node=1 rank=3 of=4 local=1 of=2 first=h"},
    {"an indexed job with a service",
     {"KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=3"},
     "train-3",
     "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"
     "10.1.2.3\ttrain-3.svc.ns.svc.cluster.local\ttrain-3\n",
     "a pod of an indexed Kubernetes job: node=3 first=train-0.svc.ns.svc.cluster.local"},
    {"an indexed job without one",
     {"KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=3"},
     "train-3",
     "10.1.2.3\ttrain-3\n",
     "a pod of an indexed Kubernetes job: node=3"},
    {"a pod's name is not what its index says",
     {"KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=3"},
     "train-13",
     "10.1.2.3\ttrain-13.svc\n",
     "a pod of an indexed Kubernetes job: node=3"},
    {"a JobSet's pod",
     {"KUBERNETES_SERVICE_HOST=10.0.0.1", "JOB_COMPLETION_INDEX=1"},
     "set-workers-0-1",
     "10.1.2.3 set-workers-0-1.set.ns.svc.cluster.local set-workers-0-1\n",
     "a pod of an indexed Kubernetes job: node=1 first=set-workers-0-0.set.ns.svc.cluster.local"},
    {"any other pod", {"KUBERNETES_SERVICE_HOST=10.0.0.1"}, NULL, NULL, "stand-alone:"},
    {"TPU hosts",
     {"TPU_WORKER_ID=1", "TPU_WORKER_HOSTNAMES=t0,t1,t2"},
     NULL,
     NULL,
     "a TPU host: nodes=3 node=1 first=t0 hosts=t0,t1,t2"},
    {"TPU hosts in slices",
     {"TPU_WORKER_ID=1", "TPU_WORKER_HOSTNAMES=t0,t1", "MEGASCALE_NUM_SLICES=3",
      "MEGASCALE_SLICE_ID=2", "MEGASCALE_COORDINATOR_ADDRESS=s0:8080"},
     NULL,
     NULL,
     "a TPU host: nodes=6 node=5 first=s0"},
    {"PBS, lines in turn are slots",
     {"PBS_NODEFILE=/f", "PBS_JOBID=12.srv"},
     "b.cluster",
     "a\nb\na\nb\n\n# end\n",
     "a PBS job: nodes=2 node=1 nproc=2 first=a hosts=a,b job=pbs-12.srv warning=1"},
    {"PBS, one node by another name",
     {"PBS_NODEFILE=/f"},
     NULL,
     "elsewhere",
     "a PBS job: nodes=1 node=0 first=elsewhere hosts=elsewhere"},
    {"LSF, the batch and login lines are no nodes",
     {"LSB_DJOB_HOSTFILE=/f", "LSB_JOBID=5"},
     "h2",
     "batch5\nlogin1\nh1\nh1\nh2\nh2\n",
     "an LSF job: nodes=2 node=1 nproc=2 first=h1 hosts=h1,h2 job=lsf-5 warning=1"},
    {"Grid Engine, which says the slots of each host",
     {"PE_HOSTFILE=/f", "JOB_ID=8", "NSLOTS=6", "NHOSTS=2"},
     "h2",
     "h1.cluster 2 all.q@h1.cluster UNDEFINED\nh2.cluster 4 all.q@h2.cluster <NULL>\n",
     "a Grid Engine job: nodes=2 node=1 nproc=4 first=h1.cluster hosts=h1.cluster,h2.cluster "
     "job=sge-8 warning=1"},
    {"LSF, an element of an array",
     {"LSB_DJOB_HOSTFILE=/f", "LSB_JOBID=5", "LSB_JOBINDEX=7"},
     "h1",
     "h1\n",
     "an LSF job: nodes=1 node=0 first=h1 hosts=h1 job=lsf-5.7"},
    {"LSF, no array",
     {"LSB_DJOB_HOSTFILE=/f", "LSB_JOBID=5", "LSB_JOBINDEX=0"},
     "h1",
     "h1\n",
     "an LSF job: nodes=1 node=0 first=h1 hosts=h1 job=lsf-5"},
    {"Grid Engine, a task of an array",
     {"PE_HOSTFILE=/f", "JOB_ID=8", "SGE_TASK_ID=3"},
     "h1",
     "h1 1 all.q\n",
     "a Grid Engine job: nodes=1 node=0 first=h1 hosts=h1 job=sge-8.3"},
    {"Grid Engine, no array",
     {"PE_HOSTFILE=/f", "JOB_ID=8", "SGE_TASK_ID=undefined"},
     "h1",
     "h1 1 all.q\n",
     "a Grid Engine job: nodes=1 node=0 first=h1 hosts=h1 job=sge-8"},
    {"Grid Engine, a task without the id of its job",
     {"PE_HOSTFILE=/f", "SGE_TASK_ID=3"},
     "h1",
     "h1 1 all.q\n",
     "a Grid Engine job: nodes=1 node=0 first=h1 hosts=h1"},
    {"Grid Engine, slots that are no number",
     {"PE_HOSTFILE=/f", "JOB_ID=8"},
     "h1",
     "h1 9999999999 all.q\n",
     "a Grid Engine job: nodes=1 node=0 first=h1 hosts=h1 job=sge-8"},
    {"a job of Grid Engine without a parallel environment",
     {"JOB_ID=8", "SGE_TASK_ID=undefined", "NSLOTS=1"},
     NULL,
     NULL,
     "stand-alone:"},
    {"dstack",
     {"DSTACK_NODES_NUM=2", "DSTACK_NODE_RANK=1", "DSTACK_NODES_IPS=10.0.0.5\n10.0.0.6",
      "DSTACK_MASTER_NODE_IP=10.0.0.5", "DSTACK_GPUS_PER_NODE=8", "DSTACK_RUN_NAME=brave-fox-1"},
     NULL,
     NULL,
     "a dstack task: nodes=2 node=1 nproc=8 first=10.0.0.5 hosts=10.0.0.5,10.0.0.6 "
     "job=dstack-brave-fox-1"},
    {"dstack, one node",
     {"DSTACK_NODES_NUM=1", "DSTACK_NODE_RANK=0", "DSTACK_NODES_IPS=10.0.0.5"},
     NULL,
     NULL,
     "a dstack task: nodes=1 node=0 first=10.0.0.5 hosts=10.0.0.5"},
    {"SkyPilot, without GPUs",
     {"SKYPILOT_NODE_RANK=2", "SKYPILOT_NODE_IPS=10.0.0.5\n10.0.0.6\n10.0.0.7\n",
      "SKYPILOT_NUM_NODES=3", "SKYPILOT_NUM_GPUS_PER_NODE=0", "SKYPILOT_TASK_ID=sky-1_job_2"},
     NULL,
     NULL,
     "a SkyPilot task: nodes=3 node=2 first=10.0.0.5 hosts=10.0.0.5,10.0.0.6,10.0.0.7 "
     "job=skypilot-sky-1_job_2"},
    {"an older SkyPilot that does not say how many nodes there are",
     {"SKYPILOT_NODE_RANK=0", "SKYPILOT_NODE_IPS=10.0.0.5", "SKYPILOT_NUM_GPUS_PER_NODE=2"},
     NULL,
     NULL,
     "a SkyPilot task: nodes=1 node=0 nproc=2 first=10.0.0.5 hosts=10.0.0.5"},
    {"TorchX", {"TORCHX_RANK0_HOST=r0"}, NULL, NULL, "a TorchX role: first=r0"},
    {"MASTER_ADDR and NODE_RANK; RANK and WORLD_SIZE mean too many things",
     {"MASTER_ADDR=h", "NODE_RANK=1", "NNODES=3", "RANK=9", "WORLD_SIZE=12", "MASTER_PORT=29400"},
     NULL,
     NULL,
     "a node of a job: nodes=3 node=1 first=h port=29400"},
    {"MASTER_ADDR alone, or a worker's environment",
     {"MASTER_ADDR=h", "MASTER_PORT=1", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1"},
     NULL,
     NULL,
     "stand-alone:"},
};

static void facts_are_found(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
        struct ct_scheduler scheduler = {0};
        struct ct_err err = {0};
        char facts[1024] = "";
        if (detect(&goldens[i], &scheduler, &err) != 0) {
            fail_msg("%s: %s", goldens[i].title, err.text);
        }
        write_facts(&scheduler, facts, sizeof(facts));
        if (strcmp(facts, goldens[i].facts) != 0) {
            fail_msg("%s:\n  found    %s\n  expected %s", goldens[i].title, facts,
                     goldens[i].facts);
        }
        assert_non_null(scheduler.reason);
        ct_scheduler_fini(&scheduler);
    }
}

#define OMPI(rank, size, local, local_size)                     \
    "OMPI_COMM_WORLD_RANK=" rank, "OMPI_COMM_WORLD_SIZE=" size, \
        "OMPI_COMM_WORLD_LOCAL_RANK=" local, "OMPI_COMM_WORLD_LOCAL_SIZE=" local_size

/* `facts` is what the message must say. */
static const struct golden refusals[] = {
    {"", {OMPI("1", "1", "0", "1")}, NULL, NULL, "OMPI_COMM_WORLD_RANK=1 is not below"},
    {"", {OMPI("0", "2", "2", "2")}, NULL, NULL, "OMPI_COMM_WORLD_LOCAL_RANK=2 is not below"},
    {"", {OMPI("0", "2", "0", "3")}, NULL, NULL, "OMPI_COMM_WORLD_LOCAL_SIZE=3 is more than"},
    {"", {OMPI("x", "2", "0", "1")}, NULL, NULL, "OMPI_COMM_WORLD_RANK: 'x' is not a whole"},
    {"", {OMPI("-1", "2", "0", "1")}, NULL, NULL, "OMPI_COMM_WORLD_RANK: '-1' is not a whole"},
    {"",
     {OMPI("99999999999", "2", "0", "1")},
     NULL,
     NULL,
     "OMPI_COMM_WORLD_RANK: '99999999999' is not a whole"},
    {"",
     {"OMPI_COMM_WORLD_RANK=1"},
     NULL,
     NULL,
     "this looks like Open MPI's mpirun (OMPI_COMM_WORLD_RANK is set), but OMPI_COMM_WORLD_SIZE is "
     "not set"},
    {"", {"PMIX_RANK=3", "PMIX_NAMESPACE=ns"}, NULL, NULL, "pass --nnodes"},
    {"", {SLURM_STEP}, NULL, NULL, "SLURM_NODEID is not set"},
    {"",
     {SLURM_STEP, "SLURM_NODEID=2", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"},
     NULL,
     NULL,
     "SLURM_NODEID=2 is not below SLURM_STEP_NUM_NODES=2"},
    {"",
     {SLURM_STEP, "SLURM_NODEID=0", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=2"},
     NULL,
     NULL,
     "SLURM_PROCID=2 is not below"},
    {"",
     {SLURM_STEP, "SLURM_NODEID=1", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2",
      "SLURM_STEP_TASKS_PER_NODE=2"},
     NULL,
     NULL,
     "SLURM_STEP_TASKS_PER_NODE: '2' says nothing about node 1"},
    {"",
     {SLURM_STEP, "SLURM_NODEID=1", "SLURM_PROCID=1", "SLURM_LOCALID=1", "SLURM_STEP_NUM_TASKS=2",
      "SLURM_STEP_TASKS_PER_NODE=1(x2)"},
     NULL,
     NULL,
     "SLURM_LOCALID=1 is not below the 1 tasks"},
    {"",
     {"SLURM_STEP_NODELIST=n[1-3]", "SLURM_STEP_NUM_NODES=2", "SLURM_NODEID=0", "SLURM_PROCID=0",
      "SLURM_STEP_NUM_TASKS=2"},
     NULL,
     NULL,
     "SLURM_STEP_NODELIST has 3 hosts, SLURM_STEP_NUM_NODES says 2"},
    {"",
     {"SLURM_STEP_NODELIST=n[1-", "SLURM_STEP_NUM_NODES=2", "SLURM_NODEID=0", "SLURM_PROCID=0",
      "SLURM_STEP_NUM_TASKS=2"},
     NULL,
     NULL,
     "SLURM_STEP_NODELIST: 'n[1-' is no list of hosts"},
    {"a step over the components of a heterogeneous job",
     {"SLURM_STEP_NODELIST=n2", "SLURM_STEP_NUM_NODES=1", "SLURM_HET_SIZE=2", "SLURM_NODEID=1",
      "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=1", "SLURM_NNODES=2"},
     NULL,
     NULL,
     "spans 2 components of a heterogeneous Slurm job"},
    {"",
     {"KUBERNETES_SERVICE_HOST=h", "JOB_COMPLETION_INDEX=-2"},
     NULL,
     NULL,
     "JOB_COMPLETION_INDEX: '-2'"},
    {"", {"TPU_WORKER_ID=2", "TPU_WORKER_HOSTNAMES=a,b"}, NULL, NULL, "TPU_WORKER_ID: '2'"},
    {"",
     {"TPU_WORKER_ID=0", "TPU_WORKER_HOSTNAMES=a,,b"},
     NULL,
     NULL,
     "TPU_WORKER_HOSTNAMES is no"},
    {"",
     {"SKYPILOT_NODE_RANK=0", "SKYPILOT_NODE_IPS=a\nb", "SKYPILOT_NUM_NODES=3"},
     NULL,
     NULL,
     "SKYPILOT_NUM_NODES=3, but SKYPILOT_NODE_IPS has 2 addresses"},
    {"",
     {"DSTACK_NODE_RANK=2", "DSTACK_NODES_IPS=a\nb"},
     NULL,
     NULL,
     "DSTACK_NODE_RANK: '2' is not"},
    {"",
     {"DSTACK_NODE_RANK=0", "DSTACK_NODES_IPS=a\n\nb"},
     NULL,
     NULL,
     "DSTACK_NODES_IPS is no list"},
    {"", {"PE_HOSTFILE=/f"}, NULL, "a\nb\n", "this host, vm, is not among the 2 of PE_HOSTFILE"},
    {"", {"PBS_NODEFILE=/f"}, NULL, NULL, "PBS_NODEFILE: cannot open '/f'"},
    {"", {"PBS_NODEFILE=/f"}, NULL, "\n#\n", "PBS_NODEFILE: the file names no host"},
    {"", {"PBS_NODEFILE=/f"}, NULL, "a\nb\n", "this host, vm, is not among the 2 of PBS_NODEFILE"},
    {"", {"LSB_DJOB_HOSTFILE=/f"}, NULL, "batch5\n", "names no host"},
    {"",
     {"MASTER_ADDR=h", "NODE_RANK=3", "NNODES=3"},
     NULL,
     NULL,
     "NODE_RANK=3 is not below NNODES"},
};

static void contradictions_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct ct_scheduler scheduler = {0};
        struct ct_err err = {0};
        int rc = detect(&refusals[i], &scheduler, &err);
        if ((rc != CT_EFORMAT && rc != CT_EINVAL) || strstr(err.text, refusals[i].facts) == NULL) {
            fail_msg("row %zu: %d, '%s' instead of '%s'", i, rc, err.text, refusals[i].facts);
        }
        assert_null(scheduler.hosts.list);
    }
}

struct asked {
    int fd;
    bool share, is_first;
};

static int answer_pmi(void *data, int fd, bool share, bool is_first,
                      char space[CT_SCHEDULER_JOB_ID_MAX], char first_host[CT_HOST_MAX],
                      struct ct_err *err)
{
    (void)err;
    *(struct asked *)data = (struct asked){fd, share, is_first};
    (void)snprintf(space, CT_SCHEDULER_JOB_ID_MAX, "kvs_1");
    (void)snprintf(first_host, CT_HOST_MAX, "h0");
    return 0;
}

static void hydra_is_asked_by_rank_0_and_by_the_others(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        char rank_var[] = "PMI_RANK=0";
        rank_var[sizeof(rank_var) - 2] = (char)('0' + rank);
        char *const env[] = {rank_var,
                             (char *)"PMI_SIZE=2",
                             (char *)"PMI_FD=9",
                             (char *)"MPI_LOCALRANKID=0",
                             (char *)"MPI_LOCALNRANKS=1",
                             NULL};
        struct asked asked = {.fd = -1};
        const struct ct_scheduler_input input = {
            .env = env, .host = "vm", .read = read_file, .pmi = answer_pmi, .data = &asked};
        struct ct_scheduler scheduler = {0};
        struct ct_err err = {0};
        assert_int_equal(ct_scheduler_detect(&input, &scheduler, &err), 0);
        assert_int_equal(asked.fd, 9);
        assert_true(asked.share);
        assert_int_equal(asked.is_first, rank == 0);
        assert_string_equal(scheduler.job_id, "mpich-kvs_1");
        assert_string_equal(scheduler.first_host.value, "h0");
        ct_scheduler_fini(&scheduler);
    }
}

static void ports_follow_the_job(void **state)
{
    (void)state;
    uint16_t port = ct_scheduler_port("slurm-7.0");
    assert_in_range(port, 61440, 65535);
    assert_int_equal(port, ct_scheduler_port("slurm-7.0"));
    /* Two steps of one job, and two jobs of one step number. */
    assert_int_not_equal(port, ct_scheduler_port("slurm-7.1"));
    assert_int_not_equal(port, ct_scheduler_port("slurm-8.0"));
}

static int detect_once(void *data)
{
    struct ct_scheduler scheduler = {0};
    int rc = detect(data, &scheduler, NULL);
    ct_scheduler_fini(&scheduler);
    return rc;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
        (void)ct_fault_sweep(detect_once, (void *)&goldens[i], 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_found),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(hydra_is_asked_by_rank_0_and_by_the_others),
        cmocka_unit_test(ports_follow_the_job),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("scheduler", tests, NULL, NULL);
}
