/* SPDX-License-Identifier: Apache-2.0
 *
 * The program that runs jobs in the simulator:
 *
 *     sim_membership SCHEDULES [FIRST_SEED]   random schedules; prints what breaks the rules
 *     sim_membership --world NODES            forms, breaks and forms again one large world, and
 *                                             prints its cost as JSON
 */
#include "common/num.h"
#include "tests/sim/sim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_FAULTS 12

/* For an assertion of the core, which ends the process. */
static char running[64];

static void on_abort(int signo)
{
    (void)signo;
    (void)!write(STDERR_FILENO, running, strlen(running));
}

static struct sim_scenario random_scenario(uint64_t seed)
{
    struct sim random = {.random = seed * 7919 + 1};
    struct sim_scenario scenario = {
        .seed = seed,
        .workers = 1 + (int)sim_random(&random, 3),
        .max_nodes = 1 + (int)sim_random(&random, 7),
        .spares = (int)sim_random(&random, 3),
        .max_restarts = (int)sim_random(&random, 4),
        .wishes = sim_random(&random, 2) == 0,
        .faults = (int)sim_random(&random, MOST_FAULTS),
        .span_ns = 1 + (int64_t)sim_random(&random, 30) * SIM_S,
        .delay_ns = 1 + (int64_t)sim_random(&random, 300) * SIM_MS,
        .work_ns = 20 * SIM_S,
    };
    scenario.min_nodes = sim_random(&random, 2) == 0
                             ? scenario.max_nodes
                             : 1 + (int)sim_random(&random, (uint64_t)scenario.max_nodes);
    scenario.nodes = scenario.min_nodes + (int)sim_random(&random, 4);
    if (sim_random(&random, 2) == 0) {
        scenario.limits.window_restarts = 1 + (int)sim_random(&random, 2);
        scenario.limits.window_ms = 1000 + (int64_t)sim_random(&random, 20000);
    }
    scenario.limits.ban_after = (int)sim_random(&random, 4);
    return scenario;
}

/* The same seed with ever more of its faults, until it breaks: the shortest story. */
static void report(struct sim *sim, struct sim_scenario scenario)
{
    int most = scenario.faults;
    for (scenario.faults = 0; scenario.faults <= most; scenario.faults++) {
        bool broken = sim_run(sim, &scenario) != 0;
        if (broken) {
            (void)printf("seed %llu, %d faults, nodes %d (%d:%d, %d spares, %d restarts%s): %s\n",
                         (unsigned long long)scenario.seed, scenario.faults, scenario.nodes,
                         scenario.min_nodes, scenario.max_nodes, scenario.spares,
                         scenario.max_restarts, scenario.wishes ? ", wishes" : "", sim->broken);
        }
        sim_fini(sim);
        if (broken) {
            return;
        }
    }
}

static int run_schedules(struct sim *sim, int64_t count, int64_t first)
{
    uint64_t events = 0, ends[256] = {0};
    for (int64_t i = 0; i < count; i++) {
        struct sim_scenario scenario = random_scenario((uint64_t)(first + i));
        (void)snprintf(running, sizeof(running), "seed %llu\n", (unsigned long long)scenario.seed);
        int rc = sim_run(sim, &scenario);
        events += sim->events;
        ends[sim->over_code & 255]++;
        sim_fini(sim);
        if (rc != 0) {
            report(sim, scenario);
            return -1;
        }
    }
    (void)printf("%lld schedules from seed %lld, %llu events; exit codes:", (long long)count,
                 (long long)first, (unsigned long long)events);
    for (int code = 0; code < 256; code++) {
        if (ends[code] > 0) {
            (void)printf(" %d: %llu", code, (unsigned long long)ends[code]);
        }
    }
    (void)printf("\n");
    /* Schedules that all end in one way would prove little. */
    bool varied = ends[0] > 0 && ends[CT_EXIT_NODE_LOST] > 0 && ends[CT_EXIT_RDZV_TIMEOUT] > 0 &&
                  ends[CT_EXIT_PREEMPTED] > 0 && ends[130] > 0;
    return count < 1000 || varied ? 0 : -1;
}

static int run_world(struct sim *sim, int nodes)
{
    const struct sim_scenario scenario = {
        .seed = 1,
        .nodes = nodes,
        .workers = 8,
        .min_nodes = nodes,
        .max_nodes = nodes,
        .max_restarts = 1,
        .span_ns = 8 * SIM_S,
        .delay_ns = SIM_MS,
        .work_ns = 20 * SIM_S,
        .lose_one = true,
    };
    int rc = sim_run(sim, &scenario);
    if (rc != 0 || sim->newest != 1 || sim->over_code != 0) {
        (void)printf("%d nodes, generation %d, exit code %d: %s\n", nodes, sim->newest,
                     sim->over_code, sim->broken);
        rc = -1;
    } else {
        (void)printf("{\"nodes\": %d, \"workers\": %d, \"messages\": %llu, \"events\": %llu, "
                     "\"seconds\": %.4f}\n",
                     nodes, nodes * scenario.workers, (unsigned long long)sim->messages,
                     (unsigned long long)sim->events, (double)sim->core_ns / SIM_S);
    }
    sim_fini(sim);
    return rc;
}

int main(int argc, char **argv)
{
    struct sim *sim = calloc(1, sizeof(*sim));
    int64_t count = 0, first = 1;
    int nodes = 0, rc = -1;
    (void)signal(SIGABRT, on_abort);
    if (sim != NULL && argc == 3 && strcmp(argv[1], "--world") == 0 &&
        ct_parse_int(argv[2], 1, 20000, &nodes) == 0) {
        rc = run_world(sim, nodes);
    } else if (sim != NULL && (argc == 2 || argc == 3) &&
               ct_parse_i64(argv[1], 1, 1000000000, &count) == 0 &&
               (argc < 3 || ct_parse_i64(argv[2], 0, INT64_MAX / 2, &first) == 0)) {
        rc = run_schedules(sim, count, first);
    } else {
        (void)fprintf(stderr, "usage: sim_membership SCHEDULES [FIRST_SEED] | --world NODES\n");
    }
    free(sim);
    return rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
