/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of snapshots. Opening only reads, because peers may still be reading. When all have,
 * rank 0 prepares the file, and then each rank maps it. A file of another shape, or one that was
 * never complete, counts as empty. ct_step_snapshot_fini() unmaps; the launcher owns the file.
 */
#include "trainer/recovery/step_snapshot.h"

#include "common/num.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096
#define CACHE_LINE 64
#define SLOTS 2

/* "ctsnap" and the version of the layout. */
#define MAGIC UINT64_C(0x63747361736e7001)

struct header {
    _Atomic uint64_t magic; /* written last, so that an incomplete header is invalid */
    uint64_t fingerprint, floats, arrays;
    _Atomic int64_t told;
};

/* Each rank has a cache line of its own, so that ranks do not slow each other down. */
struct mark {
    _Alignas(CACHE_LINE) _Atomic int64_t step; /* 0 while the rank writes */
    int32_t world, generation;
    struct ct_snapshot_point point; /* its `step` is used only while reading */
};

struct front {
    _Alignas(PAGE) struct header header;
    _Alignas(PAGE) struct mark marks[SLOTS][CT_SNAPSHOT_RANKS_MAX];
};
_Static_assert(sizeof(struct front) % PAGE == 0, "slots start at a page");
_Static_assert(sizeof(struct mark) == CACHE_LINE, "one line per mark");

/* bench/torture.py reads the front of a running job's file, and so does bench/restart.py with the
 * same numbers. */
_Static_assert(offsetof(struct header, told) == 32, "TOLD of bench/torture.py");
_Static_assert(offsetof(struct front, marks) == 4096, "FRONT of bench/torture.py");
_Static_assert(CT_SNAPSHOT_RANKS_MAX == 1024 && SLOTS == 2, "RANKS of bench/torture.py, two slots");
_Static_assert(sizeof(struct mark) == 64, "MARK of bench/torture.py");
_Static_assert(offsetof(struct mark, step) == 0 && offsetof(struct mark, world) == 8 &&
                   offsetof(struct mark, generation) == 12,
               "steps_in_memory() of bench/torture.py unpacks these three");

static struct front *front_of(const struct ct_step_snapshot *s)
{
    return (struct front *)(void *)s->map;
}

static float *array_of(const struct ct_step_snapshot *s, size_t slot, size_t array)
{
    float *slots = (float *)(void *)(s->map + sizeof(struct front));
    return slots + (slot * s->shape.arrays + array) * s->shape.floats;
}

/* Gives the size of the whole file, a multiple of PAGE. Returns false if it is too large. */
static bool bytes_for(const struct ct_snapshot_shape *shape, size_t *out)
{
    size_t bytes;
    if (!ct_mul_size(shape->floats, sizeof(float) * SLOTS * shape->arrays, &bytes) ||
        !ct_add_size(bytes, sizeof(struct front) + PAGE - 1, &bytes) || bytes > INT64_MAX) {
        return false;
    }
    *out = bytes - bytes % PAGE;
    return true;
}

static int fail(struct ct_err *err, const char *what)
{
    int saved = errno;
    return ct_err_sys(err, ct_code_from_errno(saved), saved, "%s", what);
}

static int map_file(struct ct_step_snapshot *s, int more, struct ct_err *err)
{
    void *map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | more, s->fd, 0);
    if (map == MAP_FAILED) {
        return fail(err, "cannot map the memory for snapshots");
    }
    s->map = map;
    return 0;
}

static void unmap(struct ct_step_snapshot *s)
{
    if (s->map != NULL) {
        (void)munmap(s->map, s->bytes);
        s->map = NULL;
    }
}

/* ---- looking --------------------------------------------------------------------------------- */

static bool is_ours(const struct ct_step_snapshot *s)
{
    const struct header *h = &front_of(s)->header;
    return atomic_load_explicit(&h->magic, memory_order_acquire) == MAGIC &&
           h->fingerprint == s->shape.fingerprint && h->floats == s->shape.floats &&
           h->arrays == s->shape.arrays;
}

/* Reads the point of a slot, if the slot is complete. */
static bool read_slot(const struct ct_step_snapshot *s, size_t slot, struct ct_snapshot_point *out)
{
    const struct mark *marks = front_of(s)->marks[slot];
    int64_t step = atomic_load_explicit(&marks[0].step, memory_order_acquire);
    int world = marks[0].world;
    if (step <= 0 || world < 1 || world > CT_SNAPSHOT_RANKS_MAX) {
        return false;
    }
    *out = marks[0].point;
    for (int r = 0; r < world; r++) {
        if (atomic_load_explicit(&marks[r].step, memory_order_acquire) != step ||
            marks[r].world != world || marks[r].generation != marks[0].generation) {
            return false;
        }
        if (r > 0) {
            out->loss += marks[r].point.loss;
            out->hits += marks[r].point.hits;
        }
    }
    return true;
}

