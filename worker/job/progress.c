/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps the slot that CTRUN_PROGRESS names and stores each word of it atomically. If the file is
 * missing or too short, nobody reads: nothing is stored, and no call fails.
 */
#include "worker/job/progress.h"

#include "common/clock.h"
#include "worker/ctworker.h"
#include "worker/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert((int)CTW_PHASE_DONE == (int)CT_PHASE_DONE,
               "ctworker.h and common/progress_page.h agree");

#define PATH_LONGEST 256

/* A stamp is three stores. They are relaxed, because the reader needs no order between them. */
#define STORE(to, value) __atomic_store_n(&(to), (value), __ATOMIC_RELAXED)

static void store_double(double *to, double value)
{
    __atomic_store(to, &value, __ATOMIC_RELAXED);
}

/* The pid of this process, also after a fork. getpid() is a system call, for which a short
 * collective has no time. */
static _Atomic int64_t own_pid;

static void note_pid(void)
{
    atomic_store_explicit(&own_pid, getpid(), memory_order_relaxed);
}

static void watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, note_pid); /* without memory, forks are not told apart */
}

void progress_map(struct progress_page *page, const char *value)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    char path[PATH_LONGEST];
    int64_t offset;
    struct stat st;
    (void)pthread_once(&once, watch_forks);
    note_pid();
    *page = (struct progress_page){0};
    if (value == NULL || ct_progress_parse(value, path, sizeof(path), &offset) != 0) {
        return;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    /* A write beyond the end of a mapped file kills the process. The launcher's file never shrinks;
     * another file may. */
    size_t start = (size_t)offset % (size_t)sysconf(_SC_PAGESIZE);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= offset + CT_PROGRESS_SLOT) {
        size_t size = start + CT_PROGRESS_SLOT;
        void *map =
            mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset - (int64_t)start);
        if (map != MAP_FAILED) {
            page->mapping = map;
            page->mapped = size;
            page->slot = (struct ct_progress_slot *)((unsigned char *)map + start);
        }
    }
    (void)close(fd);
}

static int64_t writer_of(const struct ct_progress_slot *slot)
{
    return __atomic_load_n(&slot->writer, __ATOMIC_RELAXED);
}

/* Returns the slot; NULL if another process writes it, such as the worker whose child this is. */
static struct ct_progress_slot *own_slot(const struct progress_page *page)
{
    struct ct_progress_slot *slot = page->slot;
    int64_t own = atomic_load_explicit(&own_pid, memory_order_relaxed);
    return slot != NULL && writer_of(slot) == own ? slot : NULL;
}

static bool lives(int64_t pid)
{
    return pid > 0 && pid <= INT_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
}

void progress_open(struct progress_page *page, const char *value)
{
    progress_map(page, value);
    struct ct_progress_slot *slot = page->slot;
    if (slot != NULL && (writer_of(slot) == getpid() || !lives(writer_of(slot)))) {
        STORE(slot->stay, CT_STAY_NOT);
        STORE(slot->permanent, 0);
        progress_renew(page);
    }
}

void progress_renew(struct progress_page *page)
{
    struct ct_progress_slot *slot = page->slot;
    if (slot != NULL) {
        store_double(&slot->loss, (double)NAN);
        store_double(&slot->rate, (double)NAN);
        STORE(slot->first_ns, 0);
        STORE(slot->total, 0);
        STORE(slot->turns, 0);
        STORE(slot->checkpoint_begin_ns, 0);
        STORE(slot->checkpoint_end_ns, 0);
        STORE(slot->writer, getpid());
        STORE(slot->where, ct_progress_where(CT_PHASE_STARTING, 0));
        STORE(slot->stamp_ns, ct_clock_now(NULL));
        __atomic_store_n(&slot->version, CT_PROGRESS_VERSION, __ATOMIC_RELEASE);
    }
}

void progress_stay(struct progress_page *page, uint32_t stay)
{
    struct ct_progress_slot *slot = own_slot(page);
    if (slot != NULL) {
        __atomic_store_n(&slot->stay, stay, __ATOMIC_RELEASE);
    }
}

void progress_permanent(struct progress_page *page)
{
    if (page->slot != NULL) {
        STORE(page->slot->permanent, CT_PROGRESS_PERMANENT);
        /* The page may be one that no job has opened. */
        __atomic_store_n(&page->slot->version, CT_PROGRESS_VERSION, __ATOMIC_RELEASE);
    }
}

void progress_close(struct progress_page *page)
{
    if (page->mapping != NULL) {
        (void)munmap(page->mapping, page->mapped);
    }
    *page = (struct progress_page){0};
}

static void stamp(struct ct_progress_slot *slot, uint64_t where)
{
    if (ct_progress_phase(where) == CT_PHASE_COLLECTIVE) {
        STORE(slot->waits, 1);
    }
    STORE(slot->where, where);
    STORE(slot->stamp_ns, ct_clock_now(NULL));
}

uint64_t progress_begin_wait(struct progress_page *page)
{
    struct ct_progress_slot *slot = page != NULL ? own_slot(page) : NULL;
    if (slot == NULL) {
        return 0;
    }
    uint64_t before = __atomic_load_n(&slot->where, __ATOMIC_RELAXED);
    stamp(slot, ct_progress_where(CT_PHASE_COLLECTIVE, ct_progress_step(before)));
    return before;
}

void progress_end_wait(struct progress_page *page, uint64_t before)
{
    struct ct_progress_slot *slot = page != NULL ? own_slot(page) : NULL;
    if (slot != NULL) {
        stamp(slot, before);
    }
}

/* Notes when a checkpoint begins and ends, which is when the phase changes to it and from it. */
static void note_checkpoint(struct ct_progress_slot *slot, enum ct_phase next)
{
    bool now = ct_progress_phase(slot->where) == CT_PHASE_CHECKPOINT;
    if (!now && next == CT_PHASE_CHECKPOINT) {
        STORE(slot->checkpoint_begin_ns, ct_clock_now(NULL));
    } else if (now && next != CT_PHASE_CHECKPOINT) {
        STORE(slot->checkpoint_end_ns, ct_clock_now(NULL));
    }
}

static struct ct_progress_slot *slot_of(const struct ctw_job *job)
{
    return job != NULL ? own_slot(&job->progress) : NULL;
}

void ctw_progress(struct ctw_job *job, enum ctw_phase phase, int64_t step)
{
    struct ct_progress_slot *slot = slot_of(job);
    if (slot != NULL) {
        uint64_t where = ct_progress_where((enum ct_phase)phase, step);
        /* Nothing is done from "starting" to the first step, which after a restart may be any. */
        if (ct_progress_step(slot->where) != ct_progress_step(where) &&
            slot->where != ct_progress_where(CT_PHASE_STARTING, 0)) {
            STORE(slot->turns, slot->turns + 1);
            if (slot->first_ns == 0) {
                STORE(slot->first_ns, ct_clock_now(NULL));
            }
        }
        note_checkpoint(slot, (enum ct_phase)phase);
        stamp(slot, where);
    }
}

void ctw_progress_metrics(struct ctw_job *job, double loss, double samples_per_s)
{
    struct ct_progress_slot *slot = slot_of(job);
    if (slot != NULL) {
        store_double(&slot->loss, loss);
        store_double(&slot->rate, samples_per_s);
    }
}

void ctw_progress_total(struct ctw_job *job, int64_t steps)
{
    struct ct_progress_slot *slot = slot_of(job);
    if (slot != NULL) {
        STORE(slot->total, steps);
    }
}
