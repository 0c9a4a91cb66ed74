/* SPDX-License-Identifier: Apache-2.0
 *
 * Rooms of tests/lib/fake_gpu/fake_nccl.h: where ranks that are threads, or processes, find each
 * other.
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

static struct fake_room *map(int fd)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void *room =
        mmap(NULL, sizeof(struct fake_room), PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
    return room != MAP_FAILED ? room : NULL;
}

struct fake_room *fake_room_new(int size)
{
    struct fake_room *room = map(-1);
    if (room != NULL) {
        room->size = size;
        room->came = size;
        room->alive = size;
        fake.cliques++;
    }
    return room;
}

/* The file is there until all have come. */
void fake_room_name(ncclUniqueId *id)
{
    const char *dir = getenv("TMPDIR");
    *id = (ncclUniqueId){{0}};
    (void)snprintf(id->internal, sizeof id->internal, "%s/fake-nccl-XXXXXX",
                   dir != NULL ? dir : "/tmp");
    int fd = mkostemp(id->internal, O_CLOEXEC);
    fake_rule(fd >= 0 && ftruncate(fd, (off_t)sizeof(struct fake_room)) == 0, "no file for a room");
    (void)close(fd);
}

static struct fake_room *enter(const char *path, int flags, int rank, int size)
{
    int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
    struct fake_room *room =
        fd >= 0 && ftruncate(fd, (off_t)sizeof(struct fake_room)) == 0 ? map(fd) : NULL;
    (void)close(fd);
    if (room == NULL) {
        return NULL;
    }
    fake.cliques++;
    room->size = size;
    (void)snprintf(room->path, sizeof room->path, "%s", path);
    fake_rule(room->pid[rank] == 0, "two processes of one rank");
    room->pid[rank] = getpid();
    room->alive++;
    if (++room->came == size) {
        (void)unlink(path);
    }
    return room;
}

struct fake_room *fake_room_enter(const ncclUniqueId *id, int rank, int size)
{
    return enter(id->internal, 0, rank, size);
}

struct fake_room *fake_room_enter_part(const struct ncclComm *parent, int rank, int size)
{
    char path[NCCL_UNIQUE_ID_BYTES];
    int n =
        snprintf(path, sizeof path, "%s.%d.%d", parent->room->path, parent->splits, parent->color);
    fake_rule(n < (int)sizeof path, "a path that is too long");
    return enter(path, O_CREAT, rank, size);
}

bool fake_room_is_full(const struct fake_room *room)
{
    return room->came >= room->size;
}

/* By its death, or by giving up. */
bool fake_room_lost_someone(const struct fake_room *room)
{
    for (int r = 0; r < room->size; r++) {
        int pid = room->pid[r];
        if (pid == FAKE_GONE || (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)) {
            return true;
        }
    }
    return false;
}

void fake_room_leave(struct fake_room *room, int rank, int how)
{
    bool processes = room->pid[rank] != 0;
    if (processes) {
        room->pid[rank] = how;
        if (!fake_room_is_full(room)) {
            (void)unlink(room->path);
        }
    }
    if (--room->alive == 0 || processes) {
        (void)munmap(room, sizeof *room);
        fake.cliques--;
    }
}
