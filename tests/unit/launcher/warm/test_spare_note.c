/* SPDX-License-Identifier: Apache-2.0
 *
 * Which programs say that they can be spares: by a note that is found in any of the program's
 * notes, and in nothing that is not a program.
 */
#include "launcher/warm/spare_note.h"

#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>

/* An executable with one program header, and its notes behind. */
struct program {
    ElfW(Ehdr) file;
    ElfW(Phdr) part;
    unsigned char notes[256];
};

static size_t add_note(struct program *p, size_t at, const char *name, uint32_t type,
                       uint32_t value)
{
    ElfW(Nhdr) note = {
        .n_namesz = (ElfW(Word))strlen(name) + 1, .n_descsz = sizeof(value), .n_type = type};
    memcpy(p->notes + at, &note, sizeof(note));
    at += sizeof(note);
    memcpy(p->notes + at, name, strlen(name) + 1);
    at += (strlen(name) + 4) / 4 * 4;
    memcpy(p->notes + at, &value, sizeof(value));
    return at + sizeof(value);
}

static void make(struct program *p)
{
    *p = (struct program){
        .file = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3,
                             sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32,
                             __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB},
                 .e_phoff = offsetof(struct program, part),
                 .e_phentsize = sizeof(ElfW(Phdr)),
                 .e_phnum = 1},
        .part = {.p_type = PT_NOTE, .p_offset = offsetof(struct program, notes)},
    };
    size_t at = add_note(p, 0, "GNU", 1, 7);
    p->part.p_filesz = add_note(p, at, "ctrun", 1, 1);
}

static bool is_found(const struct program *p, size_t len)
{
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "program", p, len);
    bool found = ct_spare_note_in(path);
    free(path);
    ct_tmpdir_free(dir);
    return found;
}

static void a_program_that_says_so(void **state)
{
    struct program p;
    (void)state;
    make(&p);
    assert_true(is_found(&p, sizeof(p)));
}

static void any_other_file_is_refused(void **state)
{
    struct program p;
    (void)state;
    make(&p);
    p.part.p_type = PT_LOAD;
    assert_false(is_found(&p, sizeof(p)));
    make(&p);
    p.part.p_filesz = add_note(&p, 0, "ctrun", 2, 1);
    assert_false(is_found(&p, sizeof(p)));
    p.part.p_filesz = add_note(&p, 0, "ctrun", 1, 2); /* a later version of the protocol */
    assert_false(is_found(&p, sizeof(p)));
    p.part.p_filesz = add_note(&p, 0, "other", 1, 1);
    assert_false(is_found(&p, sizeof(p)));
    make(&p);
    p.file.e_ident[EI_MAG0] = '#';
    assert_false(is_found(&p, sizeof(p)));
    assert_false(ct_spare_note_in("/nowhere"));
    assert_false(ct_spare_note_in("/"));
}

static void sizes_that_lie_are_refused(void **state)
{
    struct program p;
    ElfW(Nhdr) note;
    (void)state;
    make(&p);
    for (size_t len = 0; len < offsetof(struct program, notes) + p.part.p_filesz; len++) {
        assert_false(is_found(&p, len)); /* the file ends too early */
    }
    p.part.p_filesz = UINT32_MAX;
    assert_false(is_found(&p, sizeof(p)));
    make(&p);
    p.part.p_offset = (ElfW(Off)) - 1;
    assert_false(is_found(&p, sizeof(p)));
    make(&p);
    p.file.e_phoff = (ElfW(Off)) - 8;
    assert_false(is_found(&p, sizeof(p)));
    make(&p);
    p.file.e_phnum = UINT16_MAX;
    assert_false(is_found(&p, sizeof(p)));
    make(&p);
    p.file.e_phentsize = 1;
    assert_false(is_found(&p, sizeof(p)));
    for (int field = 0; field < 2; field++) {
        make(&p);
        memcpy(&note, p.notes, sizeof(note));
        *(field == 0 ? &note.n_namesz : &note.n_descsz) = UINT32_MAX - 2;
        memcpy(p.notes, &note, sizeof(note));
        assert_false(is_found(&p, sizeof(p)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_says_so),
        cmocka_unit_test(any_other_file_is_refused),
        cmocka_unit_test(sizes_that_lie_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
