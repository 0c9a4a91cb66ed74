/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the header with cJSON and checks each number against the file's length before using it.
 * Tensors must not overlap, leave gaps or share a name. The tensors' bytes are read on demand.
 * ct_safetensors_fini() closes the file and frees the header.
 */
#include "trainer/formats/safetensors.h"

#include "common/alloc.h"
#include "common/json_count.h"
#include "common/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define METADATA_KEY "__metadata__"

/* Shortens a name for a message, because it may be as long as the header and contain anything. */
#define SHOWN(name) ct_text_excerpt(name, (char[CT_TEXT_EXCERPT_MAX]){0})

/* cJSON gives integers as doubles, which are exact up to 2^53. */
#define INTEGER_MAX 0x1p53

/* Values of the largest header that has a meaning, each with 16 of its own where a tensor has at
 * most 14: the tensor, its three members, eight dimensions and two offsets. */
#define VALUES_MAX ((size_t)(CT_TENSORS_MAX + CT_METADATA_MAX) * 16)

static const struct dtype {
    const char *name;
    unsigned bytes;
} dtypes[] = {
    {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
    {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
    {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

static const struct dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            return &dtypes[i];
        }
    }
    return NULL;
}

static bool read_integer(const cJSON *item, uint64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > INTEGER_MAX) {
        return false;
    }
    uint64_t value = (uint64_t)item->valuedouble;
    if ((double)value != item->valuedouble) {
        return false;
    }
    *out = value;
    return true;
}

static int read_shape(const cJSON *shape, struct ct_tensor *tensor, uint64_t *items,
                      struct ct_err *err)
{
    if (!cJSON_IsArray(shape)) {
        return ct_err_set(err, CT_EFORMAT, "tensor %s has no shape", SHOWN(tensor->name));
    }
    *items = 1;
    const cJSON *dim;
    cJSON_ArrayForEach(dim, shape)
    {
        uint64_t size;
        if (tensor->dims == CT_TENSOR_DIMS_MAX) {
            return ct_err_set(err, CT_ELIMIT, "tensor %s has more than %d dimensions",
                              SHOWN(tensor->name), CT_TENSOR_DIMS_MAX);
        }
        if (!read_integer(dim, &size) || __builtin_mul_overflow(*items, size, items)) {
            return ct_err_set(err, CT_EFORMAT, "tensor %s has an invalid shape",
                              SHOWN(tensor->name));
        }
        tensor->shape[tensor->dims++] = size;
    }
    return 0;
}

static int read_tensor(const cJSON *item, uint64_t data_len, struct ct_tensor *out,
                       struct ct_err *err)
{
    struct ct_tensor tensor = {.name = item->string};
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    const struct dtype *type = cJSON_IsString(dtype) ? find_dtype(dtype->valuestring) : NULL;
    if (type == NULL) {
        return ct_err_set(err, CT_EFORMAT, "tensor %s has no known dtype", SHOWN(tensor.name));
    }
    tensor.dtype = type->name;
    uint64_t items = 0, bytes;
    int rc = read_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), &tensor, &items, err);
    if (rc != 0) {
        return rc;
    }
    const cJSON *first = cJSON_IsArray(offsets) ? offsets->child : NULL;
    const cJSON *second = first != NULL ? first->next : NULL;
    if (second == NULL || second->next != NULL || !read_integer(first, &tensor.begin) ||
        !read_integer(second, &tensor.end) || tensor.begin > tensor.end) {
        return ct_err_set(err, CT_EFORMAT, "tensor %s has no valid data_offsets",
                          SHOWN(tensor.name));
    }
    if (tensor.end > data_len) {
        return ct_err_set(
            err, CT_EFORMAT, "truncated: tensor %s ends at byte %llu of %llu data bytes",
            SHOWN(tensor.name), (unsigned long long)tensor.end, (unsigned long long)data_len);
    }
    if (__builtin_mul_overflow(items, type->bytes, &bytes) || bytes != tensor.end - tensor.begin) {
        return ct_err_set(err, CT_EFORMAT, "tensor %s has %llu bytes, which is not its shape",
                          SHOWN(tensor.name), (unsigned long long)(tensor.end - tensor.begin));
    }
    *out = tensor;
    return 0;
}

