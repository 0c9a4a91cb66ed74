/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker for the tests of in-process restarts: meets its peers again and again until the file
 * FOLDER/go is there, and goes on in the next generation when one of them dies.
 *
 *     restart-worker MODE FOLDER
 *
 * MODE says how well it does that: "stays"; "deaf" says that it can and sleeps when a peer dies;
 * "stubborn" stays, and takes no notice of SIGTERM; "forks" stays, and has a child in its session
 * and one in another; "alone" needs no peers and never notices anything by itself.
 */
#include "worker/ctworker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Rank 0 says how the ranks' next meeting ends. */
enum { GO_ON, DONE };

static void nap(void)
{
    const struct timespec time = {.tv_nsec = 2 * 1000 * 1000};
    (void)nanosleep(&time, NULL);
}

static int complain(struct ctw_job *job, const struct ct_err *err)
{
    (void)fprintf(stderr, "restart-worker: %s\n", err->text);
    (void)ctw_job_report_error(job, err->text, NULL);
    return EXIT_FAILURE;
}

/* Two processes that only sleep. */
static void start_children(void)
{
    for (int own = 0; own < 2; own++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (own == 1) {
                (void)setsid();
            }
            (void)execlp("sleep", "sleep", "600", (char *)NULL);
            _exit(127);
        }
        (void)printf("child %s %ld\n", own == 1 ? "away" : "here", (long)pid);
    }
}

static int meet(struct ctw_job *job, const char *go, struct ct_err *err)
{
    struct ctw_comm *comm;
    int rc = ctw_comm_open(job, NULL, &comm, err);
    if (rc != 0) {
        return rc;
    }
    char word = GO_ON;
    (void)printf("met %d\n", ctw_job_env(job)->generation);
    while (rc == 0 && word == GO_ON) {
        nap();
        word = access(go, F_OK) == 0 ? DONE : GO_ON;
        rc = ctw_comm_broadcast(comm, &word, 1, 0, err);
    }
    ctw_comm_free(comm);
    return rc;
}

/* Looks at nothing but the launcher's order. */
static int idle(struct ctw_job *job, const char *go)
{
    while (!ctw_job_ended(job) && access(go, F_OK) != 0) {
        nap();
    }
    return ctw_job_ended(job) ? CT_EPEER : 0;
}

static int work(struct ctw_job *job, const char *mode, const char *go, struct ct_err *err)
{
    for (;;) {
        const struct ctw_env *env = ctw_job_env(job);
        (void)printf("up %d %d %d %d %ld\n", env->generation, env->rank, env->world_size,
                     env->local_rank, (long)getpid());
        int rc = strcmp(mode, "alone") == 0 ? idle(job, go) : meet(job, go, err);
        if (rc == 0) {
            return 0;
        }
        (void)printf("broken %d: %s\n", env->generation, err->text);
        while (strcmp(mode, "deaf") == 0) {
            (void)pause();
        }
        rc = ctw_job_next(job, 0, err);
        if (rc != 0) {
            return rc;
        }
    }
}

int main(int argc, char *argv[])
{
    struct ct_err err = {0};
    struct ctw_job *job;
    char go[4096];
    if (argc != 3) {
        return EXIT_FAILURE;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)snprintf(go, sizeof(go), "%s/go", argv[2]);
    if (strcmp(argv[1], "stubborn") == 0) {
        (void)signal(SIGTERM, SIG_IGN);
    } else if (strcmp(argv[1], "forks") == 0) {
        start_children();
    }
    if (ctw_job_open(NULL, &job, &err) != 0) {
        return complain(NULL, &err);
    }
    if (ctw_job_stay(job, true, &err) != 0) {
        (void)printf("cannot stay: %s\n", err.text);
    }
    int rc = work(job, argv[1], go, &err);
    int code = rc == 0 ? EXIT_SUCCESS : complain(job, &err);
    ctw_job_free(job);
    return code;
}
