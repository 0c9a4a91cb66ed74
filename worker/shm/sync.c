/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting: spin, then sleep in slices, and between slices look for a reason to give up. Every
 * failure first writes a verdict, which wakes all sleepers. The pidfd of a peer is closed when the
 * peer has ended, the others by sync_fini().
 */
#include "worker/shm/sync.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "worker/job/proc.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Long enough that ranks with a core each meet without a system call, and short against a time
 * slice (measured with 2 and 4 ranks on 2 cores). */
#define SPIN_TURNS 2000

/* If there are more ranks than cores, each turn yields: it gives another rank a time slice, or
 * costs half a microsecond if no rank waits for this core. Waking a sleeping core costs more than
 * all these turns (4 ranks on 2 cores, 16 samples each: 147 -> 170 thousand samples/s). */
#define YIELD_TURNS 50

/* Longest sleep between two looks at the peers, and so the delay until a death is noticed. */
#define SLICE_NS (5 * CT_NS_PER_MS)

/* How many missing ranks a message names, each with up to 6 digits and a separator. Half of the
 * text is for the names. */
#define MISSING_NAMED_MAX 8
#define MISSING_TEXT_MAX 128
#define RANK_TEXT_MAX 48

/* Values in place of a pidfd. */
enum { UNWATCHED = -1, ENDED = -2 };

/* A verdict is a reason and, in its low bits, the rank that it is about or that has written it. */
enum reason { REASON_NONE, REASON_DIED, REASON_ABORTED, REASON_TIMED_OUT, REASON_TOLD };
#define VERDICT_RANK_BITS 16
#define VERDICT(reason, rank) (((uint32_t)(reason) << VERDICT_RANK_BITS) | (uint32_t)(rank))
_Static_assert(SYNC_RANKS_MAX <= 1 << VERDICT_RANK_BITS, "a rank must fit beside the reason");

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ---- futex ----------------------------------------------------------------------------------- */

