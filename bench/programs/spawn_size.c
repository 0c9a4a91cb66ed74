/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether starting a process gets slower as the store in the same process grows, as it does with
 * fork().
 *
 *     bench-spawn-size MIB COUNT
 *
 * Fills a store with MIB MiB, then spawns /bin/true COUNT times as ctrun does; prints the median
 * time until it runs, in microseconds.
 */
#include "common/clock.h"
#include "launcher/process/spawn.h"
#include "rendezvous/store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define MAX_COUNT 1000

static _Noreturn void fail(const char *why)
{
    (void)fprintf(stderr, "bench-spawn-size: %s\n", why);
    exit(1);
}

static void fill(struct ct_store *store, long mib)
{
    char *value = malloc(MIB);
    if (value == NULL) {
        fail("out of memory");
    }
    memset(value, 'x', MIB);
    for (long i = 0; i < mib; i++) {
        const struct ct_bytes key = {(const unsigned char *)&i, sizeof(i)};
        if (ct_store_set(store, key, (struct ct_bytes){(unsigned char *)value, MIB}) != 0) {
            fail("the store does not take that much");
        }
    }
    free(value);
}

static int64_t spawn_once(void)
{
    char *const argv[] = {(char *)"true", NULL};
    char *const env[] = {NULL};
    const struct ct_spawn_options options = {
        .path = "/bin/true", .argv = argv, .envp = env, .stdio = {-1, -1, -1}};
    struct ct_child child;
    struct ct_err err = {0};
    int64_t begin = ct_clock_now(NULL);
    if (ct_spawn(&options, &child, &err) != 0) {
        fail(err.text);
    }
    int64_t took = ct_clock_now(NULL) - begin;
    (void)waitpid(child.pid, NULL, 0);
    (void)close(child.pidfd);
    return took;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static int64_t took[MAX_COUNT];
    struct ct_store *store = NULL;
    long count = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (count < 1 || count > MAX_COUNT) {
        fail("usage: bench-spawn-size MIB COUNT");
    }
    if (ct_store_new(&store) != 0) {
        fail("out of memory");
    }
    fill(store, strtol(argv[1], NULL, 10));
    for (long i = 0; i < count; i++) {
        took[i] = spawn_once();
    }
    qsort(took, (size_t)count, sizeof(took[0]), compare);
    (void)printf("%.1f\n", (double)took[count / 2] / 1000.0);
    ct_store_free(store);
    return 0;
}
