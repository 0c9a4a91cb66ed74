/* SPDX-License-Identifier: Apache-2.0
 *
 * The fake GPU in a whole program. Its script comes from the environment, and the program writes a
 * report to a file when it ends.
 *
 *   FAKE_GPU_SEED=N        the seed for the order in which work runs
 *   FAKE_GPU_FAIL=N        of the calls that can fail, the N-th one fails
 *   FAKE_GPU_ANY=1         any of the products that are timed may be the fastest
 *   FAKE_GPU_DEVICES=N     so many GPUs; 8 if unset
 *   FAKE_GPU_CHIP=N        another GPU model, whose cuBLASLt refuses other epilogues
 *   FAKE_GPU_NO_KERNELS=N  the kernels that cuBLASLt lacks: bits of enum fake_kernels
 *   FAKE_GPU_THREADS=1     NCCL queues its collectives from threads of its own
 *   FAKE_GPU_REPORT=F      rank 0 writes lines "name value" to the file F. If F is a folder, each
 *                          process writes a file there, named by its pid, which appears only when
 *                          it is complete, since the program may be killed while it writes
 */
#include "tests/lib/fake_gpu/fake_gpu.h"

#include "common/num.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int number(const char *variable)
{
    const char *text = getenv(variable);
    int64_t value = 0;
    return text != NULL && ct_parse_i64(text, 0, 1000000000, &value) == 0 ? (int)value : 0;
}

__attribute__((constructor)) static void begin(void)
{
    const struct fake_gpu script = {.processes = true,
                                    .crews = true,
                                    .any_wins = number("FAKE_GPU_ANY") != 0,
                                    .devices = number("FAKE_GPU_DEVICES"),
                                    .chip = (unsigned)number("FAKE_GPU_CHIP"),
                                    .no_kernels = number("FAKE_GPU_NO_KERNELS"),
                                    .nccl_threads = number("FAKE_GPU_THREADS") != 0,
                                    .seed = (unsigned)number("FAKE_GPU_SEED"),
                                    .fail_cuda_call = number("FAKE_GPU_FAIL")};
    fake_gpu_begin(&script);
}

/* The file that is written, and the name that it gets when it is complete ("" = the same). */
struct place {
    char writing[4096], whole[4096];
};

static FILE *open_report(struct place *place)
{
    const char *path = getenv("FAKE_GPU_REPORT");
    struct stat st;
    if (path != NULL && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        (void)snprintf(place->writing, sizeof place->writing, "%s.%ld", path, (long)getpid());
        (void)snprintf(place->whole, sizeof place->whole, "%s/%ld", path, (long)getpid());
        return fopen(place->writing, "we");
    }
    return path != NULL && number("RANK") == 0 ? fopen(path, "we") : NULL;
}

__attribute__((destructor)) static void report(void)
{
    struct place place = {0};
    FILE *to = open_report(&place);
    if (to == NULL) {
        return;
    }
    const struct {
        const char *name;
        int value;
    } lines[] = {
        {"violations", fake.violations},
        {"left", fake.comms + fake.memory + fake.streams + fake.events + fake.graphs + fake.execs},
        {"calls", fake.calls},
        {"aborts", fake.aborts},
        {"collectives", fake.collectives},
        {"captured_collectives", fake.captured_collectives},
        {"graph_launches", fake.graph_launches},
        {"waits", fake.waits},
        {"connections", number("CUDA_DEVICE_MAX_CONNECTIONS")},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        (void)fprintf(to, "%s %d\n", lines[i].name, lines[i].value);
    }
    if (fake.first_violation != NULL) {
        (void)fprintf(to, "# %s\n", fake.first_violation);
    }
    (void)fclose(to);
    if (place.whole[0] != '\0') {
        (void)rename(place.writing, place.whole);
    }
}
