/* SPDX-License-Identifier: Apache-2.0
 *
 * Last lines as programs have written them, and what is said to be done.
 */
#include "tests/lib/ct_test.h"

#include "launcher/report/causes.h"

#include <signal.h>

static void assert_advice(const struct ct_cause_facts *facts, const char *expected)
{
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_cause_advice(facts, &out), 0);
    if (strstr(ct_buf_cstr(&out), expected) == NULL) {
        fail_msg("'%s' is not in '%s'", expected, ct_buf_cstr(&out));
    }
    assert_null(strchr(ct_buf_cstr(&out), '\n'));
    ct_buf_fini(&out);
}

static void assert_tail(const char *tail, const char *expected)
{
    const struct ct_cause_facts facts = {.end = {.kind = CT_END_EXITED, .value = 1}, .tail = tail};
    assert_advice(&facts, expected);
}

static void exhausted_memory_is_explained(void **state)
{
    (void)state;
    assert_tail("  File \"/t.py\", line 9, in <module>\n"
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has "
                "a total capacity of 79.15 GiB of which 1.12 GiB is free.\n",
                "memory of the GPU");
    assert_tail("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried\n", "memory of the GPU");
    assert_tail("RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be\n",
                "memory of the GPU");
    assert_tail("train: CUDA failure in cudaMalloc: out of memory\n", "memory of the GPU");
    assert_tail("RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: "
                "can't allocate memory: you tried to allocate 400000000000 bytes. Error code 12 "
                "(Cannot allocate memory)\n",
                "memory of this machine");
    assert_tail("OSError: [Errno 12] Cannot allocate memory\n", "memory of this machine");
    assert_tail("terminate called after throwing an instance of 'std::bad_alloc'\n"
                "  what():  std::bad_alloc\n",
                "memory of this machine");
    assert_tail("Traceback (most recent call last):\nMemoryError\n", "memory of this machine");
    assert_tail("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. \n",
                "memory of this machine");
}

static void exhausted_shared_memory_is_explained(void **state)
{
    (void)state;
    assert_tail("RuntimeError: DataLoader worker (pid 27) is killed by signal: Bus error. It is "
                "possible that dataloader's workers are out of shared memory. Please try to raise "
                "your shared memory limit.\n",
                "--shm-size");
    assert_tail("h:1:9 [0] NCCL WARN Error while creating shared memory segment "
                "/dev/shm/nccl-Xy (size 9637888)\n",
                "--shm-size");
    assert_tail("RuntimeError: unable to write to file </torch_7>: No space left on device "
                "(28), /dev/shm\n",
                "--shm-size");
    const struct ct_cause_facts logged = {.end = {.kind = CT_END_EXITED, .value = 3},
                                          .logged = true};
    assert_advice(&logged, "it said nothing on stderr; its log files have all its output");
    struct ct_cause_facts facts = {.end = {.kind = CT_END_SIGNALED, .value = SIGBUS},
                                   .shm_is_full = true};
    assert_advice(&facts, "--shm-size");
    facts.shm_is_full = false;
    assert_advice(&facts, "a crash in native code");
}

static void failed_connections_are_explained(void **state)
{
    (void)state;
    assert_tail("torch.distributed.DistNetworkError: The server socket has failed to listen on any "
                "local network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, "
                "message: address already in use\n",
                "ss -ltnp");
    assert_tail("OSError: [Errno 98] Address already in use\n", "ss -ltnp");
    assert_tail("ConnectionRefusedError: [Errno 111] Connection refused\n", "nobody listens");
    assert_tail("[W socket.cpp:752] [c10d] The client socket has failed to connect to "
                "[h]:29500 (errno: 111 - Connection refused).\n",
                "MASTER_ADDR");
    assert_tail(
        "torch.distributed.DistNetworkError: The client socket has failed to connect to any "
        "network address of (nowhere, 29500). The IPv4 network addresses of (nowhere, 29500) "
        "cannot be retrieved (gai error: -2 - Name or service not known).\n",
        "host name is not known");
    assert_tail("RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer "
                "[127.0.0.1]:33\n",
                "look at that one's last lines");
}