static void look(struct ct_step_snapshot *s)
{
    for (size_t slot = 0; slot < SLOTS; slot++) {
        struct ct_snapshot_point point;
        if (read_slot(s, slot, &point) && point.step > s->found.step) {
            s->found = point;
        }
    }
    s->told = atomic_load_explicit(&front_of(s)->header.told, memory_order_relaxed);
}

int ct_step_snapshot_open(struct ct_step_snapshot *snapshot, const char *path,
                          const struct ct_snapshot_shape *shape, int rank, int world,
                          int generation, struct ct_err *err)
{
    struct ct_step_snapshot s = CT_STEP_SNAPSHOT_INIT;
    *snapshot = s;
    s.shape = *shape;
    s.rank = rank;
    s.world = world;
    s.generation = generation;
    if (world > CT_SNAPSHOT_RANKS_MAX || !bytes_for(shape, &s.bytes)) {
        return ct_err_set(err, CT_ELIMIT, "too large a model or too many workers for snapshots");
    }
    s.fd = open(path, O_RDWR | O_CLOEXEC);
    if (s.fd < 0) {
        return fail(err, "cannot open the memory for snapshots");
    }
    struct stat st;
    int rc = fstat(s.fd, &st) == 0 ? 0 : fail(err, "cannot look at the memory for snapshots");
    if (rc == 0 && (uint64_t)st.st_size >= s.bytes) {
        rc = map_file(&s, 0, err);
        if (rc == 0 && is_ours(&s)) {
            look(&s);
        } else {
            unmap(&s);
        }
    }
    if (rc != 0) {
        ct_step_snapshot_fini(&s);
        return rc;
    }
    *snapshot = s;
    return 0;
}

void ct_step_snapshot_fini(struct ct_step_snapshot *snapshot)
{
    unmap(snapshot);
    if (snapshot->fd >= 0) {
        (void)close(snapshot->fd);
    }
    *snapshot = (struct ct_step_snapshot)CT_STEP_SNAPSHOT_INIT;
}

void ct_step_snapshot_load(const struct ct_step_snapshot *s, float *const *arrays)
{
    for (size_t i = 0; i < s->shape.arrays; i++) {
        memcpy(arrays[i], array_of(s, (size_t)s->found.step % SLOTS, i),
               s->shape.floats * sizeof(float));
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

int ct_step_snapshot_prepare(struct ct_step_snapshot *s, struct ct_err *err)
{
    if (s->map != NULL) {
        return 0; /* the file already has this shape */
    }
    if (s->fd < 0) {
        return 0;
    }
    /* Empties the file and reserves all of its memory, so that touching it cannot fail later. */
    int rc = ftruncate(s->fd, 0);
    while (rc == 0 && (rc = fallocate(s->fd, 0, 0, (off_t)s->bytes)) != 0 && errno == EINTR) {
        rc = 0;
    }
    if (rc != 0) {
        (void)fail(err, "no memory for snapshots");
        int emptied = ftruncate(s->fd, 0);
        (void)emptied; /* if this fails, too, the memory stays in use until the next attempt */
        return CT_ENOMEM;
    }
    rc = map_file(s, 0, err);
    if (rc == 0) {
        struct header *h = &front_of(s)->header;
        h->fingerprint = s->shape.fingerprint;
        h->floats = s->shape.floats;
        h->arrays = s->shape.arrays;
        atomic_store_explicit(&h->magic, MAGIC, memory_order_release);
    }
    return rc;
}

int ct_step_snapshot_map(struct ct_step_snapshot *s, struct ct_err *err)
{
    if (s->fd < 0 || s->map != NULL) {
        return 0;
    }
    struct stat st;
    if (fstat(s->fd, &st) != 0) {
        return fail(err, "cannot look at the memory for snapshots");
    }
    if ((uint64_t)st.st_size < s->bytes) {
        ct_step_snapshot_fini(s); /* rank 0 has not prepared it */
        return 0;
    }
    int rc = map_file(s, MAP_POPULATE, err);
    if (rc == 0 && !is_ours(s)) {
        ct_step_snapshot_fini(s);
    }
    return rc;
}

void ct_step_snapshot_write(struct ct_step_snapshot *s, const struct ct_snapshot_point *point,
                            float *const *arrays, size_t begin, size_t end)
{
    if (s->map == NULL) {
        return;
    }
    size_t slot = (size_t)point->step % SLOTS;
    struct mark *mark = &front_of(s)->marks[slot][s->rank];
    atomic_store_explicit(&mark->step, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    for (size_t i = 0; begin < end && i < s->shape.arrays; i++) {
        memcpy(array_of(s, slot, i) + begin, arrays[i] + begin, (end - begin) * sizeof(float));
    }
    mark->world = s->world;
    mark->generation = s->generation;
    mark->point = *point;
    atomic_store_explicit(&mark->step, point->step, memory_order_release);
}

void ct_step_snapshot_tell(struct ct_step_snapshot *s, int64_t epochs)
{
    if (s->map != NULL) {
        atomic_store_explicit(&front_of(s)->header.told, epochs, memory_order_relaxed);
    }
}