static int check_metadata(const cJSON *metadata, struct ct_err *err)
{
    bool ok = cJSON_IsObject(metadata);
    const cJSON *item;
    if (cJSON_GetArraySize(metadata) > CT_METADATA_MAX) {
        return ct_err_set(err, CT_ELIMIT, "more than %d entries of " METADATA_KEY, CT_METADATA_MAX);
    }
    cJSON_ArrayForEach(item, metadata)
    {
        ok = ok && cJSON_IsString(item);
    }
    return ok ? 0 : ct_err_set(err, CT_EFORMAT, METADATA_KEY " is not an object of texts");
}

static int by_begin(const void *a, const void *b)
{
    const struct ct_tensor *x = a, *y = b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ct_tensor *)a)->name, ((const struct ct_tensor *)b)->name);
}

/* Names must be unique, and tensors cover the data exactly: nothing hides in gaps or overlaps. */
static int check_tensors(struct ct_tensor *tensor, size_t count, uint64_t data_len,
                         struct ct_err *err)
{
    qsort(tensor, count, sizeof *tensor, by_name);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(tensor[i - 1].name, tensor[i].name) == 0) {
            return ct_err_set(err, CT_EFORMAT, "tensor %s occurs twice", SHOWN(tensor[i].name));
        }
    }
    qsort(tensor, count, sizeof *tensor, by_begin);
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (tensor[i].begin != end) {
            return ct_err_set(err, CT_EFORMAT, "tensor %s begins at byte %llu, expected %llu",
                              SHOWN(tensor[i].name), (unsigned long long)tensor[i].begin,
                              (unsigned long long)end);
        }
        end = tensor[i].end;
    }
    if (end != data_len) {
        return ct_err_set(err, CT_EFORMAT, "%llu bytes follow the last tensor",
                          (unsigned long long)(data_len - end));
    }
    return 0;
}

