/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: each check asks the kernel once.
 *
 * Failure modes: a file system or a driver that does not answer. The process that looks can be
 * killed then, and the stage that it has reported last says where it stood.
 */
#include "launcher/preflight/preflight_here.h"

#include "common/num.h"
#include "launcher/preflight/preflight_nvml.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Documentation/ABI/testing/dev-kmsg: a record is at most this long. */
#define RECORD_MAX 8192
/* More than the kernel keeps. */
#define RECORDS_MAX 1000000
/* A file system with fewer free inodes is full. */
#define INODES_LEAST 16

const struct ct_preflight_places ct_preflight_places_here = {
    .shm = "/dev/shm",
    .infiniband = "/sys/class/infiniband",
    .kmsg = "/dev/kmsg",
    .nvml = CT_PREFLIGHT_NVML,
};

static int64_t cut(unsigned long long number)
{
    return number < INT64_MAX ? (int64_t)number : INT64_MAX;
}

static bool read_room(const char *folder, int64_t *size, int64_t *free_bytes)
{
    struct statvfs room;
    if (statvfs(folder, &room) != 0) {
        return false;
    }
    bool no_inodes = room.f_files > 0 && room.f_favail < INODES_LEAST;
    *size = cut((unsigned long long)room.f_blocks * room.f_frsize);
    *free_bytes = no_inodes ? 0 : cut((unsigned long long)room.f_bavail * room.f_frsize);
    return true;
}

/* Is it in the file system of /dev/shm, which has a check of its own? */
static bool is_in(const char *folder, const char *shm)
{
    struct stat one, other;
    return stat(folder, &one) == 0 && stat(shm, &other) == 0 && one.st_dev == other.st_dev;
}

static void look_at_folders(const struct ct_preflight_places *places,
                            struct ct_preflight_machine *machine)
{
    for (size_t i = 0; i < sizeof(places->folders) / sizeof(places->folders[0]); i++) {
        const char *folder = places->folders[i];
        int64_t size, room;
        if (folder != NULL && !is_in(folder, places->shm) && read_room(folder, &size, &room) &&
            (machine->folder_free < 0 || room < machine->folder_free)) {
            machine->folder_free = room;
            (void)snprintf(machine->folder, sizeof(machine->folder), "%s", folder);
        }
    }
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int count = 0;
    if (dir == NULL) {
        return 0;
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(dir);
    return count;
}

/* Takes "... NVRM: Xid (PCI:0000:3b:00): 79, ..." */
static void take_record(const char *record, struct ct_preflight_machine *machine)
{
    static const char begin[] = "NVRM: Xid (PCI:";
    const char *at = strstr(record, begin);
    const char *device = at != NULL ? at + sizeof(begin) - 1 : NULL;
    size_t device_len = device != NULL ? strcspn(device, ")") : 0;
    if (device == NULL || strncmp(device + device_len, "): ", 3) != 0) {
        return;
    }
    const char *number = device + device_len + 3;
    size_t len = strspn(number, "0123456789");
    if (len == 0 || len > 6 || device_len > 16) {
        return;
    }
    machine->xids += machine->xids < INT_MAX;
    (void)snprintf(machine->last_xid, sizeof(machine->last_xid), "%.*s on %.*s", (int)len, number,
                   (int)device_len, device);
}

void ct_preflight_count_xids(const char *kmsg, struct ct_preflight_machine *machine)
{
    char record[RECORD_MAX + 1];
    int fd = open(kmsg, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return;
    }
    machine->xids = 0;
    for (int i = 0; i < RECORDS_MAX; i++) {
        ssize_t n = read(fd, record, RECORD_MAX);
        if (n < 0 && (errno == EPIPE || errno == EINTR)) {
            continue; /* records were overwritten */
        }
        if (n <= 0) {
            break;
        }
        record[n] = '\0';
        take_record(record, machine);
    }
    (void)close(fd);
}

void ct_preflight_look(const struct ct_preflight_places *places,
                       struct ct_preflight_machine *machine)
{
    struct rlimit limit;
    places->stage(places->data, places->shm);
    (void)read_room(places->shm, &machine->shm_size, &machine->shm_free);
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        machine->memlock = limit.rlim_cur == RLIM_INFINITY ? -1 : cut(limit.rlim_cur);
    }
    machine->rdma = count_entries(places->infiniband);
    places->stage(places->data, "the disks");
    look_at_folders(places, machine);
    places->stage(places->data, "the kernel's log");
    ct_preflight_count_xids(places->kmsg, machine);
    places->stage(places->data, "the GPUs (NVML)");
    ct_preflight_nvml(places->nvml, machine);
}
