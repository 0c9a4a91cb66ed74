/* SPDX-License-Identifier: Apache-2.0
 *
 * What is found of the machines, what is thought of them, and the table that says so.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include "launcher/preflight/preflight.h"
#include "launcher/preflight/preflight_json.h"
#include "launcher/preflight/preflight_table.h"

#include "rendezvous/wire/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MACHINES 4
#define GIB (INT64_C(1) << 30)

static struct ct_preflight_machine machines[MACHINES];
static struct ct_preflight_limits limits;
static struct ct_preflight_verdict verdict;

/* Healthy machines of which every pair has been measured. */
static void make_machines(int count)
{
    const struct ct_preflight_limits defaults = CT_PREFLIGHT_LIMITS_INIT;
    limits = defaults;
    for (int i = 0; i < count; i++) {
        struct ct_preflight_machine *machine = &machines[i];
        ct_preflight_machine_init(machine);
        (void)snprintf(machine->host, sizeof(machine->host), "node-%d", i);
        machine->node_rank = i;
        machine->workers = 8;
        machine->shm_size = machine->shm_free = 64 * GIB;
        machine->folder_free = 100 * GIB;
        machine->clock_s = 0.1;
        machine->gpus = 8;
        machine->xids = 0;
        for (int other = 0; other < count; other++) {
            if (other != i) {
                machine->links[machine->num_links++] = (struct ct_preflight_link){
                    .partner = other, .rate = 1e9, .latency_s = other < i ? 1e-4 : NAN};
            }
        }
    }
}

static int setup(void **state)
{
    (void)state;
    make_machines(MACHINES);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ct_preflight_verdict_fini(&verdict);
    return 0;
}

static struct ct_preflight_link *link_of(int machine, int partner)
{
    int i = 0;
    while (machines[machine].links[i].partner != partner) {
        i++;
    }
    return &machines[machine].links[i];
}

static void set_rate(int one, int other, double rate)
{
    link_of(one, other)->rate = rate;
    link_of(other, one)->rate = rate;
}

static void judge(int count)
{
    ct_preflight_verdict_fini(&verdict);
    assert_int_equal(ct_preflight_judge(machines, count, &limits, &verdict), 0);
}

/* Exactly one thing is found. */
static void expect(int count, int machine, bool unfit, const char *what)
{
    judge(count);
    assert_int_equal(verdict.num_findings, 1);
    assert_int_equal(verdict.findings[0].machine, machine);
    assert_int_equal(verdict.findings[0].unfit, unfit);
    assert_string_equal(verdict.findings[0].what, what);
    assert_int_equal(verdict.unfit, unfit ? 1 : 0);
    assert_true(strlen(verdict.findings[0].advice) > 0);
}

static void test_healthy_machines_have_no_findings(void **state)
{
    (void)state;
    judge(MACHINES);
    assert_int_equal(verdict.num_findings, 0);
    assert_int_equal(verdict.unfit, 0);
    assert_int_equal(verdict.pairs, 6);
    assert_int_equal(verdict.broken_pairs, 0);
    assert_float_equal(verdict.median_rate, 1e9, 1);
    assert_float_equal(verdict.median_latency_s, 1e-4, 1e-9);
    make_machines(1);
    judge(1);
    assert_int_equal(verdict.num_findings, 0);
    assert_int_equal(verdict.pairs, 0);
}

static void test_too_little_shared_memory_is_unfit(void **state)
{
    (void)state;
    machines[2].shm_size = INT64_C(64) << 20; /* as a container has it */
    machines[2].shm_free = INT64_C(63) << 20;
    expect(MACHINES, 2, true, "/dev/shm has 63 MiB free of 64 MiB; 8 workers need 256 MiB");
    machines[2].workers = 1;
    judge(MACHINES);
    assert_int_equal(verdict.num_findings, 0);
    machines[2].shm_size = machines[2].shm_free = -1;
    expect(MACHINES, 2, true, "it has no /dev/shm");
}

static void test_locked_memory_counts_where_rdma_needs_it(void **state)
{
    (void)state;
    machines[1].memlock = INT64_C(8) << 20;
    judge(MACHINES);
    assert_int_equal(verdict.num_findings, 0);
    machines[1].rdma = 1;
    expect(MACHINES, 1, true,
           "only 8.00 MiB of memory may be locked (ulimit -l), and RDMA locks all that it uses");
    machines[1].rdma = 0;
    limits.memlock = GIB;
    expect(MACHINES, 1, true, "only 8.00 MiB of memory may be locked (ulimit -l)");
    machines[1].memlock = GIB;
    judge(MACHINES);
    assert_int_equal(verdict.num_findings, 0);
}

