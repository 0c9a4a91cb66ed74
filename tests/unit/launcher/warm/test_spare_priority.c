/* SPDX-License-Identifier: Apache-2.0
 *
 * A spare gets its priority back as a whole: also an interpreter for which a wrapper waits.
 */
#include "launcher/warm/spare_priority.h"

#include "launcher/process/proctree.h"
#include "tests/lib/ct_test.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void wait_for_ever(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* when the test fails */
    for (;;) {
        (void)pause();
    }
}

/* Starts a wrapper, whose own child `interpreter` is. Both have another policy than this process.
 */
static pid_t start_wrapper(pid_t *interpreter)
{
    const struct sched_param none = {0};
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t wrapper = fork();
    assert_true(wrapper >= 0);
    if (wrapper == 0) {
        pid_t inner = sched_setscheduler(0, SCHED_BATCH, &none) == 0 ? fork() : -1;
        if (inner != 0 && write(told[1], &inner, sizeof(inner)) != (ssize_t)sizeof(inner)) {
            _exit(1);
        }
        wait_for_ever();
    }
    assert_int_equal(read(told[0], interpreter, sizeof(*interpreter)), sizeof(*interpreter));
    assert_true(*interpreter > 0);
    close(told[0]);
    close(told[1]);
    return wrapper;
}

static void end_wrapper(pid_t wrapper, pid_t interpreter)
{
    assert_int_equal(kill(interpreter, SIGKILL), 0);
    assert_int_equal(kill(wrapper, SIGKILL), 0);
    assert_int_equal(waitpid(wrapper, NULL, 0), wrapper);
}

static void test_a_wrapper_and_what_it_waits_for(void **state)
{
    (void)state;
    pid_t interpreter, wrapper = start_wrapper(&interpreter);
    assert_int_equal(sched_getscheduler(interpreter), SCHED_BATCH);
    assert_true(ct_spare_priority_restore(wrapper));
    assert_int_equal(sched_getscheduler(wrapper), sched_getscheduler(0));
    assert_int_equal(sched_getscheduler(interpreter), sched_getscheduler(0));
    end_wrapper(wrapper, interpreter);
    assert_true(ct_spare_priority_restore(wrapper)); /* it is gone and needs nothing */
}

static void test_a_real_time_policy_is_that_of_ctrun(void **state)
{
    (void)state;
    const struct sched_param first = {.sched_priority = 1}, none = {0};
    struct sched_param found;
    pid_t interpreter, wrapper = start_wrapper(&interpreter);
    if (sched_setscheduler(0, SCHED_RR, &first) != 0) {
        end_wrapper(wrapper, interpreter);
        skip(); /* needs CAP_SYS_NICE */
    }
    bool restored = ct_spare_priority_restore(wrapper);
    assert_int_equal(sched_setscheduler(0, SCHED_OTHER, &none), 0);
    assert_true(restored);
    assert_int_equal(sched_getscheduler(interpreter), SCHED_RR);
    assert_int_equal(sched_getparam(interpreter, &found), 0);
    assert_int_equal(found.sched_priority, 1);
    end_wrapper(wrapper, interpreter);
}

/* All of its capabilities are of no use to the scheduler there. */
static void test_root_of_a_user_namespace_may_not_idle(void **state)
{
    (void)state;
    const struct rlimit none = {0};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (setrlimit(RLIMIT_NICE, &none) != 0 || unshare(CLONE_NEWUSER) != 0) {
            _exit(2);
        }
        _exit(ct_spare_priority_may_idle());
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 2) {
        skip(); /* namespaces are forbidden here */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_family_has_the_wrapper_and_its_interpreter(void **state)
{
    (void)state;
    pid_t interpreter, wrapper = start_wrapper(&interpreter);
    pid_t pids[2];
    size_t count;
    assert_true(ct_proctree_family(wrapper, pids, 2, &count));
    assert_int_equal(count, 2);
    assert_int_equal(pids[0], wrapper);
    assert_int_equal(pids[1], interpreter);
    assert_false(ct_proctree_family(wrapper, pids, 1, &count));
    assert_int_equal(count, 1);
    assert_true(ct_proctree_family(interpreter, pids, 2, &count));
    assert_int_equal(count, 1);
    end_wrapper(wrapper, interpreter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrapper_and_what_it_waits_for),
        cmocka_unit_test(test_a_real_time_policy_is_that_of_ctrun),
        cmocka_unit_test(test_root_of_a_user_namespace_may_not_idle),
        cmocka_unit_test(test_a_family_has_the_wrapper_and_its_interpreter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
