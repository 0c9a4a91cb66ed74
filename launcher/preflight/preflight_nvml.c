/* SPDX-License-Identifier: Apache-2.0
 *
 * The few functions that are needed are declared here as NVML's documentation has them, since its
 * header belongs to the CUDA toolkit. A function or a value that this driver or GPU does not have
 * is passed over.
 */
#include "launcher/preflight/preflight_nvml.h"

#include "common/text.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
    NVML_OK = 0,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_GPU_IS_LOST = 15,
};
enum { NVML_UNCORRECTED = 1, NVML_VOLATILE = 0 };
/* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, from driver 570 on */
#define NVML_RECOVERY_ACTION 230

#define UUID_MAX 96

typedef void *nvml_device;

struct nvml_field {
    unsigned id, scope;
    long long timestamp, latency_us;
    int type, result;
    union {
        double d;
        unsigned u;
        unsigned long long ull;
    } value;
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shut_down)(void);
    const char *(*error)(int result);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, nvml_device *device);
    int (*uuid)(nvml_device device, char *uuid, unsigned length);
    int (*ecc)(nvml_device device, int type, int counter, unsigned long long *count);
    int (*pages)(nvml_device device, int *pending);
    int (*rows)(nvml_device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                unsigned *failed);
    int (*fields)(nvml_device device, int count, struct nvml_field *values);
};

/* POSIX guarantees that a function's address fits, ISO C does not, so the bytes are copied. */
static void find(const struct nvml *nvml, const char *name, void *function)
{
    void *symbol = dlsym(nvml->library, name);
    memcpy(function, &symbol, sizeof(symbol));
}

static bool load(const char *name, struct nvml *nvml)
{
    *nvml = (struct nvml){.library = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (nvml->library == NULL) {
        return false;
    }
    find(nvml, "nvmlInit_v2", &nvml->init);
    find(nvml, "nvmlShutdown", &nvml->shut_down);
    find(nvml, "nvmlErrorString", &nvml->error);
    find(nvml, "nvmlDeviceGetCount_v2", &nvml->count);
    find(nvml, "nvmlDeviceGetHandleByIndex_v2", &nvml->handle);
    find(nvml, "nvmlDeviceGetUUID", &nvml->uuid);
    find(nvml, "nvmlDeviceGetTotalEccErrors", &nvml->ecc);
    find(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", &nvml->pages);
    find(nvml, "nvmlDeviceGetRemappedRows", &nvml->rows);
    find(nvml, "nvmlDeviceGetFieldValues", &nvml->fields);
    return nvml->init != NULL && nvml->count != NULL && nvml->handle != NULL;
}

static const char *words(const struct nvml *nvml, int result)
{
    return nvml->error != NULL ? nvml->error(result) : "unknown error";
}

static const char *recovery(unsigned action)
{
    static const char *const actions[] = {
        NULL,
        "it needs a reset",
        "the machine has to be started again",
        "its links to other GPUs have to be drained",
        "it has to be drained and reset",
    };
    return action < sizeof(actions) / sizeof(actions[0]) ? actions[action] : NULL;
}

/* Writes the first thing that is wrong with the GPU; "" if nothing is. */
static void look_at(const struct nvml *nvml, nvml_device device, char *out, size_t size)
{
    unsigned long long errors = 0;
    unsigned corrected = 0, uncorrected = 0, row_pending = 0, failed = 0;
    int page_pending = 0;
    struct nvml_field field = {.id = NVML_RECOVERY_ACTION, .result = -1};
    int rc = nvml->ecc != NULL ? nvml->ecc(device, NVML_UNCORRECTED, NVML_VOLATILE, &errors) : -1;
    if (rc == NVML_GPU_IS_LOST) {
        (void)snprintf(out, size, "it has fallen off the bus");
        return;
    }
    if (rc == NVML_OK && errors > 0) {
        (void)snprintf(out, size, "%llu uncorrected ECC error%s since its last reset", errors,
                       errors == 1 ? "" : "s");
        return;
    }
    if (nvml->rows != NULL &&
        nvml->rows(device, &corrected, &uncorrected, &row_pending, &failed) == NVML_OK &&
        (failed != 0 || row_pending != 0)) {
        (void)snprintf(out, size, "%s",
                       failed != 0 ? "its memory has no spare rows left"
                                   : "rows of its memory are replaced only by a reset");
        return;
    }
    if (nvml->pages != NULL && nvml->pages(device, &page_pending) == NVML_OK && page_pending != 0) {
        (void)snprintf(out, size, "pages of its memory are retired only by a reset");
        return;
    }
    if (nvml->fields != NULL && nvml->fields(device, 1, &field) == NVML_OK &&
        field.result == NVML_OK && recovery(field.value.u) != NULL) {
        (void)snprintf(out, size, "%s after an error", recovery(field.value.u));
    }
}

static void look_at_all(const struct nvml *nvml, struct ct_preflight_machine *machine)
{
    unsigned count = 0;
    int rc = nvml->count(&count);
    machine->gpus = rc == NVML_OK && count <= CT_PREFLIGHT_GPUS_MAX ? (int)count : 0;
    if (rc != NVML_OK) {
        (void)snprintf(machine->gpu_trouble, sizeof(machine->gpu_trouble),
                       "NVML does not count the GPUs: %.100s", words(nvml, rc));
    }
    for (int i = 0; i < machine->gpus && machine->gpu_trouble[0] == '\0'; i++) {
        nvml_device device = NULL;
        char uuid[UUID_MAX] = "", trouble[CT_PREFLIGHT_TEXT_MAX / 2] = "";
        rc = nvml->handle((unsigned)i, &device);
        if (rc == NVML_OK) {
            look_at(nvml, device, trouble, sizeof(trouble));
        } else {
            (void)snprintf(trouble, sizeof(trouble), "%.60s", words(nvml, rc));
        }
        if (trouble[0] == '\0') {
            continue;
        }
        if (rc == NVML_OK && nvml->uuid != NULL &&
            nvml->uuid(device, uuid, sizeof(uuid) - 1) != NVML_OK) {
            uuid[0] = '\0';
        }
        (void)snprintf(machine->gpu_trouble, sizeof(machine->gpu_trouble), "GPU %d%s%.48s%s: %s", i,
                       uuid[0] != '\0' ? " (" : "", uuid, uuid[0] != '\0' ? ")" : "", trouble);
    }
}

void ct_preflight_nvml(const char *library, struct ct_preflight_machine *machine)
{
    struct nvml nvml;
    if (!load(library, &nvml)) {
        return; /* the library stays loaded; this process ends soon */
    }
    int rc = nvml.init();
    if (rc == NVML_DRIVER_NOT_LOADED) {
        machine->gpus = 0;
    } else if (rc != NVML_OK) {
        machine->gpus = 0;
        (void)snprintf(machine->gpu_trouble, sizeof(machine->gpu_trouble),
                       "NVML cannot be used: %.100s", words(&nvml, rc));
    } else {
        look_at_all(&nvml, machine);
        if (nvml.shut_down != NULL) {
            (void)nvml.shut_down();
        }
    }
    ct_text_clean(machine->gpu_trouble);
}
