/* SPDX-License-Identifier: Apache-2.0
 *
 * Good .npy headers, and each way in which one can be wrong.
 */
#include "tests/lib/ct_test.h"
#include "trainer/formats/npy.h"

#include <stdlib.h>

/* A version 1.0 file with this dict and so many bytes of data, 1, 2, 3, ...; its length. */
static size_t make(const char *dict, size_t data, unsigned char *out, size_t cap)
{
    size_t header = strlen(dict) + 1, total = 10 + header + data;
    assert_true(total <= cap);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)header;
    out[9] = (unsigned char)(header >> 8);
    memcpy(out + 10, dict, header - 1);
    out[10 + header - 1] = '\n';
    for (size_t i = 0; i < data; i++) {
        out[10 + header + i] = (unsigned char)(i + 1);
    }
    return total;
}

static void expect(const char *dict, size_t data, int code, const char *why)
{
    unsigned char bytes[512];
    size_t len = make(dict, data, bytes, sizeof bytes);
    struct ct_npy npy;
    struct ct_err err = {0};
    int rc = ct_npy_parse(bytes, len, &npy, &err);
    if (rc != code || (rc != 0 && strstr(err.text, why) == NULL)) {
        fail_msg("%s: %d '%s', expected %d '%s'", dict, rc, err.text, code, why);
    }
}

