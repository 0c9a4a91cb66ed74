/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared file. Happy path: shm_create() on one rank, shm_attach() on the others, shm_fini() on
 * all. Failure modes: a memfd cannot be opened if its rank has ended or is in another container;
 * one with another token, size or version is CT_EPROTO. Space is reserved before it is touched, so
 * that a lack of memory is an error and not a SIGBUS.
 */
#include "worker/shm/shm.h"

#include "common/file.h"
#include "common/num.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Raised with every change of struct sync_page, because all ranks must use the same layout. */
#define PAGE_VERSION 3

/* Random bytes of the token, which is written as hexadecimal digits. */
#define TOKEN_BYTES 16
_Static_assert(sizeof(((struct sync_page *)0)->token) == (size_t)TOKEN_BYTES * 2, "token size");

/* Mappings begin at multiples of a page of memory, which has 16 or 64 KiB on some kernels. All
 * ranks of a machine have the same kernel, and so the same offsets. */
static size_t unit(void)
{
    return (size_t)getpagesize();
}

bool shm_round_up(size_t bytes, size_t *out)
{
    size_t padded;
    if (!ct_add_size(bytes, unit() - 1, &padded)) {
        return false;
    }
    *out = padded - padded % unit();
    return true;
}

static size_t page_bytes_for(int size)
{
    size_t bytes = sizeof(struct sync_page) + (size_t)size * sizeof(struct sync_slot);
    return (bytes + unit() - 1) / unit() * unit();
}

static int fail_errno(struct ct_err *err, const char *what)
{
    int saved = errno;
    return ct_err_sys(err, ct_code_from_errno(saved), saved, "%s", what);
}

/* ---- mapping --------------------------------------------------------------------------------- */

int shm_reserve(struct shm *shm, size_t offset, size_t bytes, struct ct_err *err)
{
    if (offset > (size_t)INT64_MAX || bytes > (size_t)INT64_MAX - offset) {
        return ct_err_set(err, CT_ELIMIT, "%zu bytes of shared memory are too many", bytes);
    }
    int rc;
    do {
        rc = fallocate(shm->fd, 0, (off_t)offset, (off_t)bytes);
    } while (rc != 0 && errno == EINTR);
    if (rc != 0) {
        int saved = errno;
        /* tmpfs, on which memfds are, reports a lack of memory as a lack of space. */
        return ct_err_sys(err, saved == ENOSPC ? CT_ENOMEM : ct_code_from_errno(saved), saved,
                          "cannot get %zu bytes of shared memory", bytes);
    }
    return 0;
}

int shm_map(struct shm *shm, size_t offset, size_t bytes, void **out, struct ct_err *err)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm->fd, (off_t)offset);
    if (base == MAP_FAILED) {
        return fail_errno(err, "cannot map shared memory");
    }
    *out = base;
    return 0;
}

static int map_page(struct shm *shm, int size, struct ct_err *err)
{
    void *base = NULL;
    shm->page_bytes = page_bytes_for(size);
    int rc = shm_map(shm, 0, shm->page_bytes, &base, err);
    shm->page = base;
    return rc;
}

void shm_fini(struct shm *shm)
{
    if (shm->page != NULL) {
        (void)munmap(shm->page, shm->page_bytes);
    }
    if (shm->fd >= 0) {
        (void)close(shm->fd);
    }
    *shm = (struct shm)SHM_INIT;
}

/* ---- creating -------------------------------------------------------------------------------- */

static int make_token(char token[TOKEN_BYTES * 2 + 1], struct ct_err *err)
{
    unsigned char random[TOKEN_BYTES];
    /* The kernel returns up to 256 bytes in one call. */
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return fail_errno(err, "cannot get random bytes");
    }
    for (size_t i = 0; i < sizeof(random); i++) {
        (void)snprintf(token + 2 * i, 3, "%02x", random[i]);
    }
    return 0;
}

