/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the program headers of an executable and the notes that they name. The file is the user's,
 * so all sizes in it are compared with a limit, and whatever does not fit means that there is no
 * note.
 */
#include "launcher/warm/spare_note.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* The version of the protocol in docs/WARM.md. */
#define VERSION 1
#define NOTE_TYPE 1

/* A linker writes about a dozen headers, and the notes of a program take some hundred bytes. */
#define HEADERS_MAX 256
#define NOTES_MAX 16384

static const char name[] = "ctrun";

static bool read_at(int fd, uint64_t offset, void *out, size_t len)
{
    ssize_t got;
    if (offset > INT64_MAX) {
        return false;
    }
    do {
        got = pread(fd, out, len, (off_t)offset);
    } while (got < 0 && errno == EINTR);
    return got == (ssize_t)len;
}

static bool is_for_us(const ElfW(Ehdr) * file)
{
    return memcmp(file->e_ident, ELFMAG, SELFMAG) == 0 &&
           file->e_ident[EI_CLASS] == (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32) &&
           file->e_ident[EI_DATA] ==
               (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB) &&
           file->e_phentsize == sizeof(ElfW(Phdr)) && file->e_phnum <= HEADERS_MAX;
}

static size_t padded(size_t len)
{
    return (len + 3) / 4 * 4;
}

static bool is_ours(const ElfW(Nhdr) * note, const unsigned char *text)
{
    uint32_t version;
    if (note->n_namesz != sizeof(name) || note->n_type != NOTE_TYPE ||
        note->n_descsz != sizeof(version) || memcmp(text, name, sizeof(name)) != 0) {
        return false;
    }
    memcpy(&version, text + padded(sizeof(name)), sizeof(version));
    return version == VERSION;
}

static bool look_in(const unsigned char *notes, size_t len)
{
    size_t at = 0;
    while (len - at >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, notes + at, sizeof(note));
        at += sizeof(note);
        if (note.n_namesz > NOTES_MAX || note.n_descsz > NOTES_MAX ||
            padded(note.n_namesz) + padded(note.n_descsz) > len - at) {
            return false;
        }
        if (is_ours(&note, notes + at)) {
            return true;
        }
        at += padded(note.n_namesz) + padded(note.n_descsz);
    }
    return false;
}

static bool look_at(int fd)
{
    ElfW(Ehdr) file;
    if (!read_at(fd, 0, &file, sizeof(file)) || !is_for_us(&file)) {
        return false;
    }
    for (size_t i = 0; i < file.e_phnum; i++) {
        ElfW(Phdr) part;
        unsigned char notes[NOTES_MAX];
        if (file.e_phoff > INT32_MAX ||
            !read_at(fd, file.e_phoff + i * sizeof(part), &part, sizeof(part))) {
            return false;
        }
        if (part.p_type == PT_NOTE && part.p_filesz <= sizeof(notes) &&
            read_at(fd, part.p_offset, notes, part.p_filesz) && look_in(notes, part.p_filesz)) {
            return true;
        }
    }
    return false;
}

bool ct_spare_note_in(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool found = fd >= 0 && look_at(fd);
    if (fd >= 0) {
        (void)close(fd);
    }
    return found;
}