static void test_a_full_disk_or_a_wrong_clock_is_unfit(void **state)
{
    (void)state;
    (void)snprintf(machines[0].folder, sizeof(machines[0].folder), "/logs");
    machines[0].folder_free = INT64_C(255) << 20;
    expect(MACHINES, 0, true, "the disk of /logs has 255 MiB free, less than 256 MiB");
    machines[0].folder_free = INT64_C(256) << 20;
    machines[3].clock_s = -10.5;
    expect(MACHINES, 3, true, "its clock is 10.5 s behind that of node rank 0");
    machines[3].clock_s = 10.5;
    expect(MACHINES, 3, true, "its clock is 10.5 s ahead of that of node rank 0");
    machines[3].clock_s = 9.9;
    judge(MACHINES);
    assert_int_equal(verdict.num_findings, 0);
}

static void test_fewer_gpus_than_most_machines_have_is_unfit(void **state)
{
    (void)state;
    machines[1].gpus = 7;
    expect(MACHINES, 1, true, "it has 7 GPUs, where most machines have 8");
    machines[2].gpus = 7; /* neither is that of most */
    judge(MACHINES);
    assert_int_equal(verdict.num_findings, 0);
    limits.gpus = 8;
    machines[2].gpus = 8;
    expect(MACHINES, 1, true, "it has 7 GPUs, less than 8");
    machines[1].gpus = -1;
    expect(MACHINES, 1, true, "it has 0 GPUs, less than 8");
}

static void test_a_broken_gpu_is_unfit_and_its_xids_are_told(void **state)
{
    (void)state;
    (void)snprintf(machines[2].gpu_trouble, sizeof(machines[2].gpu_trouble), "GPU 3: lost");
    machines[2].xids = 5;
    expect(MACHINES, 2, true, "GPU 3: lost");
    machines[2].gpu_trouble[0] = '\0';
    (void)snprintf(machines[2].last_xid, sizeof(machines[2].last_xid), "79 on 0000:3b:00");
    expect(MACHINES, 2, false,
           "its kernel has logged 5 Xid errors since it was started, the last one 79 on "
           "0000:3b:00");
}

static void test_a_check_that_hangs_is_unfit(void **state)
{
    (void)state;
    (void)snprintf(machines[3].stuck, sizeof(machines[3].stuck), "the disks");
    judge(MACHINES);
    assert_int_equal(verdict.findings[0].machine, 3);
    assert_string_equal(verdict.findings[0].what, "the check of the disks did not end");
    assert_int_equal(verdict.unfit, 1);
}

static void test_a_slow_machine_is_named_and_not_its_partners(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES; i++) {
        if (i != 2) {
            set_rate(i, 2, 1e7 * (i + 1));
        }
    }
    expect(MACHINES, 2, true,
           "it exchanges 40.0 MB/s with another machine at most, where half of the machines reach "
           "1000.0 MB/s");
    assert_int_equal(verdict.slowest[0], 0);
    assert_int_equal(verdict.slowest[1], 2);
    assert_float_equal(verdict.slowest_rate, 1e7, 1);
}

static void test_a_slow_way_is_a_warning(void **state)
{
    (void)state;
    link_of(3, 1)->rate = 1e6; /* in one direction only */
    (void)snprintf(machines[1].host, sizeof(machines[1].host), "no\033de\n1");
    expect(MACHINES, 3, false,
           "its way to no?de?1 is slow: 1.0 MB/s, where half of the pairs reach 1000.0 MB/s");
}

static void test_machines_beyond_the_limits_of_the_network_are_unfit(void **state)
{
    (void)state;
    limits.rate = 2e9;
    judge(MACHINES);
    assert_int_equal(verdict.unfit, MACHINES);
    limits.rate = 1e9;
    limits.latency_s = 2e-6;
    judge(MACHINES);
    assert_int_equal(verdict.unfit, MACHINES);
    assert_string_equal(verdict.findings[0].what,
                        "a message to another machine takes it 0.100 ms at least, more than "
                        "0.002 ms");
}