/* Sleeps while *word == value, at most `ns`. It may also return for no reason. */
static void futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t ns)
{
    struct timespec limit = {.tv_sec = ns / CT_NS_PER_S, .tv_nsec = ns % CT_NS_PER_S};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- verdict --------------------------------------------------------------------------------- */

static void pronounce(struct sync *sync, enum reason reason, int rank)
{
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(&sync->page->verdict, &none, VERDICT(reason, rank));
    futex_wake_all(&sync->page->epoch);
    futex_wake_all(&sync->page->present);
}

static int name_of(const struct sync *sync, int rank)
{
    return sync->names != NULL && rank < sync->size ? sync->names[rank] : sync->first + rank;
}

/* Writes "rank 1 has", "ranks 1, 4 have" or "" for missing ranks, and returns their number. */
static int list_missing(const struct sync *sync, bool joining, char out[MISSING_TEXT_MAX])
{
    char list[MISSING_TEXT_MAX / 2] = "";
    size_t at = 0;
    int count = 0;
    for (int r = 0; r < sync->size; r++) {
        const struct sync_slot *slot = &sync->page->slots[r];
        bool behind = joining ? atomic_load(&slot->presence) < SYNC_PRESENT
                              : atomic_load(&slot->arrived) < sync->arrived;
        if (r != sync->rank && behind && count++ < MISSING_NAMED_MAX) {
            int n = snprintf(list + at, sizeof(list) - at, "%s%d", at == 0 ? "" : ", ",
                             name_of(sync, r));
            at += n > 0 ? (size_t)n : 0;
        }
    }
    char more[24] = "";
    if (count > MISSING_NAMED_MAX) {
        (void)snprintf(more, sizeof(more), " and %d more", count - MISSING_NAMED_MAX);
    }
    (void)snprintf(out, MISSING_TEXT_MAX, count == 1 ? "rank %s%s has" : "ranks %s%s have", list,
                   more);
    return count;
}

static int timed_out(struct sync *sync, bool joining, struct ct_err *err)
{
    char missing[MISSING_TEXT_MAX];
    (void)list_missing(sync, joining, missing);
    return ct_err_set(err, CT_ETIMEDOUT, "gave up after %.1f s: %s not come",
                      (double)sync->timeout_ms / 1000, missing);
}

/* Writes for example "rank 3 (pid 4711)". */
static const char *name_rank(const struct sync *sync, int rank, char out[RANK_TEXT_MAX])
{
    long pid = rank < sync->size ? sync->page->slots[rank].pid : 0;
    if (pid > 0) {
        (void)snprintf(out, RANK_TEXT_MAX, "rank %d (pid %ld)", name_of(sync, rank), pid);
    } else {
        (void)snprintf(out, RANK_TEXT_MAX, "rank %d", name_of(sync, rank));
    }
    return out;
}

static int explain(struct sync *sync, uint32_t verdict, bool joining, struct ct_err *err)
{
    char who[RANK_TEXT_MAX];
    (void)name_rank(sync, (int)(verdict & ((1U << VERDICT_RANK_BITS) - 1)), who);
    switch ((enum reason)(verdict >> VERDICT_RANK_BITS)) {
    case REASON_DIED:
        return ct_err_set(err, CT_EPEER, "%s has died", who);
    case REASON_ABORTED:
        return ct_err_set(err, CT_EPEER, "%s aborted", who);
    case REASON_TIMED_OUT: {
        /* Ranks that wait for the same rank all name it. That one learns who gave up. */
        char missing[MISSING_TEXT_MAX];
        if (list_missing(sync, joining, missing) > 0) {
            return timed_out(sync, joining, err);
        }
        return ct_err_set(err, CT_EPEER, "%s gave up waiting for this rank", who);
    }
    case REASON_TOLD:
        return ct_err_set(err, CT_EPEER, "%.*s", CT_ERR_TEXT_MAX - 1, sync->page->story);
    case REASON_NONE:
        break;
    }
    return ct_err_set(err, CT_EPROTO, "the shared page is corrupt");
}

/* ---- peers ----------------------------------------------------------------------------------- */

/* Notes the end of a peer. One that left before may end in any way: ranks that still wait for it
 * are told that it left. */
static void note_end(struct sync *sync, int rank)
{
    if (atomic_load(&sync->page->slots[rank].presence) != SYNC_LEFT) {
        pronounce(sync, REASON_DIED, rank);
    }
}

static int watch_peer(struct sync *sync, int rank, struct ct_err *err)
{
    const struct sync_slot *slot = &sync->page->slots[rank];
    pid_t pid = slot->pid;
    sync->unwatched--;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0 && errno != ESRCH) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot watch rank %d (pid %ld)",
                          name_of(sync, rank), (long)pid);
    }
    /* Read after pidfd_open(), so that it belongs to the process behind the descriptor. */
    uint64_t started = 0;
    int rc = fd >= 0 ? proc_start_time(pid, &started) : CT_ENOENT;
    if (rc == CT_ENOMEM || rc == CT_ELIMIT) { /* of this process: it says nothing of the peer */
        (void)close(fd);
        return ct_err_set(err, rc, "cannot watch rank %d (pid %ld): %s", name_of(sync, rank),
                          (long)pid, rc == CT_ENOMEM ? "out of memory" : "too many open files");
    }
    if (rc != 0 || started != slot->start_time) {
        if (fd >= 0) {
            (void)close(fd);
        }
        sync->pidfds[rank] = ENDED;
        note_end(sync, rank);
        return 0;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    if (epoll_ctl(sync->epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        int saved = errno;
        (void)close(fd);
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot watch rank %d",
                          name_of(sync, rank));
    }
    sync->pidfds[rank] = fd;
    return 0;
}

