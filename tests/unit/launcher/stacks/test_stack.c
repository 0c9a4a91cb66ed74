/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks as PyTorch, py-spy, eu-stack and gdb print them, whole and damaged.
 */
#include "tests/lib/ct_test.h"

#include "launcher/stacks/stack.h"

#include <stdio.h>

/* As PyTorch 2.15's worker server printed it. */
static const char faulthandler[] =
    "Current thread 0x00007f3646f266c0 (most recent call first):\n"
    "  <no Python frame>\n"
    "\n"
    "Thread 0x00007f36ff4c2040 (most recent call first):\n"
    "  File \"/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py\", line "
    "4181 "
    "in all_reduce\n"
    "  File \"/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py\", line 83 in "
    "wrapper\n"
    "  File \"/srv/train.py\", line 20 in main\n"
    "  File \"/usr/lib/python3.11/contextlib.py\", line 81 in inner\n"
    "  File \"/srv/train.py\", line 21 in <module>\n";

typedef int (*parse_fn)(const char *text, size_t len, struct ct_stack *out);

static void assert_where(parse_fn parse, const char *text, const char *expected)
{
    struct ct_stack stack = {0};
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(parse(text, strlen(text), &stack), 0);
    assert_int_equal(ct_stack_print_where(&stack, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), expected);
    ct_buf_fini(&out);
    ct_stack_fini(&stack);
}

static void assert_printed(parse_fn parse, const char *text, const char *expected)
{
    struct ct_stack stack = {0};
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(parse(text, strlen(text), &stack), 0);
    assert_int_equal(ct_stack_print(&stack, "> ", &out), 0);
    assert_string_equal(ct_buf_cstr(&out), expected);
    ct_buf_fini(&out);
    ct_stack_fini(&stack);
}

static void test_the_users_line_of_the_main_thread_is_found(void **state)
{
    (void)state;
    assert_where(ct_stack_parse_faulthandler, faulthandler,
                 "train.py:20 in main, inside all_reduce");
    assert_where(ct_stack_parse_faulthandler,
                 "Thread 0x1 (most recent call first):\n  File \"/a/b.py\", line 7 in f\n",
                 "b.py:7 in f");
    /* Without any code of the user's, the innermost frame. */
    assert_where(ct_stack_parse_faulthandler,
                 "Thread 0x1 (most recent call first):\n"
                 "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n"
                 "  File \"/usr/lib/python3.11/queue.py\", line 171 in get\n",
                 "threading.py:320 in wait");
}

static void test_faulthandlers_threads_are_told_apart(void **state)
{
    (void)state;
    assert_printed(ct_stack_parse_faulthandler,
                   "Fatal Python error: Aborted\n\n"
                   "Thread 0x00007f01 [loader] (most recent call first):\n"
                   "  File \"/srv/data \"x\".py\", line 3 in load\n"
                   "Current thread 0x00007f02 (most recent call first):\n"
                   "  File \"/srv/train.py\", line 15\n"
                   "Extension modules: numpy (total: 1)\n",
                   "> main thread:\n>   /srv/train.py:15 in ?\n"
                   "> thread loader:\n>   /srv/data \"x\".py:3 in load\n");
}

static void test_py_spys_json_is_read(void **state)
{
    (void)state;
    static const char json[] =
        "[{\"thread_id\":2,\"thread_name\":\"pin \\u001b[2J\",\"frames\":"
        "[{\"name\":\"get\",\"filename\":\"/usr/lib/python3.11/queue.py\",\"line\":171}]},"
        "{\"thread_name\":\"MainThread\",\"frames\":["
        "{\"name\":\"sleep_long\",\"filename\":\"/srv/t.py\",\"line\":9,\"locals\":null},"
        "{\"name\":\"<module>\",\"filename\":\"/srv/t.py\",\"line\":12}]}]";
    assert_where(ct_stack_parse_py_spy, json, "t.py:9 in sleep_long");
    assert_printed(ct_stack_parse_py_spy, json,
                   "> main thread MainThread:\n>   /srv/t.py:9 in sleep_long\n"
                   ">   /srv/t.py:12 in <module>\n"
                   "> thread pin ?[2J:\n>   /usr/lib/python3.11/queue.py:171 in get\n");
}