static void test_a_machine_with_high_latency_is_unfit(void **state)
{
    (void)state;
    for (int i = 0; i < MACHINES - 1; i++) {
        link_of(3, i)->latency_s = 0.02;
    }
    expect(MACHINES, 3, true,
           "a message to another machine takes it 20.000 ms at least, where half of the machines "
           "need 0.100 ms");
    for (int i = 0; i < MACHINES - 1; i++) {
        link_of(3, i)->latency_s = 0.004; /* many times more, but it harms nobody */
    }
    judge(MACHINES);
    assert_int_equal(verdict.num_findings, 0);
}

static void test_two_machines_are_not_compared(void **state)
{
    (void)state;
    make_machines(2);
    set_rate(0, 1, 1000);
    judge(2);
    assert_int_equal(verdict.num_findings, 0);
    assert_int_equal(verdict.slowest[1], 1);
}

static void test_a_machine_behind_a_firewall(void **state)
{
    (void)state;
    for (int i = 1; i < MACHINES; i++) {
        (void)snprintf(link_of(i, 0)->error, CT_PREFLIGHT_TEXT_MAX, "connect: No route");
        (void)snprintf(link_of(0, i)->error, CT_PREFLIGHT_TEXT_MAX, "it did not connect");
    }
    expect(MACHINES, 0, true,
           "it cannot exchange data with node-1 and with 2 others: it did not connect");
    assert_int_equal(verdict.broken_pairs, 3);
}

static void test_a_pair_that_was_not_measured_is_unfit(void **state)
{
    (void)state;
    make_machines(2);
    machines[1].num_links = 0;
    judge(2);
    assert_int_equal(verdict.broken_pairs, 1);
    assert_true(verdict.unfit > 0);
}

static void test_the_table_has_a_row_for_each_machine(void **state)
{
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    set_rate(0, 2, 1e7);
    set_rate(1, 2, 1e7);
    set_rate(3, 2, 1e7);
    machines[1].memlock = 8192;
    (void)snprintf(machines[3].host, sizeof(machines[3].host), "a\033[31mb");
    judge(MACHINES);
    assert_int_equal(ct_preflight_table(machines, MACHINES, &verdict, &text), 0);
    assert_string_equal(
        ct_buf_cstr(&text),
        "MACHINE                SHM FREE    MEMLOCK  DISK FREE     CLOCK GPUS    NETWORK  VERDICT\n"
        "node-0                 64.0 GiB  unlimited  100.0 GiB    +0.1 s    8     1 GB/s  fit\n"
        "node-1                 64.0 GiB    8.0 KiB  100.0 GiB    +0.1 s    8     1 GB/s  fit\n"
        "node-2                 64.0 GiB  unlimited  100.0 GiB    +0.1 s    8    10 MB/s  not fit\n"
        "a?[31mb                64.0 GiB  unlimited  100.0 GiB    +0.1 s    8     1 GB/s  fit\n"
        "not fit: node-2: it exchanges 10.0 MB/s with another machine at most, where half of the "
        "machines reach 1000.0 MB/s; look at its link (ethtool, ibstat), its cable and its port of "
        "the switch\n"
        "network: 6 pairs, median 10 MB/s and 100 us; the slowest is node-0 - node-2 with 10 MB/s "
        "and 100 us\n");
    ct_buf_fini(&text);
}

static void test_a_number_has_no_exponent(void **state)
{
    struct ct_buf text = CT_BUF_INIT;
    const struct ct_preflight_verdict rounded = {.pairs = 1,
                                                 .median_rate = 999.7e6,
                                                 .median_latency_s = 1.234,
                                                 .slowest = {0, 1},
                                                 .slowest_rate = 999.7e3,
                                                 .slowest_latency_s = 0.9997};
    (void)state;
    assert_int_equal(ct_preflight_pairs_text(machines, 2, &rounded, &text), 0);
    assert_string_equal(ct_buf_cstr(&text),
                        "1 pair, median 1 GB/s and 1.23 s; the slowest is node-0 - node-1 with "
                        "1 MB/s and 1 s");
    ct_buf_fini(&text);
}

