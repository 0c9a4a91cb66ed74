/* SPDX-License-Identifier: Apache-2.0
 *
 * Maps the slot that CTRUN_HANDOVER names and sleeps on its futex. If the file is unusable, there
 * are no orders, and the worker ends with its generation.
 */
#include "worker/job/order_reader.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATH_LONGEST 256

/* Every order wakes the sleepers; this only limits the delay if a wake-up is lost. */
#define SLICE_MS 1000

static uint32_t order_of(const struct order_reader *handover)
{
    return __atomic_load_n(&handover->slot->order, __ATOMIC_ACQUIRE);
}

void order_reader_open(struct order_reader *handover, const char *value, int generation)
{
    char path[PATH_LONGEST];
    int64_t offset;
    struct stat st;
    *handover = (struct order_reader){.generation = generation};
    if (value == NULL || ct_progress_parse(value, path, sizeof(path), &offset) != 0 ||
        offset % CT_HANDOVER_SLOT != 0) {
        return;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    /* mmap() needs an offset at a page boundary; a slot may be less. */
    size_t start = (size_t)offset % (size_t)sysconf(_SC_PAGESIZE);
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= offset + CT_HANDOVER_SLOT) {
        size_t size = start + CT_HANDOVER_SLOT;
        void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, offset - (int64_t)start);
        if (map != MAP_FAILED) {
            handover->mapping = map;
            handover->mapped = size;
            handover->slot =
                (const struct ct_handover_slot *)(const void *)((unsigned char *)map + start);
        }
    }
    (void)close(fd);
    if (handover->slot != NULL && handover->slot->version != CT_HANDOVER_VERSION) {
        order_reader_close(handover);
    }
}

void order_reader_close(struct order_reader *handover)
{
    if (handover->mapping != NULL) {
        (void)munmap(handover->mapping, handover->mapped);
    }
    *handover = (struct order_reader){.generation = handover->generation};
}

int order_reader_check(const struct order_reader *handover, struct ct_err *err)
{
    return order_reader_ended(handover)
               ? ct_err_set(err, CT_EPEER, "the launcher has ended generation %d",
                            handover->generation)
               : 0;
}

/* Sleeps until the order differs from `seen`, but at most `ms`. */
static void sleep_on(const struct order_reader *handover, uint32_t seen, int64_t ms)
{
    ms = ms < SLICE_MS ? ms : SLICE_MS;
    const struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * CT_NS_PER_MS};
    (void)syscall(SYS_futex, &handover->slot->order, FUTEX_WAIT, seen, &limit, NULL, 0);
}

static int job_is_over(struct ct_err *err)
{
    return ct_err_set(err, CT_EABORTED, "the launcher has ended the job");
}

int order_reader_await_end(const struct order_reader *handover, int64_t timeout_ms,
                           struct ct_err *err)
{
    const uint32_t park = ct_generation_word(handover->generation, CT_ORDER_PARK);
    int64_t deadline = ct_deadline_in(NULL, timeout_ms);
    for (;;) {
        uint32_t order = order_of(handover);
        if (order == park) {
            return 0;
        }
        if ((order & 3) == CT_ORDER_END) {
            return job_is_over(err);
        }
        int left = ct_deadline_left_ms(NULL, deadline);
        if (left == 0) {
            return ct_err_set(err, CT_ETIMEDOUT,
                              "the launcher has not ended generation %d within %.1f s",
                              handover->generation, (double)timeout_ms / 1000);
        }
        sleep_on(handover, order, left < 0 ? SLICE_MS : left);
    }
}

static int take_contract(const struct order_reader *handover, char **text, size_t *bytes,
                         struct ct_err *err)
{
    const struct ct_handover_slot *slot = handover->slot;
    size_t len = slot->bytes;
    if (len == 0 || len > sizeof(slot->text)) {
        return ct_err_set(err, CT_EPROTO, "the next generation's environment has %zu bytes", len);
    }
    char *copy = ct_malloc(len);
    if (copy == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    memcpy(copy, slot->text, len);
    if (copy[len - 1] != '\0') {
        ct_free(copy);
        return ct_err_set(err, CT_EPROTO, "the next generation's environment has no end");
    }
    *text = copy;
    *bytes = len;
    return 0;
}

int order_reader_await_next(const struct order_reader *handover, char **text, size_t *bytes,
                            uint32_t *generation, struct ct_err *err)
{
    const uint32_t park = ct_generation_word(handover->generation, CT_ORDER_PARK);
    for (;;) {
        uint32_t order = order_of(handover);
        if ((order & 3) == CT_ORDER_END) {
            return job_is_over(err);
        }
        /* The next generation may already have ended before this process saw it begin. Its
         * environment is still in the slot. */
        if ((order & 3) == CT_ORDER_GO || ((order & 3) == CT_ORDER_PARK && order != park)) {
            *generation = order >> 2;
            return take_contract(handover, text, bytes, err);
        }
        sleep_on(handover, order, SLICE_MS);
    }
}