static void missing_interfaces_are_named(void **state)
{
    (void)state;
    assert_tail("h:41:41 [0] NCCL WARN Bootstrap : no socket interface found\n"
                "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:328, internal "
                "error - please report this issue to the NCCL developers, NCCL version 2.21.5\n"
                "ncclInternalError: Internal check failed.\n",
                "NCCL_SOCKET_IFNAME");
    assert_tail(
        "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] "
        "ifa != nullptr. Unable to find interface for: eth9\n",
        "no network interface eth9: correct or unset GLOO_SOCKET_IFNAME");
    assert_tail("RuntimeError: [../third_party/gloo/gloo/transport/tcp/device.cc:167] rv != -1. "
                "Unable to find address for: eth7\n",
                "no network interface eth7: ");
    assert_tail(
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/"
        "tcp/pair.cc:144] no error: SO_ERROR: Connection refused, remote=[127.0.1.1]:4242\n",
        "/etc/hosts");
    assert_tail("gloo::IoException: unable to connect to 10.0.0.2:9\n", "GLOO_SOCKET_IFNAME");
    assert_tail("NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4000\n",
                "LOCAL_RANK");
}

static void missing_files_and_modules_are_named(void **state)
{
    (void)state;
    assert_tail("ModuleNotFoundError: No module named 'my_data'\n", "finds no module my_data: ");
    assert_tail("ModuleNotFoundError: No module named 'torch'\n", "PYTHON_EXEC");
    /* PYTHON_EXEC counts only where ctrun chooses the interpreter. */
    assert_tail("ModuleNotFoundError: No module named 'torch'\n",
                "the path of another interpreter");
    struct ct_cause_facts script = {.end = {.kind = CT_END_EXITED, .value = 1},
                                    .own_python = true,
                                    .tail = "ModuleNotFoundError: No module named 'torch'\n"};
    assert_advice(&script, "PyTorch: PYTHON_EXEC names another interpreter");
    script.tail = "ModuleNotFoundError: No module named 'my_data'\n";
    assert_advice(&script, "another interpreter by PYTHON_EXEC");
    assert_tail(script.tail, "or give the path of another interpreter");
    assert_tail("/usr/bin/python3: No module named nowhere.main\n", "no module nowhere.main: ");
    assert_tail("python3: can't open file '/srv/u/x y.py': [Errno 2] No such file or directory\n",
                "no script /srv/u/x y.py on");
    assert_tail("./a.out: error while loading shared libraries: libfoo.so.2: cannot open shared "
                "object file: No such file or directory\n",
                "the library libfoo.so.2 is missing");
    assert_tail("ImportError: libcudart.so.12: cannot open shared object file: No such file or "
                "directory\n",
                "LD_LIBRARY_PATH");
    assert_tail("FileNotFoundError: [Errno 2] No such file or directory: '/data/x'\n",
                "there is no /data/x on this machine");
    assert_tail("t.py: error: unrecognized arguments: --lt\n", "its argument --lt: ");
}

static void an_option_of_ctrun_behind_the_program_is_told(void **state)
{
    static const char *const tails[] = {
        "t.py: error: unrecognized arguments: --nnodes 2\n",
        "t.py: error: unrecognized arguments: --lt --nnodes=2\n",
        "train: unrecognized option '--nnodes'; see train --help\n",
        "tool: unknown option '--nnodes'\n",
        "Error: No such option: --nnodes\n",
        "FATAL Flags parsing error:\n  Unknown command line flag 'nnodes'. Did you mean: nodes ?\n",
        ("ValueError: Some specified arguments are not used by the HfArgumentParser: ['--nnodes', "
         "'2']\n"),
    };
    char *const given[] = {(char *)"--nnodes=2", (char *)"--lt", (char *)"--max_restarts",
                           (char *)"module", NULL};
    char *const other[] = {(char *)"--nodes", (char *)"nnodes", (char *)"--nnodes-x", NULL};
    struct ct_cause_facts facts = {.end = {.kind = CT_END_EXITED, .value = 2}};
    (void)state;
    for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
        facts.tail = tails[i];
        facts.arguments = given;
        assert_advice(&facts, "--nnodes is an option of ctrun, but stands behind the program");
        /* It was not given, so the message is about something else. */
        facts.arguments = other;
        assert_advice(&facts, "the program does not know its argument ");
        facts.arguments = NULL;
        assert_advice(&facts, "the program does not know its argument ");
    }
    facts.arguments = given;
    facts.tail = "t.py: error: unrecognized arguments: --max_restarts 2\n";
    assert_advice(&facts, "--max_restarts is an option of ctrun");
    /* Not options of ctrun: an own one, and a word that is no option. */
    facts.tail = "t.py: error: unrecognized arguments: --lt\n";
    assert_advice(&facts, "does not know its argument --lt: ");
    facts.tail = "t.py: error: unrecognized arguments: module\n";
    assert_advice(&facts, "does not know its argument module: ");
    facts.tail = "t.py: error: unrecognized arguments: \n --nnodes\n";
    assert_advice(&facts, "does not know its argument : ");
}

