/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that the ranks of a machine share: making it, attaching to it, refusing what is not
 * it, and the buffers in it.
 */
#include "tests/lib/ct_test.h"

#include "worker/job/proc.h"
#include "worker/shm/arena.h"
#include "worker/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* What the kernel has for a page of memory; 0 = what it really has. */
static int page_size;

int __real_getpagesize(void);
int __wrap_getpagesize(void);
int __wrap_getpagesize(void)
{
    return page_size != 0 ? page_size : __real_getpagesize();
}

/* How much time has passed in which this process did not run. */
static int64_t ahead_s;

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = __real_clock_gettime(id, out);
    out->tv_sec += ahead_s;
    return rc;
}

#define TOKEN "00112233445566778899aabbccddeeff"

static void the_invitation_leads_to_the_same_page(void **state)
{
    (void)state;
    struct shm made = SHM_INIT, got = SHM_INIT;
    char invitation[SHM_INVITATION_MAX];
    assert_int_equal(shm_create(&made, 3, invitation, NULL), 0);
    assert_int_equal(shm_attach(&got, 3, invitation, NULL), 0);
    made.page->slots[2].pid = 4711;
    assert_int_equal(got.page->slots[2].pid, 4711);
    assert_int_equal(fcntl(got.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(made.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_not_equal(ftruncate(got.fd, 0), 0);
    shm_fini(&got);
    shm_fini(&got);
    shm_fini(&made);
}

static void refuses_malformed_invitations(void **state)
{
    (void)state;
    const char *const bad[] = {
        "",
        ":",
        "::",
        "1:2",
        "1:2:",
        "x:2:" TOKEN,
        "-1:2:" TOKEN,
        "1:-2:" TOKEN,
        "0:2:" TOKEN,
        "1:2:" TOKEN "0",
        "1:2:ff",
        "99999999999:2:" TOKEN,
        "1:2:" TOKEN TOKEN TOKEN,
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct shm shm = SHM_INIT;
        struct ct_err err = {0};
        assert_int_equal(shm_attach(&shm, 2, bad[i], &err), CT_EPROTO);
        assert_non_null(strstr(err.text, "malformed"));
        assert_int_equal(shm.fd, -1);
    }
}

static void check_refused(int fd, int code, const char *text)
{
    char invitation[SHM_INVITATION_MAX];
    (void)snprintf(invitation, sizeof(invitation), "%ld:%d:%s", (long)getpid(), fd, TOKEN);
    struct shm shm = SHM_INIT;
    struct ct_err err = {0};
    assert_int_equal(shm_attach(&shm, 2, invitation, &err), code);
    assert_non_null(strstr(err.text, text));
    assert_int_equal(shm.fd, -1);
    assert_null(shm.page);
}

static void refuses_what_is_not_rank_0s_file(void **state)
{
    (void)state;
    struct ct_err err = {0};
    /* No such descriptor, also of process 1, which a rank can be in a container; a folder, a plain
     * file, a memfd that could shrink, one too small. */
    check_refused(1000, CT_ENOENT, "cannot open");
    struct shm shm = SHM_INIT;
    assert_true(shm_attach(&shm, 2, "1:1000000:" TOKEN, &err) < 0);
    assert_non_null(strstr(err.text, "cannot open rank 0's shared memory /proc/1/fd/1000000"));
    int fd = open("/", O_RDONLY | O_CLOEXEC);
    char invitation[SHM_INVITATION_MAX];
    (void)snprintf(invitation, sizeof(invitation), "%ld:%d:%s", (long)getpid(), fd, TOKEN);
    assert_true(shm_attach(&shm, 2, invitation, NULL) < 0);
    (void)close(fd);
    FILE *file = tmpfile();
    assert_non_null(file);
    check_refused(fileno(file), CT_EPROTO, "of this kind");
    (void)fclose(file);
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    check_refused(fd, CT_EPROTO, "of this kind");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    check_refused(fd, CT_EPROTO, "of this job"); /* now only the token is wrong */
    (void)close(fd);
    fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    check_refused(fd, CT_EPROTO, "of this kind");
    (void)close(fd);
    (void)snprintf(invitation, sizeof(invitation), "%d:3:%s", 1 << 29, TOKEN);
    assert_int_equal(shm_attach(&shm, 2, invitation, NULL), CT_ENOENT);
}

static void refuses_another_version_and_size(void **state)
{
    (void)state;
    struct shm made = SHM_INIT, got = SHM_INIT;
    char invitation[SHM_INVITATION_MAX];
    struct ct_err err = {0};
    assert_int_equal(shm_create(&made, 2, invitation, NULL), 0);
    assert_int_equal(shm_attach(&got, 3, invitation, &err), CT_EPROTO);
    assert_non_null(strstr(err.text, "expects 2 ranks, this rank 3"));
    made.page->version++;
    assert_int_equal(shm_attach(&got, 2, invitation, &err), CT_EPROTO);
    assert_non_null(strstr(err.text, "version"));
    shm_fini(&made);
}

static void an_arena_names_buffers_by_offset(void **state)
{
    (void)state;
    struct shm shm = SHM_INIT;
    char invitation[SHM_INVITATION_MAX];
    assert_int_equal(shm_create(&shm, 3, invitation, NULL), 0);
    struct arena arena;
    arena_init(&arena, &shm, 1, 3);
    void *own, *shared;
    assert_int_equal(arena_add(&arena, CTW_MEMORY_OWN, 5000, &own, NULL), 0);
    assert_int_equal(arena_add(&arena, CTW_MEMORY_SHARED, 100, &shared, NULL), 0);
    size_t base = shm.page_bytes;
    int64_t at = 0;
    unsigned char *p = own;
    assert_int_equal(arena_locate(&arena, CTW_MEMORY_OWN, p + 10, 100, &at, NULL), 0);
    assert_int_equal(at, base + 8192 + 10);
    assert_ptr_equal(arena_resolve(&arena, CTW_MEMORY_OWN, 1, at, 100), p + 10);
    assert_int_equal(arena_locate(&arena, CTW_MEMORY_OWN, shared, 1, &at, NULL), 0);
    assert_int_equal(at, ARENA_PRIVATE);
    assert_int_equal(arena_locate(&arena, CTW_MEMORY_SHARED, shared, 100, &at, NULL), 0);
    assert_int_equal(at, base + 3 * 8192);
    assert_int_equal(arena_locate(&arena, CTW_MEMORY_OWN, &at, 8, &at, NULL), 0);
    assert_int_equal(at, ARENA_PRIVATE);
    /* Past the end, and memory of another rank. */
    assert_int_equal(arena_locate(&arena, CTW_MEMORY_OWN, p + 10, 8183, &at, NULL), CT_EINVAL);
    assert_null(arena_resolve(&arena, CTW_MEMORY_OWN, 0, (int64_t)base + 8192, 1));
    assert_null(arena_resolve(&arena, CTW_MEMORY_OWN, 1, (int64_t)base + 8192, 8193));
    assert_null(arena_resolve(&arena, CTW_MEMORY_OWN, 1, -5, 1));
    assert_non_null(arena_resolve(&arena, CTW_MEMORY_OWN, 2, (int64_t)base + 2 * 8192, 8192));
    assert_int_equal(arena_add(&arena, CTW_MEMORY_OWN, SIZE_MAX - 5, &own, NULL), CT_ELIMIT);
    assert_int_equal(arena_add(&arena, CTW_MEMORY_OWN, SIZE_MAX / 2, &own, NULL), CT_ELIMIT);
    const struct arena_region regions[] = {arena.regions[0], arena.regions[1]};
    arena_fini(&arena);
    for (size_t i = 0; i < 2; i++) { /* nothing is mapped there any more */
        assert_int_equal(msync(regions[i].base, regions[i].bytes, MS_ASYNC), -1);
        assert_int_equal(errno, ENOMEM);
    }
    shm_fini(&shm);
}

/* No communicator opened on kernels with larger pages, because mmap(2) refuses other offsets. */
static void all_offsets_are_multiples_of_a_page(void **state)
{
    (void)state;
    struct shm shm = SHM_INIT;
    struct arena arena;
    char invitation[SHM_INVITATION_MAX];
    void *own, *shared;
    page_size = 65536;
    assert_int_equal(shm_create(&shm, 2, invitation, NULL), 0);
    arena_init(&arena, &shm, 1, 2);
    assert_int_equal(arena_add(&arena, CTW_MEMORY_OWN, 1, &own, NULL), 0);
    assert_int_equal(arena_add(&arena, CTW_MEMORY_SHARED, 65537, &shared, NULL), 0);
    page_size = 0;
    assert_int_equal(shm.page_bytes, 65536);
    assert_int_equal(arena.regions[0].offset, 65536);
    assert_int_equal(arena.regions[0].block, 65536);
    assert_int_equal(arena.regions[1].offset, 3 * 65536);
    assert_int_equal(arena.end, 5 * 65536);
    arena_fini(&arena);
    shm_fini(&shm);
}

/* This test's parent joins as another rank. */
static void join_as(struct sync_page *page, int rank)
{
    struct sync_slot *peer = &page->slots[rank];
    peer->pid = getppid();
    assert_int_equal(proc_start_time(peer->pid, &peer->start_time), 0);
    atomic_store(&peer->presence, SYNC_PRESENT);
    (void)atomic_fetch_add(&page->present, 1);
}

static int looks;

/* Rank 1 comes while this process does not run for an hour, and rank 2 comes later. */
static int come(void *data, struct ct_err *err)
{
    (void)err;
    looks++;
    if (looks == 1) {
        join_as(data, 1);
        ahead_s = 3600;
    } else if (looks == 3) {
        join_as(data, 2);
    }
    return 0;
}

/* When a job went on after it had been suspended, who waited for the others to join gave up if one
 * came at once and another a bit later. */
static void a_suspension_is_no_wait_for_those_who_join(void **state)
{
    (void)state;
    struct shm made = SHM_INIT;
    struct sync sync;
    char invitation[SHM_INVITATION_MAX];
    struct ct_err err = {0};
    assert_int_equal(shm_create(&made, 3, invitation, NULL), 0);
    assert_int_equal(sync_init(&sync, made.page, 0, 3, 1, 60 * 1000, NULL), 0);
    sync.look = come;
    sync.look_data = made.page;
    int rc = sync_join(&sync, &err);
    ahead_s = 0;
    assert_string_equal(err.text, "");
    assert_int_equal(rc, 0);
    assert_int_equal(looks, 3);
    sync_fini(&sync);
    shm_fini(&made);
}

/* The last descriptor is enough to watch the peer's end, but not to see when the peer began. */
static void a_lack_of_descriptors_is_not_the_end_of_a_peer(void **state)
{
    (void)state;
    struct shm made = SHM_INIT;
    struct sync sync;
    char invitation[SHM_INVITATION_MAX];
    struct ct_err err = {0};
    assert_int_equal(shm_create(&made, 2, invitation, NULL), 0);
    assert_int_equal(sync_init(&sync, made.page, 0, 2, 1, 1000, NULL), 0);
    join_as(made.page, 1);
    int last = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(close(last), 0);
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)last + 1, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int rc = sync_join(&sync, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(rc, CT_ELIMIT);
    assert_non_null(strstr(err.text, "cannot watch rank 1 (pid "));
    assert_int_equal(atomic_load(&made.page->verdict), 0);
    sync_fini(&sync);
    shm_fini(&made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_invitation_leads_to_the_same_page),
        cmocka_unit_test(refuses_malformed_invitations),
        cmocka_unit_test(refuses_what_is_not_rank_0s_file),
        cmocka_unit_test(refuses_another_version_and_size),
        cmocka_unit_test(an_arena_names_buffers_by_offset),
        cmocka_unit_test(all_offsets_are_multiples_of_a_page),
        cmocka_unit_test(a_suspension_is_no_wait_for_those_who_join),
        cmocka_unit_test(a_lack_of_descriptors_is_not_the_end_of_a_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
