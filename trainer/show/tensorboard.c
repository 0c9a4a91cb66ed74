/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes each event without a protobuf library and appends it as one record. After a failed write
 * the file is closed and the error returned; training continues without it.
 */
#include "trainer/show/tensorboard.h"

#include "common/alloc.h"
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Reflected polynomial of CRC-32C, and the constant by which TFRecord masks a checksum
 * (tensorflow's core/lib/hash/crc32c.h), so that a checksum over checksums is not weak. */
#define POLYNOMIAL 0x82f63b78u
#define MASK_DELTA 0xa282ead8u

/* Wire types, and field numbers of event.proto and summary.proto. */
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2 };

#define VERSION "brain.Event:2"
#define TAG_MAX 64

/* Computed bit by bit: a few hundred bytes per epoch need no table. */
uint32_t ct_tensorboard_crc32c(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? POLYNOMIAL : 0);
        }
    }
    return ~crc;
}

static uint32_t masked_crc(const void *bytes, size_t len)
{
    uint32_t crc = ct_tensorboard_crc32c(bytes, len);
    return (crc >> 15 | crc << 17) + MASK_DELTA;
}

static int put_little_endian(struct ct_buf *out, uint64_t value, size_t bytes)
{
    unsigned char raw[8];
    for (size_t i = 0; i < bytes; i++) {
        raw[i] = (unsigned char)(value >> (8 * i));
    }
    return ct_buf_append(out, raw, bytes);
}

static int put_varint(struct ct_buf *out, uint64_t value)
{
    unsigned char raw[10];
    size_t len = 0;
    for (; value > 0x7f; value >>= 7) {
        raw[len++] = (unsigned char)(value | 0x80);
    }
    raw[len++] = (unsigned char)value;
    return ct_buf_append(out, raw, len);
}

static int put_key(struct ct_buf *out, unsigned number, unsigned wire)
{
    return put_varint(out, number << 3 | wire);
}

static int put_bytes(struct ct_buf *out, unsigned number, const void *bytes, size_t len)
{
    int rc = put_key(out, number, WIRE_BYTES);
    if (rc == 0) {
        rc = put_varint(out, len);
    }
    return rc == 0 ? ct_buf_append(out, bytes, len) : rc;
}

static int put_value(struct ct_buf *out, const struct ct_scalar *scalar, struct ct_buf *scratch)
{
    float value = (float)scalar->value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ct_buf_reset(scratch);
    int rc = put_bytes(scratch, VALUE_TAG, scalar->tag, strnlen(scalar->tag, TAG_MAX));
    if (rc == 0) {
        rc = put_key(scratch, VALUE_SIMPLE, WIRE_32);
    }
    if (rc == 0) {
        rc = put_little_endian(scratch, bits, sizeof bits);
    }
    return rc == 0 ? put_bytes(out, SUMMARY_VALUE, ct_buf_bytes(scratch), scratch->len) : rc;
}

static int put_event(struct ct_buf *out, double wall_s, int64_t step,
                     const struct ct_scalar *scalars, size_t count)
{
    struct ct_buf summary = CT_BUF_INIT, scratch = CT_BUF_INIT;
    uint64_t bits;
    memcpy(&bits, &wall_s, sizeof bits);
    int rc = put_key(out, EVENT_WALL_TIME, WIRE_64);
    if (rc == 0) {
        rc = put_little_endian(out, bits, sizeof bits);
    }
    if (rc == 0 && count == 0) {
        rc = put_bytes(out, EVENT_VERSION, VERSION, strlen(VERSION));
    } else if (rc == 0) {
        rc = put_key(out, EVENT_STEP, WIRE_VARINT);
        if (rc == 0) {
            rc = put_varint(out, (uint64_t)step);
        }
        for (size_t i = 0; rc == 0 && i < count; i++) {
            rc = put_value(&summary, &scalars[i], &scratch);
        }
        if (rc == 0) {
            rc = put_bytes(out, EVENT_SUMMARY, ct_buf_bytes(&summary), summary.len);
        }
    }
    ct_buf_fini(&summary);
    ct_buf_fini(&scratch);
    return rc;
}

int ct_tensorboard_encode(double wall_s, int64_t step, const struct ct_scalar *scalars,
                          size_t count, struct ct_buf *out)
{
    struct ct_buf event = CT_BUF_INIT;
    int rc = put_event(&event, wall_s, step, scalars, count);
    size_t start = out->len;
    if (rc == 0) {
        rc = put_little_endian(out, event.len, 8);
    }
    if (rc == 0) {
        rc = put_little_endian(out, masked_crc(ct_buf_bytes(out) + start, 8), 4);
    }
    if (rc == 0) {
        rc = ct_buf_append(out, ct_buf_bytes(&event), event.len);
    }
    if (rc == 0) {
        rc = put_little_endian(out, masked_crc(ct_buf_bytes(&event), event.len), 4);
    }
    ct_buf_fini(&event);
    return rc;
}

/* ---- the file -------------------------------------------------------------------------------- */

static double time_of_day(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* On failure closes the file; `failing` is the message. */
static int write_record(struct ct_tensorboard *board, int64_t step, const struct ct_scalar *scalars,
                        size_t count, const char *failing, struct ct_err *err)
{
    ct_buf_reset(&board->scratch);
    int saved = ENOMEM;
    int rc = ct_tensorboard_encode(time_of_day(), step, scalars, count, &board->scratch);
    if (rc == 0) {
        rc = ct_fd_write_all(board->fd, ct_buf_bytes(&board->scratch), board->scratch.len);
        saved = errno;
    }
    if (rc != 0) {
        ct_tensorboard_close(board);
        return ct_err_sys(err, rc, saved, "%s", failing);
    }
    return 0;
}

int ct_tensorboard_open(struct ct_tensorboard *board, const char *dir, struct ct_err *err)
{
    char host[256] = "host";
    (void)gethostname(host, sizeof host - 1);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot make the folder %s", dir);
    }
    /* TensorBoard reads all files with "tfevents" in their name, sorted by name. */
    char *path = ct_asprintf("%s/events.out.tfevents.%lld.%s.%ld", dir, (long long)time_of_day(),
                             host, (long)getpid());
    if (path == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    board->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int saved = errno, rc = 0;
    if (board->fd < 0) {
        rc = ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot write %s", path);
    }
    ct_free(path);
    return rc == 0 ? write_record(board, 0, NULL, 0, "cannot write for TensorBoard", err) : rc;
}

void ct_tensorboard_close(struct ct_tensorboard *board)
{
    if (board->fd >= 0) {
        (void)close(board->fd);
    }
    board->fd = -1;
    ct_buf_fini(&board->scratch);
}

int ct_tensorboard_add(struct ct_tensorboard *board, int64_t step, const struct ct_scalar *scalars,
                       size_t count, struct ct_err *err)
{
    if (board->fd < 0) {
        return 0;
    }
    return write_record(board, step, scalars, count,
                        "cannot write for TensorBoard, going on without", err);
}
