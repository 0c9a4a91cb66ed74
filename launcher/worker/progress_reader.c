/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: one slot for each worker in a file in memory, which workers map and write. The
 * launcher copies a slot by pread(2) instead of mapping it, so a worker cannot change it while it
 * is checked.
 *
 * Failure modes: without the file the job runs without progress, which is said once at the start; a
 * slot that makes no sense counts as one that says nothing.
 */
#include "launcher/worker/progress_reader.h"

#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Slots copied by one read: 8 KiB of stack. */
#define BATCH 64

/* The file is sealed, because a worker that shrank it would make SIGBUS kill the others. */
static int make(off_t size)
{
    int fd = ct_file_in_memory("ctrun-progress", true);
    if (fd >= 0 && (ftruncate(fd, size) != 0 ||
                    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        int error = errno;
        (void)close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

void ct_progress_reader_open(struct ct_progress_reader *reader, int workers,
                             const struct ct_log *log)
{
    *reader = (struct ct_progress_reader)CT_PROGRESS_READER_INIT;
    int fd = make((off_t)workers * CT_PROGRESS_SLOT);
    if (fd < 0) {
        ct_log(log, CT_LOG_WARNING, "no progress of workers will be seen: %s", strerror(errno));
        return;
    }
    reader->fd = fd;
    reader->workers = workers;
    (void)snprintf(reader->path, sizeof(reader->path), "/proc/%ld/fd/%d", (long)getpid(), fd);
}

void ct_progress_reader_fini(struct ct_progress_reader *reader)
{
    if (reader->fd >= 0) {
        (void)close(reader->fd);
    }
    *reader = (struct ct_progress_reader)CT_PROGRESS_READER_INIT;
}

static bool read_slot(const struct ct_progress_reader *reader, int local_rank,
                      struct ct_progress_slot *slot)
{
    off_t at = (off_t)local_rank * CT_PROGRESS_SLOT;
    return local_rank >= 0 && local_rank < reader->workers &&
           pread(reader->fd, slot, sizeof(*slot), at) == (ssize_t)sizeof(*slot);
}

void ct_progress_reader_reset(struct ct_progress_reader *reader, int local_rank, bool kept)
{
    struct ct_progress_slot slot;
    struct ct_progress_slot fresh = {0};
    if (!read_slot(reader, local_rank, &slot)) {
        return;
    }
    if (kept) {
        fresh.version = slot.version;
        fresh.stay = slot.stay;
        fresh.writer = slot.writer;
    }
    (void)!pwrite(reader->fd, &fresh, sizeof(fresh), (off_t)local_rank * CT_PROGRESS_SLOT);
}

enum ct_stay ct_progress_reader_stay(const struct ct_progress_reader *reader, int local_rank,
                                     int generation)
{
    struct ct_progress_slot slot;
    return read_slot(reader, local_rank, &slot) ? ct_progress_stay(&slot, generation) : CT_STAY_NOT;
}

bool ct_progress_reader_permanent(const struct ct_progress_reader *reader, int local_rank)
{
    struct ct_progress_slot slot;
    return read_slot(reader, local_rank, &slot) && ct_progress_permanent(&slot);
}

bool ct_progress_reader_read(const struct ct_progress_reader *reader, int local_rank,
                             int64_t now_ns, struct ct_progress *out)
{
    struct ct_progress_slot slot;
    return read_slot(reader, local_rank, &slot) && ct_progress_decode(&slot, now_ns, out);
}

void ct_progress_reader_read_all(const struct ct_progress_reader *reader, int64_t now_ns,
                                 struct ct_progress *out, bool *valid)
{
    struct ct_progress_slot slots[BATCH];
    for (int first = 0; first < reader->workers; first += BATCH) {
        int count = reader->workers - first < BATCH ? reader->workers - first : BATCH;
        size_t bytes = (size_t)count * sizeof(slots[0]);
        bool read =
            pread(reader->fd, slots, bytes, (off_t)first * CT_PROGRESS_SLOT) == (ssize_t)bytes;
        for (int i = 0; i < count; i++) {
            valid[first + i] = read && ct_progress_decode(&slots[i], now_ns, &out[first + i]);
        }
    }
}

int64_t ct_progress_reader_first_step_ns(const struct ct_progress_reader *reader, int64_t now_ns)
{
    int64_t first_ns = 0;
    for (int i = 0; i < reader->workers; i++) {
        struct ct_progress progress;
        if (ct_progress_reader_read(reader, i, now_ns, &progress) && progress.first_ns > 0 &&
            (first_ns == 0 || progress.first_ns < first_ns)) {
            first_ns = progress.first_ns;
        }
    }
    return first_ns;
}