/* Two of a name, and one whose name fills the column. */
static void test_machines_of_one_name_are_told_apart(void **state)
{
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    for (int i = 1; i < MACHINES; i++) {
        (void)snprintf(machines[i].host, sizeof(machines[i].host), "%s",
                       i == 1 ? "localhost" : "a-long-name.example.org");
    }
    set_rate(2, 3, 1e6);
    machines[3].memlock = 8192;
    assert_int_equal(ct_preflight_mark_names(machines, MACHINES), 0);
    judge(MACHINES);
    assert_int_equal(ct_preflight_table(machines, MACHINES, &verdict, &text), 0);
    const char *table = ct_buf_cstr(&text);
    assert_non_null(strstr(table, "\nnode-0                 64.0 GiB  unlimited  100.0 GiB "));
    assert_non_null(strstr(table, "\nlocalhost              64.0 GiB  unlimited  100.0 GiB "));
    assert_non_null(strstr(table, "\na-long-name (node 2)   64.0 GiB  unlimited  100.0 GiB "));
    assert_non_null(strstr(table, "\na-long-name (node 3)   64.0 GiB    8.0 KiB  100.0 GiB "));
    assert_non_null(strstr(table, "warning: a-long-name.example.org (node 3): its way to "
                                  "a-long-name.example.org (node 2) is slow: 1.0 MB/s"));
    assert_non_null(strstr(table, "the slowest is a-long-name.example.org (node 2) - "
                                  "a-long-name.example.org (node 3) with"));
    ct_buf_fini(&text);
}

static void test_limits_that_do_not_count_are_named_once(void **state)
{
    (void)state;
    (void)snprintf(machines[0].limits, CT_PREFLIGHT_LIMITS_MAX, "shm=1G");
    (void)snprintf(machines[1].limits, CT_PREFLIGHT_LIMITS_MAX, "shm=1G");
    judge(MACHINES); /* where none are given, node rank 0's are meant */
    assert_int_equal(verdict.num_findings, 0);
    (void)snprintf(machines[2].limits, CT_PREFLIGHT_LIMITS_MAX, "shm=2G");
    (void)snprintf(machines[3].limits, CT_PREFLIGHT_LIMITS_MAX, "shm=3G");
    expect(MACHINES, 2, false,
           "its --preflight-limits shm=2G do not count, nor do those of 1 more machine: node rank "
           "0 has shm=1G");
    machines[0].limits[0] = machines[1].limits[0] = machines[2].limits[0] = '\0';
    expect(MACHINES, 3, false, "its --preflight-limits shm=3G do not count: node rank 0 has none");
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void test_a_machine_travels_as_json(void **state)
{
    struct ct_buf text = CT_BUF_INIT;
    struct ct_preflight_machine copy;
    (void)state;
    machines[1].shm_size = INT64_MAX; /* some file systems say so */
    (void)snprintf(machines[1].links[0].error, CT_PREFLIGHT_TEXT_MAX, "why");
    assert_int_equal(ct_preflight_machine_write(&machines[1], &text), 0);
    assert_int_equal(ct_preflight_machine_read(ct_buf_cstr(&text), &copy, NULL), 0);
    ct_buf_reset(&text);
    assert_int_equal(ct_preflight_links_write(&machines[1], &text), 0);
    assert_int_equal(ct_preflight_links_read(ct_buf_cstr(&text), MACHINES, &copy, NULL), 0);
    assert_string_equal(copy.host, "node-1");
    assert_true(copy.shm_size > INT64_MAX / 2048);
    assert_int_equal(copy.shm_free, 64 * GIB);
    assert_int_equal(copy.gpus, 8);
    assert_int_equal(copy.num_links, 3);
    assert_string_equal(copy.links[0].error, "why");
    assert_float_equal(copy.links[0].latency_s, 1e-4, 1e-9);
    assert_true(isnan(copy.links[1].latency_s));
    ct_buf_fini(&text);
}

static void test_hostile_json_is_refused(void **state)
{
    static const char *const bad_machines[] = {"", "[]", "{}", "{\"node_rank\":-1}", "nonsense"};
    static const char *const bad_links[] = {
        "",
        "{}",
        "[1]",
        "[{\"partner\":4,\"bytes_per_s\":1,\"latency_s\":1,\"error\":\"\"}]",
        "[{\"partner\":-1,\"bytes_per_s\":1,\"latency_s\":1,\"error\":\"\"}]",
        "[{\"partner\":1,\"bytes_per_s\":1e300,\"latency_s\":1,\"error\":\"\"}]",
        "[{\"partner\":1,\"bytes_per_s\":-1,\"latency_s\":1,\"error\":\"\"}]",
        "[{\"partner\":1,\"bytes_per_s\":1,\"latency_s\":1e300,\"error\":\"\"}]",
        "[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]"};
    struct ct_preflight_machine copy = {.num_links = 0};
    (void)state;
    for (size_t i = 0; i < sizeof(bad_machines) / sizeof(bad_machines[0]); i++) {
        assert_int_not_equal(ct_preflight_machine_read(bad_machines[i], &copy, NULL), 0);
    }
    for (size_t i = 0; i < sizeof(bad_links) / sizeof(bad_links[0]); i++) {
        assert_int_not_equal(ct_preflight_links_read(bad_links[i], MACHINES, &copy, NULL), 0);
        assert_int_equal(copy.num_links, 0);
    }
}

/* Numbers of others are printed. */
static void test_a_clock_of_300_digits_is_refused(void **state)
{
    struct ct_preflight_machine copy;
    struct ct_buf text = CT_BUF_INIT;
    struct ct_err err = {0};
    (void)state;
    machines[1].clock_s = -1e308;
    assert_int_equal(ct_preflight_machine_write(&machines[1], &text), 0);
    assert_int_equal(ct_preflight_machine_read(ct_buf_cstr(&text), &copy, &err), CT_EFORMAT);
    assert_string_equal(err.text, "field \"clock_s\" is out of range");
    ct_buf_reset(&text);
    machines[1].clock_s = -1.8e9; /* one that begins in 1970 */
    assert_int_equal(ct_preflight_machine_write(&machines[1], &text), 0);
    assert_int_equal(ct_preflight_machine_read(ct_buf_cstr(&text), &copy, &err), 0);
    ct_buf_fini(&text);
}

static void test_the_report_marks_the_unfit_machine(void **state)
{
    cJSON *report = NULL;
    (void)state;
    machines[2].clock_s = 100;
    judge(MACHINES);
    assert_int_equal(ct_preflight_report(machines, MACHINES, &verdict, &report), 0);
    const cJSON *list = cJSON_GetObjectItem(report, "machines");
    for (int i = 0; i < MACHINES; i++) {
        const cJSON *machine = cJSON_GetArrayItem(list, i);
        assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(machine, "fit")), i != 2);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(machine, "findings")), i == 2);
        assert_null(cJSON_GetObjectItem(machine, "port"));
    }
    assert_int_equal(ct_json_number(cJSON_GetObjectItem(report, "pairs"), "measured", -1), 6);
    cJSON_Delete(report);
}

