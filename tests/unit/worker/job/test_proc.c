/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel says about processes, however they are named, and about the cores they may use.
 */
#include "tests/lib/ct_test.h"

#include "worker/job/proc.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static bool mask_is_too_small; /* as on a machine with more cores than a cpu_set_t has bits */

int __real_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set);
int __wrap_sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    if (mask_is_too_small) {
        errno = EINVAL;
        return -1;
    }
    return __real_sched_getaffinity(pid, size, set);
}

/* Field 22 of this program's line, while its name has no blanks. */
static unsigned long long own_start_time(void)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    assert_int_equal(fclose(file), 0);
    char *field = strtok(text, " ");
    for (int i = 1; i < 22; i++) {
        field = strtok(NULL, " ");
    }
    return strtoull(field, NULL, 10);
}

static void start_time_survives_odd_names(void **state)
{
    (void)state;
    uint64_t before = 0, after = 0;
    assert_int_equal(proc_start_time(getpid(), &before), 0);
    assert_int_equal(before, own_start_time());
    assert_int_equal(prctl(PR_SET_NAME, ") 1 (2) R 3"), 0);
    assert_int_equal(proc_start_time(getpid(), &after), 0);
    assert_true(before > 0);
    assert_int_equal(before, after);
    assert_int_equal(proc_start_time(1 << 29, &after), CT_ENOENT);
}

static void only_cores_that_the_process_may_use_count(void **state)
{
    (void)state;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(proc_cpu_count(), CPU_COUNT(&all));
    size_t first = 0;
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(proc_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void where_a_mask_is_too_small_every_core_counts(void **state)
{
    (void)state;
    mask_is_too_small = true;
    int count = proc_cpu_count();
    mask_is_too_small = false;
    assert_int_equal(count, sysconf(_SC_NPROCESSORS_ONLN));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_time_survives_odd_names),
        cmocka_unit_test(only_cores_that_the_process_may_use_count),
        cmocka_unit_test(where_a_mask_is_too_small_every_core_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