static void test_gdbs_frames_are_read(void **state)
{
    (void)state;
    static const char gdb[] =
        "[New LWP 43]\n"
        "0x00007f in clock_nanosleep () from /lib/x86_64-linux-gnu/libc.so.6\n"
        "\n"
        "Thread 2 (Thread 0x7f (LWP 43) \"helper\"):\n"
        "#0  __futex_wait (word=0x1, val=2) at ./nptl/futex.c:57\n"
        "#1  0x00007f in pthread_cond_wait@@GLIBC_2.3.2 () from /lib/libc.so.6\n"
        "\n"
        "Thread 1 (Thread 0x7e (LWP 42) \"work\"):\n"
        "#0  0x00007f in clock_nanosleep () from /lib/libc.so.6\n"
        "#1  0x000055 in ns::loop<int> (n=3) at /srv/work.cc:12\n"
        "#2  main () at /srv/work.cc:20\n";
    assert_where(ct_stack_parse_native, gdb, "work.cc:12 in ns::loop<int>, inside clock_nanosleep");
    assert_printed(ct_stack_parse_native, gdb,
                   "> main thread work:\n>   /lib/libc.so.6 in clock_nanosleep\n"
                   ">   /srv/work.cc:12 in ns::loop<int>\n>   /srv/work.cc:20 in main\n"
                   "> thread helper:\n>   ./nptl/futex.c:57 in __futex_wait\n"
                   ">   /lib/libc.so.6 in pthread_cond_wait@@GLIBC_2.3.2\n");
}

static void test_eu_stacks_frames_are_read(void **state)
{
    (void)state;
    static const char eu_stack[] = "PID 42 - process\n"
                                   "TID 42:\n"
                                   "#0  0x00007f8d9c0d2a7a __nanosleep\n"
                                   "#1  0x000055e1c8a7c14d work\n"
                                   "    /srv/work.c:8:2\n"
                                   "TID 43:\n"
                                   "#0  0x00007f8d9c0d2a7b __poll\n";
    assert_where(ct_stack_parse_native, eu_stack, "work.c:8 in work, inside __nanosleep");
    assert_printed(ct_stack_parse_native, eu_stack,
                   "> main thread 42:\n>   __nanosleep\n>   /srv/work.c:8 in work\n"
                   "> thread 43:\n>   __poll\n");
}

static void test_frames_without_a_name_are_one_line(void **state)
{
    (void)state;
    static const char eu_stack[] = "PID 42 - process\nTID 42:\n"
                                   "#0  0x00007f8d9c0d2a7a wait4\n"
                                   "    ../sysdeps/unix/sysv/linux/wait4.c:30:10\n"
                                   "#1  0x000055e1c8a7c14d\n#2  0x000055e1c8a7c14e\n"
                                   "#3  0x000055e1c8a7c14f main\n#4  0x000055e1c8a7c150\n";
    static const char gdb[] = "#0  0x1 in wait4 () from /lib/libc.so.6\n#1  0x2 in ?? ()\n"
                              "#2  0x3 in ?? ()\n#3  0x4 in ?? () from /lib/libx.so\n";
    static const char whole[] = "#0  0x1 in f () at a.c:1\n#1  0x2 in ?? ()\n";
    assert_printed(ct_stack_parse_native, eu_stack,
                   "> main thread 42:\n>   ../sysdeps/unix/sysv/linux/wait4.c:30 in wait4\n"
                   ">   (2 frames without a name)\n>   main\n>   (1 frame without a name)\n");
    assert_printed(ct_stack_parse_native, gdb,
                   "> main thread:\n>   /lib/libc.so.6 in wait4\n"
                   ">   (2 frames without a name)\n>   /lib/libx.so in ?\n");
    struct ct_stack lacking = {0}, named = {0};
    assert_false(ct_stack_lacks_names(&lacking));
    assert_int_equal(ct_stack_parse_native(gdb, sizeof(gdb) - 1, &lacking), 0);
    assert_int_equal(ct_stack_parse_native(whole, sizeof(whole) - 1, &named), 0);
    assert_true(ct_stack_lacks_names(&lacking));
    assert_false(ct_stack_lacks_names(&named)); /* only _start */
    ct_stack_fini(&lacking);
    ct_stack_fini(&named);
}

/* One frame of each kind, the innermost first; of Python programs as faulthandler writes them. */
#define USER "File \"/srv/train.py\", line 20 in step\n"
#define LIB(path, function) \
    "File \"/venv/lib/python3.11/site-packages/" path "\", line 3 in " function "\n"
#define C10D(function) LIB("torch/distributed/distributed_c10d.py", function)