static void missing_rights_and_limits_are_explained(void **state)
{
    (void)state;
    assert_tail("PermissionError: [Errno 13] Permission denied: '/srv/x'\n", "right to use /srv/x");
    assert_tail("sh: 1: cannot create /srv/x: Permission denied\n", "check the owner");
    assert_tail("OSError: [Errno 28] No space left on device\n", "a disk is full");
    assert_tail("OSError: [Errno 24] Too many open files: 'x'\n", "ulimit -n");
    assert_tail("RuntimeError: can't start new thread\n", "ulimit -u");
}

static void the_way_a_worker_ended_is_explained(void **state)
{
    static const struct {
        int kind, value;
        const char *expected;
    } rows[] = {
        {CT_END_SIGNALED, SIGILL, "instructions that this processor lacks"},
        {CT_END_SIGNALED, SIGXFSZ, "ulimit -f"},
        {CT_END_SIGNALED, SIGSEGV, "a crash in native code"},
        {CT_END_SIGNALED, SIGKILL, "see dmesg"},
        {CT_END_EXITED, 137, "ran out of memory"},
        {CT_END_EXITED, 127, "check PATH"},
        {CT_END_EXITED, 3, "it said nothing on stderr"},
        {CT_END_NOT_STARTED, 2, "check its name"},
        {CT_END_HUNG, 7, "what it waited for"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct ct_cause_facts facts = {
            .end = {.kind = (enum ct_worker_end_kind)rows[i].kind, .value = rows[i].value}};
        assert_advice(&facts, rows[i].expected);
    }
    const struct ct_cause_facts killed = {.end = {.kind = CT_END_SIGNALED, .value = SIGKILL},
                                          .tail = "Permission denied\n",
                                          .memory = "the kernel log says \"x\""};
    assert_advice(&killed, "out of memory (the kernel log says \"x\")");
}

static void an_unknown_error_points_at_the_output(void **state)
{
    struct ct_cause_facts facts = {
        .end = {.kind = CT_END_EXITED, .value = 1}, .tail = "ValueError: 3\n", .memory = ""};
    (void)state;
    assert_advice(&facts, "most likely in what it wrote");
    /* The error file counts, too, and what is particular wins over what comes later. */
    facts.message = "ModuleNotFoundError: No module named 'a\x1b[31mb'";
    assert_advice(&facts, "module a?[31mb: ");
    facts.tail = "OSError: [Errno 98] Address already in use\n"
                 "ConnectionRefusedError: [Errno 111] Connection refused";
    facts.message = NULL;
    assert_advice(&facts, "another program listens");
}

static int sweep_body(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    int rc = ct_cause_advice(data, &out);
    ct_buf_fini(&out);
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    char *const arguments[] = {(char *)"--nnodes", NULL};
    struct ct_cause_facts facts = {.end = {.kind = CT_END_EXITED, .value = 1},
                                   .tail = "No module named 'x'",
                                   .arguments = arguments};
    (void)state;
    assert_true(ct_fault_sweep(sweep_body, &facts, 0) >= 1);
    facts.tail = "unrecognized arguments: --nnodes";
    assert_true(ct_fault_sweep(sweep_body, &facts, 0) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exhausted_memory_is_explained),
        cmocka_unit_test(exhausted_shared_memory_is_explained),
        cmocka_unit_test(failed_connections_are_explained),
        cmocka_unit_test(missing_interfaces_are_named),
        cmocka_unit_test(missing_files_and_modules_are_named),
        cmocka_unit_test(an_option_of_ctrun_behind_the_program_is_told),
        cmocka_unit_test(missing_rights_and_limits_are_explained),
        cmocka_unit_test(the_way_a_worker_ended_is_explained),
        cmocka_unit_test(an_unknown_error_points_at_the_output),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