static void test_what_numpy_writes_is_read(void **state)
{
    (void)state;
    unsigned char bytes[512];
    struct ct_npy npy;
    /* As NumPy 1.24 writes it, with the spaces that align the data. */
    size_t len = make("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 3), }      ", 6,
                      bytes, sizeof bytes);
    assert_int_equal(ct_npy_parse(bytes, len, &npy, NULL), 0);
    assert_true(npy.type == CT_NPY_U8 && npy.dims == 3 && npy.count == 6);
    assert_true(npy.dim[0] == 2 && npy.dim[1] == 1 && npy.dim[2] == 3);
    uint8_t byte;
    assert_int_equal(ct_npy_byte(&npy, 5, &byte), 0);
    assert_int_equal(byte, 6);
    expect("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8, 0, "");
    len = make("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8, bytes, sizeof bytes);
    assert_int_equal(ct_npy_parse(bytes, len, &npy, NULL), 0);
    const uint32_t bits = 0x08070605;
    float value = ct_npy_float(&npy, 1);
    assert_memory_equal(&value, &bits, sizeof bits);
    expect("{'shape':(2,3),'descr':'<i2','fortran_order':False}", 12, 0, "");
}

static void test_wrong_headers_are_refused(void **state)
{
    (void)state;
#define D "'descr': '|u1', "
#define F "'fortran_order': False, "
#define S "'shape': (2,), "
    expect("{" D F S "}", 1, CT_EFORMAT, "1 bytes follow the header, its shape has 2");
    expect("{" D F S "}", 3, CT_EFORMAT, "3 bytes follow the header");
    expect("{" D F "'shape': (2)}", 2, CT_EFORMAT, "no tuple");
    expect("{" D F "'shape': ()}", 1, CT_EFORMAT, "no tuple");
    expect("{" D F "'shape': (0,)}", 0, CT_EFORMAT, "no tuple");
    expect("{" D F "'shape': (-1,)}", 1, CT_EFORMAT, "no tuple");
    expect("{" D F "'shape': (2 3)}", 6, CT_EFORMAT, "no tuple");
    expect("{" D F "'shape': (1,1,1,1,1)}", 1, CT_ELIMIT, "more than 4 dimensions");
    expect("{" D F "'shape': (4294967296,4294967296,16)}", 1, CT_ELIMIT, "larger than memory");
    expect("{" D F "'shape': (99999999999999999999,)}", 1, CT_EFORMAT, "no tuple");
    expect("{'descr': '>f4', " F S "}", 8, CT_EUNSUPPORTED, "items of type >f4");
    expect("{'descr': '|O', " F S "}", 8, CT_EUNSUPPORTED, "items of type |O");
    expect("{'descr': [('a', '<f4')], " F S "}", 8, CT_EUNSUPPORTED, "no simple type");
    expect("{" D "'fortran_order': True, " S "}", 2, CT_EUNSUPPORTED, "Fortran");
    expect("{" D F "}", 2, CT_EFORMAT, "not that of an array");
    expect("{" D D F S "}", 2, CT_EFORMAT, "not that of an array");
    expect("{" D F S "'more': 1}", 2, CT_EFORMAT, "not that of an array");
    expect("{" D F S "} x", 2, CT_EFORMAT, "not that of an array");
    expect("{" D F S, 2, CT_EFORMAT, "not that of an array");
    expect("", 0, CT_EFORMAT, "not that of an array");
}

/* Each shorter part of a good file is refused, without reading behind it (the sanitizer looks). */
static void test_every_truncation_is_refused(void **state)
{
    (void)state;
    unsigned char bytes[512];
    struct ct_npy npy;
    size_t len = make("{" D F S "}", 2, bytes, sizeof bytes);
    for (size_t i = 0; i < len; i++) {
        unsigned char *part = malloc(i + 1);
        memcpy(part, bytes, i);
        assert_true(ct_npy_parse(part, i, &npy, NULL) < 0);
        free(part);
    }
    bytes[6] = 9;
    assert_int_equal(ct_npy_parse(bytes, len, &npy, NULL), CT_EUNSUPPORTED);
    /* Version 2 has a header length of 32 bits. */
    bytes[6] = 2;
    assert_true(ct_npy_parse(bytes, len, &npy, NULL) < 0);
}

/* Versions 2 and 3 have a header length of 32 bits. */
static void test_a_long_header_is_read(void **state)
{
    (void)state;
    static const char dict[] = "{" D F S "}";
    const size_t headers[] = {sizeof dict, 300, 70000, 0x1020304};
    for (size_t h = 0; h < sizeof headers / sizeof headers[0]; h++) {
        size_t header = headers[h], len = 12 + header + 2;
        unsigned char *bytes = malloc(len);
        assert_non_null(bytes);
        memcpy(bytes, "\x93NUMPY\x02\x00", 8);
        for (size_t i = 0; i < 4; i++) {
            bytes[8 + i] = (unsigned char)(header >> (8 * i));
        }
        memset(bytes + 12, ' ', header);
        memcpy(bytes + 12, dict, sizeof dict - 1);
        bytes[12 + header - 1] = '\n';
        bytes[12 + header] = 7;
        bytes[12 + header + 1] = 9;
        struct ct_npy npy;
        uint8_t byte;
        assert_int_equal(ct_npy_parse(bytes, len, &npy, NULL), 0);
        assert_int_equal(npy.count, 2);
        assert_int_equal(ct_npy_byte(&npy, 1, &byte), 0);
        assert_int_equal(byte, 9);
        assert_true(ct_npy_parse(bytes, len - 1, &npy, NULL) < 0);
        bytes[11]++; /* longer than the file */
        assert_int_equal(ct_npy_parse(bytes, len, &npy, NULL), CT_EFORMAT);
        free(bytes);
    }
}

static void test_labels_of_any_width(void **state)
{
    (void)state;
    static const unsigned char items[] = {7,   0,   0,   0,   0, 0, 0, 0, 255, 255, 255, 255,
                                          255, 255, 255, 255, 0, 1, 0, 0, 0,   0,   0,   0};
    struct ct_npy npy = {.type = CT_NPY_I64, .item = 8, .count = 3, .data = items};
    uint8_t byte;
    assert_int_equal(ct_npy_byte(&npy, 0, &byte), 0);
    assert_int_equal(byte, 7);
    assert_int_equal(ct_npy_byte(&npy, 1, &byte), CT_ELIMIT); /* -1 */
    assert_int_equal(ct_npy_byte(&npy, 2, &byte), CT_ELIMIT); /* 256 */
    npy = (struct ct_npy){.type = CT_NPY_I8, .item = 1, .count = 9, .data = items};
    assert_int_equal(ct_npy_byte(&npy, 8, &byte), CT_ELIMIT);
    npy.type = CT_NPY_U8;
    assert_int_equal(ct_npy_byte(&npy, 8, &byte), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_numpy_writes_is_read),
        cmocka_unit_test(test_wrong_headers_are_refused),
        cmocka_unit_test(test_every_truncation_is_refused),
        cmocka_unit_test(test_a_long_header_is_read),
        cmocka_unit_test(test_labels_of_any_width),
    };
    return cmocka_run_group_tests_name("npy", tests, NULL, NULL);
}
