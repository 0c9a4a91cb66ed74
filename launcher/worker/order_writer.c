/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a file in memory has one slot for each worker; workers open it through /proc. The
 * text of an order is written first; then one atomic store makes the order valid, and a futex wakes
 * the worker.
 *
 * Failure modes: without the file no worker is kept over a restart. This is logged once, at the
 * start, and all functions then do nothing.
 */
#include "launcher/worker/order_writer.h"

#include "common/file.h"
#include "common/progress_page.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1, <linux/fcntl.h> */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static struct ct_handover_slot *slot_of(const struct ct_order_writer *orders, int local_rank)
{
    unsigned char *at = orders->map + (size_t)local_rank * CT_HANDOVER_SLOT;
    return (struct ct_handover_slot *)(void *)at;
}

static bool make(struct ct_order_writer *orders, size_t size)
{
    int fd = orders->fd = ct_file_in_memory("ctrun-handover", true);
    if (fd < 0 || ftruncate(fd, (off_t)size) != 0) {
        return false;
    }
    orders->map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (orders->map == MAP_FAILED) {
        orders->map = NULL;
        return false;
    }
    /* Keeps workers from giving orders to each other. Older kernels do not know this seal. */
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

void ct_order_writer_open(struct ct_order_writer *orders, int workers, const struct ct_log *log)
{
    *orders = (struct ct_order_writer){.fd = -1, .workers = workers};
    if (!make(orders, (size_t)workers * CT_HANDOVER_SLOT)) {
        ct_log(log, CT_LOG_WARNING, "no worker will go on in another generation: %s",
               strerror(errno));
        ct_order_writer_fini(orders);
        return;
    }
    for (int i = 0; i < workers; i++) {
        slot_of(orders, i)->version = CT_HANDOVER_VERSION;
    }
    (void)snprintf(orders->path, sizeof(orders->path), "/proc/%ld/fd/%d", (long)getpid(),
                   orders->fd);
}

void ct_order_writer_fini(struct ct_order_writer *orders)
{
    if (orders->map != NULL) {
        (void)munmap(orders->map, (size_t)orders->workers * CT_HANDOVER_SLOT);
    }
    if (orders->fd >= 0) {
        (void)close(orders->fd);
    }
    *orders = (struct ct_order_writer)CT_ORDER_WRITER_INIT;
}

void ct_order_writer_order(struct ct_order_writer *orders, int local_rank, int generation,
                           enum ct_order order)
{
    if (orders->map == NULL) {
        return;
    }
    struct ct_handover_slot *slot = slot_of(orders, local_rank);
    __atomic_store_n(&slot->order, ct_generation_word(generation, order), __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &slot->order, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

int ct_order_writer_go(struct ct_order_writer *orders, int local_rank, int generation,
                       const struct ct_strlist *vars)
{
    if (orders->map == NULL) {
        return CT_EUNSUPPORTED;
    }
    struct ct_handover_slot *slot = slot_of(orders, local_rank);
    size_t used = 0;
    for (size_t i = 0; i < vars->count; i++) {
        size_t len = strlen(vars->list[i]) + 1;
        if (len > sizeof(slot->text) - used) {
            return CT_ELIMIT;
        }
        memcpy(slot->text + used, vars->list[i], len);
        used += len;
    }
    slot->bytes = (uint32_t)used;
    ct_order_writer_order(orders, local_rank, generation, CT_ORDER_GO);
    return 0;
}
