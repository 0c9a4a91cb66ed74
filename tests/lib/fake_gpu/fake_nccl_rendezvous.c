/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous of tests/lib/fake_gpu/fake_nccl.h: memory in which ranks that are threads or
 * processes find each other.
 */
#include "tests/lib/fake_gpu/fake_nccl.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct fake_rendezvous *map(int fd)
{
    void *rendezvous = mmap(NULL, sizeof(struct fake_rendezvous), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, fd, 0);
    return rendezvous != MAP_FAILED ? rendezvous : NULL;
}

/* The file exists until all ranks have come. */
void fake_rendezvous_name(ncclUniqueId *id)
{
    const char *dir = getenv("TMPDIR");
    *id = (ncclUniqueId){{0}};
    (void)snprintf(id->internal, sizeof id->internal, "%s/fake-nccl-XXXXXX",
                   dir != NULL ? dir : "/tmp");
    int fd = mkostemp(id->internal, O_CLOEXEC);
    fake_rule(fd >= 0 && ftruncate(fd, (off_t)sizeof(struct fake_rendezvous)) == 0,
              "no file for a rendezvous");
    (void)close(fd);
}

static struct fake_rendezvous *enter(const char *path, int flags, int rank, int size)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    struct fake_rendezvous *rendezvous =
        fd >= 0 && ftruncate(fd, (off_t)sizeof(struct fake_rendezvous)) == 0 ? map(fd) : NULL;
    (void)close(fd);
    if (rendezvous == NULL) {
        return NULL;
    }
    fake.cliques++;
    rendezvous->size = size;
    (void)snprintf(rendezvous->path, sizeof rendezvous->path, "%s", path);
    fake_rule(rendezvous->pid[rank] == 0, "two processes of one rank");
    rendezvous->pid[rank] = getpid();
    if (++rendezvous->came == size) {
        (void)unlink(path);
    }
    return rendezvous;
}

struct fake_rendezvous *fake_rendezvous_enter(const ncclUniqueId *id, int rank, int size)
{
    return enter(id->internal, 0, rank, size);
}

struct fake_rendezvous *fake_rendezvous_enter_part(const struct ncclComm *parent, int rank,
                                                   int size)
{
    char path[NCCL_UNIQUE_ID_BYTES];
    int n = snprintf(path, sizeof path, "%s.%d.%d", parent->rendezvous->path, parent->splits,
                     parent->color);
    fake_rule(n < (int)sizeof path, "a path that is too long");
    return enter(path, O_CREAT, rank, size);
}

bool fake_rendezvous_is_full(const struct fake_rendezvous *rendezvous)
{
    return rendezvous->came >= rendezvous->size;
}

/* True if a process has died or has aborted its communicator. */
bool fake_rendezvous_lost_someone(const struct fake_rendezvous *rendezvous)
{
    for (int r = 0; r < rendezvous->size; r++) {
        int pid = rendezvous->pid[r];
        if (pid == FAKE_GONE || (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)) {
            return true;
        }
    }
    return false;
}

bool fake_rendezvous_is_final(const struct fake_rendezvous *rendezvous)
{
    for (int r = 0; r < rendezvous->size; r++) {
        int pid = rendezvous->pid[r];
        bool gone = pid < 0 || (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH);
        if (!gone && !rendezvous->finalized[r]) {
            return false;
        }
    }
    return true;
}

/* Has this process another rank there? */
static bool has_crew(const struct fake_rendezvous *rendezvous, int rank)
{
    bool found = false;
    for (int r = 0; r < rendezvous->size; r++) {
        found = found || (r != rank && rendezvous->pid[r] == getpid());
    }
    return found;
}

/* NCCL keeps what an aborted rank of a crew has until all of its ranks have ended, and so the
 * others do not notice. */
void fake_rendezvous_leave(struct fake_rendezvous *rendezvous, int rank, int how)
{
    bool silent = fake.crews && has_crew(rendezvous, rank);
    rendezvous->pid[rank] = silent ? FAKE_LEFT : how;
    if (!fake_rendezvous_is_full(rendezvous)) {
        (void)unlink(rendezvous->path);
    }
    (void)munmap(rendezvous, sizeof *rendezvous);
    fake.cliques--;
}