int shm_create(struct shm *shm, int size, char invitation[SHM_INVITATION_MAX], struct ct_err *err)
{
    struct shm made = SHM_INIT;
    char token[TOKEN_BYTES * 2 + 1];
    int rc = make_token(token, err);
    if (rc != 0) {
        return rc;
    }
    made.fd = ct_file_in_memory("ctworker", true);
    if (made.fd < 0) {
        return fail_errno(err, "cannot make shared memory");
    }
    if (fcntl(made.fd, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        rc = fail_errno(err, "cannot seal shared memory");
    }
    if (rc == 0) {
        rc = shm_reserve(&made, 0, page_bytes_for(size), err);
    }
    if (rc == 0) {
        rc = map_page(&made, size, err);
    }
    if (rc != 0) {
        shm_fini(&made);
        return rc;
    }
    made.page->version = PAGE_VERSION;
    made.page->size = (uint32_t)size;
    memcpy(made.page->token, token, sizeof(made.page->token));
    (void)snprintf(invitation, SHM_INVITATION_MAX, "%ld:%d:%s", (long)getpid(), made.fd, token);
    *shm = made;
    return 0;
}

/* ---- attaching ------------------------------------------------------------------------------- */

struct invitation {
    int pid, fd;
    char token[TOKEN_BYTES * 2];
};

static int parse_invitation(const char *text, struct invitation *out)
{
    char copy[SHM_INVITATION_MAX];
    size_t len = strlen(text);
    if (len >= sizeof(copy)) {
        return CT_ELIMIT;
    }
    memcpy(copy, text, len + 1);
    char *fd = strchr(copy, ':');
    char *token = fd != NULL ? strchr(fd + 1, ':') : NULL;
    if (token == NULL) {
        return CT_EFORMAT;
    }
    *fd++ = '\0';
    *token++ = '\0';
    if (ct_parse_int(copy, 1, INT_MAX, &out->pid) != 0 ||
        ct_parse_int(fd, 0, INT_MAX, &out->fd) != 0 || strlen(token) != sizeof(out->token)) {
        return CT_EFORMAT;
    }
    memcpy(out->token, token, sizeof(out->token));
    return 0;
}

/* Checks the file before anything is read through a mapping: it must be large enough and sealed
 * against shrinking. */
static int check_file(const struct shm *shm, int size, struct ct_err *err)
{
    struct stat st;
    int seals = fcntl(shm->fd, F_GET_SEALS);
    if (fstat(shm->fd, &st) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
        (size_t)st.st_size < page_bytes_for(size)) {
        return ct_err_set(err, CT_EPROTO, "what rank 0 offers is not shared memory of this kind");
    }
    return 0;
}

static int check_page(const struct shm *shm, int size, const struct invitation *from,
                      struct ct_err *err)
{
    const struct sync_page *page = shm->page;
    if (memcmp(page->token, from->token, sizeof(page->token)) != 0) {
        return ct_err_set(err, CT_EPROTO,
                          "what rank 0 offers is not the shared memory of this job");
    }
    if (page->version != PAGE_VERSION) {
        return ct_err_set(err, CT_EPROTO,
                          "rank 0 runs another version of libctworker (shared page %u, here %u)",
                          page->version, (unsigned)PAGE_VERSION);
    }
    if (page->size != (uint32_t)size) {
        return ct_err_set(err, CT_EPROTO, "rank 0 expects %u ranks, this rank %d", page->size,
                          size);
    }
    return 0;
}

int shm_attach(struct shm *shm, int size, const char *invitation, struct ct_err *err)
{
    struct invitation from;
    if (parse_invitation(invitation, &from) != 0) {
        return ct_err_set(err, CT_EPROTO, "malformed invitation to shared memory");
    }
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", from.pid, from.fd);
    struct shm got = SHM_INIT;
    /* If the path is not a memfd after all, O_NONBLOCK keeps open() from hanging. */
    got.fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (got.fd < 0) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved,
                          "cannot open rank 0's shared memory %s (it may have ended, or this rank "
                          "is in another container)",
                          path);
    }
    int rc = check_file(&got, size, err);
    if (rc == 0) {
        rc = map_page(&got, size, err);
    }
    if (rc == 0) {
        rc = check_page(&got, size, &from, err);
    }
    if (rc != 0) {
        shm_fini(&got);
        return rc;
    }
    *shm = got;
    return 0;
}