static int read_tensors(const cJSON *root, uint64_t data_len, struct ct_safetensors *out,
                        struct ct_err *err)
{
    int items = cJSON_GetArraySize(root);
    if (items > CT_TENSORS_MAX) {
        return ct_err_set(err, CT_ELIMIT, "more than %d tensors", CT_TENSORS_MAX);
    }
    out->tensor = ct_calloc((size_t)items, sizeof *out->tensor);
    if (out->tensor == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    const cJSON *item;
    cJSON_ArrayForEach(item, root)
    {
        bool is_metadata = strcmp(item->string, METADATA_KEY) == 0;
        int rc = is_metadata ? check_metadata(item, err)
                             : read_tensor(item, data_len, &out->tensor[out->count], err);
        if (rc != 0) {
            return rc;
        }
        out->count += !is_metadata;
    }
    return check_tensors(out->tensor, out->count, data_len, err);
}

int ct_safetensors_parse(const void *header, size_t len, uint64_t data_len,
                         struct ct_safetensors *out, struct ct_err *err)
{
    const char *text = header;
    const char *end = text;
    struct ct_safetensors file = {.fd = -1};
    if (ct_json_count_values(text, len) > VALUES_MAX) {
        return ct_err_set(err, CT_ELIMIT, "a header of more than %zu values", VALUES_MAX);
    }
    /* cJSON would skip blanks and a byte order mark at the start, which the format forbids. */
    cJSON *root = len > 0 && text[0] == '{' ? cJSON_ParseWithLengthOpts(text, len, &end, 0) : NULL;
    file.json = root;
    int rc = 0;
    bool object = cJSON_IsObject(root);
    /* Only spaces may follow the object; they align the data. */
    for (; object && end < text + len; end++) {
        object = *end == ' ';
    }
    if (!object) {
        rc = ct_err_set(err, CT_EFORMAT, "the header is not a JSON object");
    } else {
        rc = read_tensors(root, data_len, &file, err);
    }
    if (rc != 0) {
        ct_safetensors_fini(&file);
        return rc;
    }
    *out = file;
    return 0;
}

static int read_at(int fd, void *out, size_t len, uint64_t offset, struct ct_err *err)
{
    unsigned char *p = out;
    while (len > 0) {
        ssize_t n = pread(fd, p, len, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            int saved = errno;
            return ct_err_sys(err, CT_EIO, saved, "cannot read");
        }
        if (n == 0) {
            return ct_err_set(err, CT_EFORMAT, "truncated while it was read");
        }
        p += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static int read_header(int fd, struct ct_safetensors *out, struct ct_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        int saved = errno;
        return ct_err_sys(err, CT_EIO, saved, "cannot stat");
    }
    if (!S_ISREG(st.st_mode)) {
        return ct_err_set(err, CT_EFORMAT, "not a regular file");
    }
    uint64_t size = (uint64_t)st.st_size, len = 0;
    unsigned char prefix[8];
    if (size < sizeof prefix) {
        return ct_err_set(err, CT_EFORMAT, "truncated: %llu bytes are no safetensors file",
                          (unsigned long long)size);
    }
    int rc = read_at(fd, prefix, sizeof prefix, 0, err);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < sizeof prefix; i++) {
        len |= (uint64_t)prefix[i] << (8 * i);
    }
    if (len > CT_SAFETENSORS_HEADER_MAX) {
        return ct_err_set(
            err, CT_ELIMIT,
            "not a safetensors file: a header of %llu bytes is beyond the limit of %d",
            (unsigned long long)len, CT_SAFETENSORS_HEADER_MAX);
    }
    if (len > size - sizeof prefix) {
        return ct_err_set(
            err, CT_EFORMAT,
            "truncated, or not a safetensors file: a header of %llu bytes does not fit into %llu",
            (unsigned long long)len, (unsigned long long)size);
    }
    char *header = ct_malloc((size_t)len);
    if (header == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    rc = read_at(fd, header, (size_t)len, sizeof prefix, err);
    if (rc == 0) {
        rc = ct_safetensors_parse(header, (size_t)len, size - sizeof prefix - len, out, err);
    }
    ct_free(header);
    if (rc == 0) {
        out->data_start = sizeof prefix + len;
    }
    return rc;
}

int ct_safetensors_open(const char *path, struct ct_safetensors *out, struct ct_err *err)
{
    /* With O_NONBLOCK open() does not wait for a writer if the path is a FIFO. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot open %s", path);
    }
    struct ct_safetensors file;
    int rc = read_header(fd, &file, err);
    if (rc != 0) {
        (void)close(fd);
        (void)ct_err_wrap(err, "%s", path);
        return rc;
    }
    file.fd = fd;
    *out = file;
    return 0;
}

void ct_safetensors_fini(struct ct_safetensors *file)
{
    if (file == NULL) {
        return;
    }
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    ct_free(file->tensor);
    cJSON_Delete(file->json);
    *file = (struct ct_safetensors){.fd = -1};
}

const struct ct_tensor *ct_safetensors_find(const struct ct_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensor[i].name, name) == 0) {
            return &file->tensor[i];
        }
    }
    return NULL;
}

const char *ct_safetensors_metadata(const struct ct_safetensors *file, const char *key)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(file->json, METADATA_KEY);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(metadata, key);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

bool ct_safetensors_metadata_at(const struct ct_safetensors *file, size_t i,
                                struct ct_metadata *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(file->json, METADATA_KEY);
    for (item = item != NULL ? item->child : NULL; item != NULL && i > 0; i--) {
        item = item->next;
    }
    if (item == NULL) {
        return false;
    }
    *out = (struct ct_metadata){.key = item->string, .value = item->valuestring};
    return true;
}

int ct_safetensors_read(const struct ct_safetensors *file, const struct ct_tensor *tensor,
                        void *out, struct ct_err *err)
{
    int rc = read_at(file->fd, out, (size_t)(tensor->end - tensor->begin),
                     file->data_start + tensor->begin, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "tensor %s", tensor->name);
    }
    return rc;
}