static int all(void *data)
{
    struct ct_preflight_verdict out;
    struct ct_buf text = CT_BUF_INIT;
    cJSON *report = NULL;
    (void)data;
    int rc = ct_preflight_mark_names(machines, MACHINES);
    rc = rc == 0 ? ct_preflight_judge(machines, MACHINES, &limits, &out) : rc;
    if (rc != 0) {
        return rc;
    }
    rc = ct_preflight_table(machines, MACHINES, &out, &text);
    rc = rc == 0 ? ct_preflight_machine_write(&machines[0], &text) : rc;
    rc = rc == 0 ? ct_preflight_links_write(&machines[0], &text) : rc;
    rc = rc == 0 ? ct_preflight_report(machines, MACHINES, &out, &report) : rc;
    cJSON_Delete(report);
    ct_buf_fini(&text);
    ct_preflight_verdict_fini(&out);
    return rc;
}

static void test_a_verdict_survives_lack_of_memory(void **state)
{
    (void)state;
    machines[2].clock_s = 100;
    ct_json_use_our_memory();
    assert_true(ct_fault_sweep(all, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_healthy_machines_have_no_findings, setup, teardown),
        cmocka_unit_test_setup_teardown(test_too_little_shared_memory_is_unfit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_locked_memory_counts_where_rdma_needs_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_full_disk_or_a_wrong_clock_is_unfit, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_fewer_gpus_than_most_machines_have_is_unfit, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_broken_gpu_is_unfit_and_its_xids_are_told, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_check_that_hangs_is_unfit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_slow_machine_is_named_and_not_its_partners, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_slow_way_is_a_warning, setup, teardown),
        cmocka_unit_test_setup_teardown(test_machines_beyond_the_limits_of_the_network_are_unfit,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_machine_with_high_latency_is_unfit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_machines_are_not_compared, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_machine_behind_a_firewall, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_pair_that_was_not_measured_is_unfit, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_the_table_has_a_row_for_each_machine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_number_has_no_exponent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_machine_travels_as_json, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_json_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_machines_of_one_name_are_told_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits_that_do_not_count_are_named_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_clock_of_300_digits_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_report_marks_the_unfit_machine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_verdict_survives_lack_of_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