static int watch_newcomers(struct sync *sync, struct ct_err *err)
{
    for (int r = 0; r < sync->size && sync->unwatched > 0; r++) {
        if (r != sync->rank && sync->pidfds[r] == UNWATCHED &&
            atomic_load(&sync->page->slots[r].presence) >= SYNC_PRESENT) {
            int rc = watch_peer(sync, r, err);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

/* Looks for a reason to give up, between two slices of a wait. */
static int look_around(struct sync *sync, bool joining, struct ct_err *err)
{
    int rc = watch_newcomers(sync, err);
    if (rc != 0) {
        return rc;
    }
    struct epoll_event event;
    while (epoll_wait(sync->epoll, &event, 1, 0) == 1) {
        int rank = (int)event.data.u32;
        /* A fork of this process may have the descriptor, too: closing does not take it out then.
         */
        (void)epoll_ctl(sync->epoll, EPOLL_CTL_DEL, sync->pidfds[rank], NULL);
        (void)close(sync->pidfds[rank]);
        sync->pidfds[rank] = ENDED;
        note_end(sync, rank);
    }
    uint32_t verdict = atomic_load(&sync->page->verdict);
    if (verdict != 0) {
        return explain(sync, verdict, joining, err);
    }
    for (int r = 0; r < sync->size; r++) {
        const struct sync_slot *slot = &sync->page->slots[r];
        if (atomic_load(&slot->presence) == SYNC_LEFT &&
            atomic_load(&slot->arrived) < sync->arrived) {
            char who[RANK_TEXT_MAX];
            return ct_err_set(err, CT_EPEER, "%s closed its communicator", name_rank(sync, r, who));
        }
    }
    return 0;
}

static int look_outside(struct sync *sync, struct ct_err *err)
{
    int rc = sync->look != NULL ? sync->look(sync->look_data, err) : 0;
    return rc == 0 ? order_reader_check(sync->handover, err) : rc;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Has *word changed within the turns? On a crowded machine each turn yields, because otherwise a
 * waiter could keep the core from the peer that it waits for. */
static bool spin(const struct sync *sync, const _Atomic uint32_t *word, uint32_t old)
{
    for (int turn = 0; turn < sync->spin; turn++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) {
            return true;
        }
        if (sync->crowded) {
            (void)sched_yield();
        } else {
            relax();
        }
    }
    return atomic_load_explicit(word, memory_order_acquire) != old;
}

/* Waits until *word != old. Puts the deadline off by the time in which this process did not run. */
static int wait_change(struct sync *sync, _Atomic uint32_t *word, uint32_t old, bool joining,
                       int64_t *deadline, struct ct_err *err)
{
    for (;;) {
        int64_t began = ct_clock_now(NULL);
        int rc = 0;
        /* sleepers is raised before the kernel compares the word, so a peer that changes the word
         * afterwards sees it. */
        (void)atomic_fetch_add(&sync->page->sleepers, 1);
        futex_wait(word, old, SLICE_NS);
        (void)atomic_fetch_sub(&sync->page->sleepers, 1);
        if (atomic_load(word) == old) {
            rc = look_around(sync, joining, err);
            if (rc == 0) {
                rc = look_outside(sync, err);
            }
        }
        int64_t now = ct_clock_now(NULL);
        ct_deadline_put_off(deadline, began, now);
        if (atomic_load(word) != old) {
            /* If the change came during the look, what the look has found (for example a peer that
             * left after its last barrier) does not matter. */
            return 0;
        }
        if (rc == 0 && now >= *deadline) {
            rc = timed_out(sync, joining, err);
            pronounce(sync, REASON_TIMED_OUT, sync->rank);
        }
        if (rc != 0) {
            return rc;
        }
    }
}

int sync_barrier(struct sync *sync, struct ct_err *err)
{
    struct sync_page *page = sync->page;
    uint32_t epoch = atomic_load_explicit(&page->epoch, memory_order_relaxed);
    sync->arrived++;
    atomic_store_explicit(&page->slots[sync->rank].arrived, sync->arrived, memory_order_relaxed);
    uint32_t before = atomic_fetch_add_explicit(&page->arrived, 1, memory_order_acq_rel);
    if (before + 1 == (uint32_t)sync->size) {
        uint32_t verdict = atomic_load_explicit(&page->verdict, memory_order_relaxed);
        if (verdict != 0) {
            /* The other ranks have given up, so this barrier must not count as passed. */
            return explain(sync, verdict, false, err);
        }
        atomic_store_explicit(&page->arrived, 0, memory_order_relaxed);
        atomic_store(&page->epoch, epoch + 1);
        if (atomic_load(&page->sleepers) > 0) {
            futex_wake_all(&page->epoch);
        }
        return 0;
    }
    if (spin(sync, &page->epoch, epoch)) {
        return 0;
    }
    int64_t deadline = ct_deadline_in(NULL, sync->timeout_ms);
    return wait_change(sync, &page->epoch, epoch, false, &deadline, err);
}

int sync_wait(struct sync *sync, _Atomic uint32_t *word, uint32_t old, struct ct_err *err)
{
    if (spin(sync, word, old)) {
        return 0;
    }
    /* Raised as at a barrier, so that peers that left or are late count as missing. */
    sync->arrived++;
    int64_t deadline = ct_deadline_in(NULL, sync->timeout_ms);
    int rc = wait_change(sync, word, old, false, &deadline, err);
    sync->arrived--;
    return rc;
}

void sync_wake(struct sync *sync, _Atomic uint32_t *word)
{
    if (atomic_load(&sync->page->sleepers) > 0) {
        futex_wake_all(word);
    }
}

int sync_join(struct sync *sync, struct ct_err *err)
{
    struct sync_page *page = sync->page;
    struct sync_slot *slot = &page->slots[sync->rank];
    uint32_t absent = SYNC_ABSENT;
    if (!atomic_compare_exchange_strong(&slot->presence, &absent, SYNC_COMING)) {
        return ct_err_set(err, CT_EPROTO, "another process has already joined as rank %d",
                          name_of(sync, sync->rank));
    }
    slot->pid = getpid();
    int rc = proc_start_time(slot->pid, &slot->start_time);
    if (rc != 0) {
        return ct_err_set(err, rc, "cannot read /proc/self/stat");
    }
    atomic_store(&slot->presence, SYNC_PRESENT);
    (void)atomic_fetch_add(&page->present, 1);
    futex_wake_all(&page->present);
    int64_t deadline = ct_deadline_in(NULL, sync->timeout_ms);
    for (;;) {
        uint32_t present = atomic_load(&page->present);
        if (present >= (uint32_t)sync->size) {
            /* Before this rank goes on, it must watch every peer. */
            return look_around(sync, true, err);
        }
        rc = wait_change(sync, &page->present, present, true, &deadline, err);
        if (rc != 0) {
            return rc;
        }
    }
}

int sync_poll(struct sync *sync, struct ct_err *err)
{
    /* Raised as for the next barrier, where a peer that has left would be missing. */
    sync->arrived++;
    int rc = look_around(sync, false, err);
    sync->arrived--;
    return rc == 0 ? order_reader_check(sync->handover, err) : rc;
}

void sync_abort(struct sync *sync)
{
    pronounce(sync, REASON_ABORTED, sync->rank);
}

void sync_tell(struct sync *sync, const char *story)
{
    if (atomic_load(&sync->page->verdict) == REASON_NONE) {
        (void)snprintf(sync->page->story, sizeof(sync->page->story), "%s", story);
        pronounce(sync, REASON_TOLD, sync->rank);
    }
}

/* ---- set-up ---------------------------------------------------------------------------------- */

int sync_init(struct sync *sync, struct sync_page *page, int rank, int size, int crowd,
              int64_t timeout_ms, struct ct_err *err)
{
    *sync = (struct sync){.rank = rank, .size = size, .timeout_ms = timeout_ms, .epoll = -1};
    sync->unwatched = size - 1;
    sync->crowded = crowd > proc_cpu_count();
    sync->spin = sync->crowded ? YIELD_TURNS : SPIN_TURNS;
    sync->pidfds = ct_malloc((size_t)size * sizeof(*sync->pidfds));
    if (sync->pidfds == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    for (int r = 0; r < size; r++) {
        sync->pidfds[r] = UNWATCHED;
    }
    sync->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (sync->epoll < 0) {
        int saved = errno;
        sync_fini(sync);
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot watch peers");
    }
    sync->page = page;
    return 0;
}

void sync_fini(struct sync *sync)
{
    if (sync->page != NULL) {
        struct sync_slot *slot = &sync->page->slots[sync->rank];
        if (atomic_load(&slot->presence) == SYNC_PRESENT) {
            atomic_store(&slot->presence, SYNC_LEFT);
            futex_wake_all(&sync->page->epoch);
        }
    }
    for (int r = 0; r < sync->size && sync->pidfds != NULL; r++) {
        if (sync->pidfds[r] >= 0) {
            (void)close(sync->pidfds[r]);
        }
    }
    ct_free(sync->pidfds);
    if (sync->epoll >= 0) {
        (void)close(sync->epoll);
    }
    *sync = (struct sync){.epoll = -1};
}
