/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call prints the library's message before it ends the process.
 */
#include "tests/lib/rank_calls.h"

#include "tests/lib/ranks.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

struct ctw_job *rank_open_job(void)
{
    struct ctw_job *job = NULL;
    CHECK(ctw_job_open(NULL, &job, NULL) == 0);
    return job;
}

static struct ctw_comm *open_comm(struct ctw_job *job, const struct ctw_comm_options *options)
{
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    if (ctw_comm_open(job, options, &comm, &err) != 0) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    return comm;
}

struct ctw_comm *rank_open_comm(struct ctw_job *job, int64_t timeout_ms)
{
    return open_comm(job, &(struct ctw_comm_options){.timeout_ms = timeout_ms});
}

struct ctw_comm *rank_open_tree(struct ctw_job *job)
{
    return open_comm(job,
                     &(struct ctw_comm_options){.timeout_ms = LONG_MS, .order = CTW_ORDER_TREE});
}

struct ctw_comm *rank_split(struct ctw_comm *comm, int color, int key)
{
    struct ctw_comm *group = NULL;
    struct ct_err err = {0};
    if (ctw_comm_split(comm, color, key, &group, &err) != 0) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    CHECK((group == NULL) == (color < 0));
    return group;
}

struct ctw_link *rank_open_link(struct ctw_comm *comm, int peer, size_t buffer)
{
    struct ctw_link *link = NULL;
    struct ct_err err = {0};
    if (ctw_link_open(comm, peer, buffer, &link, &err) != 0) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    return link;
}

struct rank_pair rank_open_pair(int rank, size_t buffer, int64_t timeout_ms)
{
    struct rank_pair pair = {.job = rank_open_job()};
    pair.comm = rank_open_comm(pair.job, timeout_ms);
    pair.link = rank_open_link(pair.comm, 1 - rank, buffer);
    return pair;
}

void rank_close_pair(struct rank_pair *pair)
{
    ctw_link_free(pair->link);
    ctw_comm_free(pair->comm);
    ctw_job_free(pair->job);
}

void *rank_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes)
{
    void *block = NULL;
    CHECK(ctw_comm_alloc(comm, kind, bytes, &block, NULL) == 0);
    CHECK((uintptr_t)block % 4096 == 0);
    return block;
}

float rank_sum(struct ctw_comm *comm, float mine)
{
    float sum = 0;
    CHECK(ctw_comm_all_reduce(comm, &mine, &sum, 1, NULL) == 0);
    return sum;
}

float rank_fraction(int rank, size_t i)
{
    return (float)((i * 2654435761U + (size_t)rank * 40503U) % 100003U) / 7.0F;
}

float rank_fraction_tree(int first, int n, size_t i)
{
    return n == 1
               ? rank_fraction(first, i)
               : rank_fraction_tree(first, n / 2, i) + rank_fraction_tree(first + n / 2, n / 2, i);
}

void rank_check_broadcast(struct ctw_comm *comm, unsigned char *buf, size_t bytes, int root)
{
    int rank = ctw_comm_rank(comm);
    for (size_t i = 0; i < bytes; i++) {
        buf[i] = rank == root ? (unsigned char)(i * 31 + (size_t)root) : 0xee;
    }
    CHECK(ctw_comm_broadcast(comm, buf, bytes, root, NULL) == 0);
    for (size_t i = 0; i < bytes; i++) {
        CHECK(buf[i] == (unsigned char)(i * 31 + (size_t)root));
    }
}

int rank_open_files(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    CHECK(dir != NULL);
    while (readdir(dir) != NULL) {
        count++;
    }
    (void)closedir(dir);
    return count;
}

void rank_check_text(const struct ct_err *err, const char *want)
{
    if (strstr(err->text, want) == NULL) {
        (void)fprintf(stderr, "\"%s\" is not in \"%s\"\n", want, err->text);
        CHECK(false);
    }
}

/* After a failure every call fails at once with the same code. */
void rank_check_dead(struct ctw_comm *comm, int code)
{
    struct ct_err err = {0};
    float x = 1;
    void *block;
    size_t begin, end;
    CHECK(ctw_comm_barrier(comm, &err) == code);
    rank_check_text(&err, "has ended");
    CHECK(ctw_comm_all_reduce(comm, &x, &x, 1, NULL) == code);
    CHECK(ctw_comm_reduce_scatter(comm, &x, 1, &begin, &end, NULL) == code);
    CHECK(ctw_comm_broadcast(comm, &x, sizeof(x), 0, NULL) == code);
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 1, &block, NULL) == code);
    CHECK(ctw_comm_poll(comm, NULL) == code);
    CHECK(ctw_comm_sync(comm, NULL) == code);
    ctw_comm_abort(comm);
}
