/* SPDX-License-Identifier: Apache-2.0
 *
 * A library with the functions of NVML that a preflight calls. Variables of the environment say
 * what is wrong; each is a number:
 *
 *     FAKE_NVML_INIT      the result of nvmlInit_v2()
 *     FAKE_NVML_COUNT     how many GPUs there are
 *     FAKE_NVML_LOST      the index of a GPU that has fallen off the bus
 *     FAKE_NVML_ECC       uncorrected errors of the last GPU
 *     FAKE_NVML_PENDING, FAKE_NVML_FAILED, FAKE_NVML_PAGES, FAKE_NVML_RECOVERY
 *                         what the last GPU says of its rows, its pages and its recovery
 *     FAKE_NVML_HANG      nvmlInit_v2() does not return
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, LOST = 15 };

struct field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, result;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length);
int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count);
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending);
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed);
int nvmlDeviceGetFieldValues(void *device, int count, struct field *values);

static int wish(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? (int)strtol(text, NULL, 10) : otherwise;
}

/* A device is its index plus one. */
static int index_of(const void *device)
{
    return (int)(uintptr_t)device - 1;
}

static int of_last(const void *device, const char *name)
{
    return index_of(device) == wish("FAKE_NVML_COUNT", 0) - 1 ? wish(name, 0) : 0;
}

int nvmlInit_v2(void)
{
    while (wish("FAKE_NVML_HANG", 0) != 0) {
        (void)pause();
    }
    return wish("FAKE_NVML_INIT", OK);
}

int nvmlShutdown(void)
{
    return OK;
}

const char *nvmlErrorString(int result)
{
    return result == 18 ? "Driver/library version mismatch" : "GPU is lost";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = (unsigned)wish("FAKE_NVML_COUNT", 0);
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1);
    return OK;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length)
{
    (void)snprintf(uuid, length, "GPU-%08d", index_of(device));
    return OK;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *count)
{
    if (type != 1 || counter != 0) {
        return NOT_SUPPORTED;
    }
    if (index_of(device) == wish("FAKE_NVML_LOST", -1)) {
        return LOST;
    }
    *count = (unsigned long long)of_last(device, "FAKE_NVML_ECC");
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *pending)
{
    *pending = of_last(device, "FAKE_NVML_PAGES");
    return OK;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    *corrected = *uncorrected = 1; /* these were mended, and do not count */
    *pending = (unsigned)of_last(device, "FAKE_NVML_PENDING");
    *failed = (unsigned)of_last(device, "FAKE_NVML_FAILED");
    return OK;
}

int nvmlDeviceGetFieldValues(void *device, int count, struct field *values)
{
    for (int i = 0; i < count; i++) {
        values[i].result = values[i].id == 230 ? OK : NOT_SUPPORTED;
        values[i].value.u = (unsigned)of_last(device, "FAKE_NVML_RECOVERY");
    }
    return OK;
}