static void test_who_is_in_a_collective_is_known_by_the_stack(void **state)
{
    static const struct {
        const char *text, *function;
        enum ct_stack_waits waits;
    } cases[] = {
        {C10D("all_reduce") LIB("torch/distributed/c10d_logger.py", "wrapper") USER, "all_reduce",
         CT_STACK_IN_COLLECTIVE},
        {C10D("send") C10D("all_gather_object") USER, "all_gather_object", CT_STACK_IN_COLLECTIVE},
        {C10D("all_gather_into_tensor") LIB("torch/distributed/fsdp/_fsdp.py", "unshard")
             LIB("torch/nn/modules/module.py", "forward") USER,
         "all_gather_into_tensor", CT_STACK_IN_COLLECTIVE},
        {LIB("torch/distributed/rendezvous.py", "rendezvous") USER, "rendezvous",
         CT_STACK_IN_COLLECTIVE},
        {USER, NULL, CT_STACK_ELSEWHERE},
        {"File \"/usr/lib/python3.11/threading.py\", line 3 in wait\n" USER, NULL,
         CT_STACK_ELSEWHERE},
        {LIB("torch/utils/data/dataloader.py", "__next__") USER, NULL, CT_STACK_ELSEWHERE},
        /* The user's frame that called is further out than one that was called. */
        {USER C10D("all_reduce") "File \"/srv/main.py\", line 1 in main\n", NULL,
         CT_STACK_ELSEWHERE},
        /* A collective of DistributedDataParallel is hidden in C++. */
        {LIB("torch/autograd/graph.py", "_engine_run_backward") USER, NULL, CT_STACK_UNTOLD},
        {LIB("lightning/loop.py", "run"), NULL, CT_STACK_UNTOLD}, /* no line of the user's own */
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_stack stack = {0};
        const char *function = "?";
        assert_int_equal(ct_stack_parse_faulthandler(cases[i].text, strlen(cases[i].text), &stack),
                         0);
        if (ct_stack_waits(&stack, &function) != cases[i].waits) {
            fail_msg("case %zu", i);
        }
        if (cases[i].function != NULL) {
            assert_string_equal(function, cases[i].function);
        }
        ct_stack_fini(&stack);
    }
}

static void test_a_c_program_is_in_a_collective_by_the_name_of_a_function(void **state)
{
    static const struct {
        const char *text;
        enum ct_stack_waits waits;
    } cases[] = {
        {"#0  0x1 in poll () from /lib/libc.so.6\n#1  0x2 in MPI_Allreduce ()\n"
         "#2  0x3 in work () at work.c:12\n",
         CT_STACK_IN_COLLECTIVE},
        {"#0  0x1 in nanosleep () from /lib/libc.so.6\n#1  0x3 in work () at work.c:12\n",
         CT_STACK_ELSEWHERE},
        /* Without debug symbols it is known where it waits, not that it waits nowhere. */
        {"#0  0x1 in poll ()\n#1  0x2 in PMPI_Barrier ()\n#2  0x3 in main ()\n",
         CT_STACK_IN_COLLECTIVE},
        {"#0  0x1 in nanosleep ()\n#1  0x3 in main ()\n", CT_STACK_UNTOLD},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_stack stack = {0};
        const char *function = "?";
        assert_int_equal(ct_stack_parse_native(cases[i].text, strlen(cases[i].text), &stack), 0);
        if (ct_stack_waits(&stack, &function) != cases[i].waits) {
            fail_msg("case %zu", i);
        }
        ct_stack_fini(&stack);
    }
    const struct ct_stack none = {0};
    const char *function = "?";
    assert_int_equal(ct_stack_waits(&none, &function), CT_STACK_UNTOLD);
}

static void test_lines_of_the_c_library_are_not_the_users(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "../sysdeps/nptl/futex-internal.h", "./nptl/pthread_mutex_lock.c", "../nptl/nptl.c",
        "/build/glibc-1a2b/glibc-2.31/io/x.c", "./misc/../sysdeps/unix/syscall-template.S"};
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        char text[300];
        (void)snprintf(text, sizeof(text),
                       "TID 42:\n#0  0x1 lock\n    %s:146:2\n#1  0x2 work\n    work.c:8:2\n"
                       "#2  0x3 main\n    work.c:9:2\n#3  0x4 start\n    ../csu/start.c:1:1\n",
                       sources[i]);
        assert_where(ct_stack_parse_native, text, "work.c:8 in work, inside lock");
    }
    assert_where(ct_stack_parse_native, "#0  0x1 f\n    ./io.c:3:1\n", "io.c:3 in f");
    assert_where(ct_stack_parse_native, "#0  0x1 f\n    ../nptl/only.c:3:1\n", "only.c:3 in f");
}

static void test_text_without_a_frame_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "\n",
        "Thread 0x1 (most recent call first):\n  <no Python frame>\n",
        "[1,2",
        "ptrace: Operation not permitted.\n",
        "{}",
        "[[[[[[",
        "TID \n",
        "Thread \n",
    };
    static const parse_fn parsers[] = {ct_stack_parse_faulthandler, ct_stack_parse_py_spy,
                                       ct_stack_parse_native};
    for (size_t t = 0; t < sizeof(texts) / sizeof(texts[0]); t++) {
        for (size_t p = 0; p < sizeof(parsers) / sizeof(parsers[0]); p++) {
            struct ct_stack stack = {0};
            struct ct_buf out = CT_BUF_INIT;
            assert_int_equal(parsers[p](texts[t], strlen(texts[t]), &stack), CT_EFORMAT);
            assert_int_equal(ct_stack_print_where(&stack, &out), 0);
            assert_int_equal(out.len, 0);
            ct_stack_fini(&stack);
        }
    }
}

static void test_odd_frames_are_taken_as_far_as_they_go(void **state)
{
    (void)state;
    assert_where(ct_stack_parse_native, "#\n", "");
    assert_where(ct_stack_parse_native, "#0  0x1", "");
    assert_where(ct_stack_parse_native, "#0  f () at :9", "f");
    assert_where(ct_stack_parse_native, "#0  f () at a:99999999999", "a:99999999999 in f");
    assert_where(ct_stack_parse_faulthandler, "File \"x\", line 3 in a\x1b[2J\n", "x:3 in a?[2J");
    assert_where(ct_stack_parse_faulthandler, "File \"x\", line -3 in a\n", "x in a");
    assert_where(ct_stack_parse_py_spy, "[{\"frames\":[{\"line\":1e99,\"name\":5},3]}]", "");
}

static void test_too_much_is_cut_and_said(void **state)
{
    (void)state;
    struct ct_buf text = CT_BUF_INIT, out = CT_BUF_INIT;
    struct ct_stack stack = {0};
    for (int i = 0; i < CT_STACK_THREADS_MAX + 1; i++) {
        ct_buf_addf(&text, "TID %d:\n", i);
        for (int frame = 0; frame < 10; frame++) {
            ct_buf_addf(&text, "#%d  0x1 f%0*d\n", frame, CT_STACK_NAME_MAX * 2, frame);
        }
    }
    assert_int_equal(ct_stack_parse_native(ct_buf_cstr(&text), text.len, &stack), 0);
    assert_true(stack.cut);
    assert_int_equal(stack.frame_count, CT_STACK_FRAMES_MAX);
    assert_int_equal(stack.thread_count, CT_STACK_THREADS_MAX);
    assert_int_equal(strlen(stack.frames[0].function), CT_STACK_NAME_MAX - 1);
    assert_int_equal(ct_stack_print(&stack, "", &out), 0);
    assert_non_null(strstr(ct_buf_cstr(&out), "(more frames or threads are left out)\n"));
    ct_buf_fini(&text);
    ct_buf_fini(&out);
    ct_stack_fini(&stack);
}

static int parse_and_print(void *data)
{
    (void)data;
    struct ct_stack stack = {0};
    struct ct_buf out = CT_BUF_INIT;
    int rc = ct_stack_parse_faulthandler(faulthandler, sizeof(faulthandler) - 1, &stack);
    rc = rc == 0 ? ct_stack_print(&stack, "", &out) : rc;
    ct_buf_fini(&out);
    ct_stack_fini(&stack);
    return rc;
}

static void test_memory_that_runs_out_leaves_nothing(void **state)
{
    (void)state;
    assert_in_range(ct_fault_sweep(parse_and_print, NULL, 0), 3, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_users_line_of_the_main_thread_is_found),
        cmocka_unit_test(test_faulthandlers_threads_are_told_apart),
        cmocka_unit_test(test_py_spys_json_is_read),
        cmocka_unit_test(test_gdbs_frames_are_read),
        cmocka_unit_test(test_eu_stacks_frames_are_read),
        cmocka_unit_test(test_frames_without_a_name_are_one_line),
        cmocka_unit_test(test_lines_of_the_c_library_are_not_the_users),
        cmocka_unit_test(test_who_is_in_a_collective_is_known_by_the_stack),
        cmocka_unit_test(test_a_c_program_is_in_a_collective_by_the_name_of_a_function),
        cmocka_unit_test(test_text_without_a_frame_is_refused),
        cmocka_unit_test(test_odd_frames_are_taken_as_far_as_they_go),
        cmocka_unit_test(test_too_much_is_cut_and_said),
        cmocka_unit_test(test_memory_that_runs_out_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
