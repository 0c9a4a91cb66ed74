/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the hash with published vectors and with Python's, and checks that the key matters.
 */
#include "common/hash.h"
#include "tests/lib/ct_test.h"

/* SipHash-1-3 of the bytes 00 01 .. n-1 under the key 00 01 .. 0f, for n = 0 .. 63; made with
 * OpenSSL 3.0: openssl mac -macopt c-rounds:1 -macopt d-rounds:3 -macopt size:8 SIPHASH. */
static const uint64_t vectors[64] = {
    0xabac0158050fc4dcULL, 0xc9f49bf37d57ca93ULL, 0x82cb9b024dc7d44dULL, 0x8bf80ab8e7ddf7fbULL,
    0xcf75576088d38328ULL, 0xdef9d52f49533b67ULL, 0xc50d2b50c59f22a7ULL, 0xd3927d989bb11140ULL,
    0x369095118d299a8eULL, 0x25a48eb36c063de4ULL, 0x79de85ee92ff097fULL, 0x70c118c1f94dc352ULL,
    0x78a384b157b4d9a2ULL, 0x306f760c1229ffa7ULL, 0x605aa111c0f95d34ULL, 0xd320d86d2a519956ULL,
    0xcc4fdd1a7d908b66ULL, 0x9cf2689063dbd80cULL, 0x8ffc389cb473e63eULL, 0xf21f9de58d297d1cULL,
    0xc0dc2f46a6cce040ULL, 0xb992abfe2b45f844ULL, 0x7ffe7b9ba320872eULL, 0x525a0e7fdae6c123ULL,
    0xf464aeb267349c8cULL, 0x45cd5928705b0979ULL, 0x3a3e35e3ca9913a5ULL, 0xa91dc74e4ade3b35ULL,
    0xfb0bed02ef6cd00dULL, 0x88d93cb44ab1e1f4ULL, 0x540f11d643c5e663ULL, 0x2370dd1f8c21d1bcULL,
    0x81157b6c16a7b60dULL, 0x4d54b9e57a8ff9bfULL, 0x759f12781f2a753eULL, 0xcea1a3bebf186b91ULL,
    0x2cf508d3ada26206ULL, 0xb6101c2da3c33057ULL, 0xb3f47496ae3a36a1ULL, 0x626b57547b108392ULL,
    0xc1d2363299e41531ULL, 0x667cc1923f1ad944ULL, 0x65704ffec8138825ULL, 0x24f280d1c28949a6ULL,
    0xc2ca1cedfaf8876bULL, 0xc2164bfc9f042196ULL, 0xa16e9c9368b1d623ULL, 0x49fb169c8b5114fdULL,
    0x9f3143f8df074c46ULL, 0xc6fdaf2412cc86b3ULL, 0x7eaf49d10a52098fULL, 0x1cf313559d292f9aULL,
    0xc44a30dda2f41f12ULL, 0x36fae98943a71ed0ULL, 0x318fb34c73f0bce6ULL, 0xa27abf3670a7e980ULL,
    0xb4bcc0db243c6d75ULL, 0x23f8d852fdb71513ULL, 0x8f035f4da67d8a08ULL, 0xd89cd0e5b7e8f148ULL,
    0xf6f4e6bcf7a644eeULL, 0xaec59ad80f1837f2ULL, 0xc3b2f6154b6694e0ULL, 0x9d199062b7bbb3a8ULL,
};

static const struct ct_hash_key counting_key = {0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};

static void test_hash_matches_the_published_vectors(void **state)
{
    (void)state;
    unsigned char bytes[64];
    for (size_t n = 0; n < 64; n++) {
        assert_true(ct_hash(&counting_key, bytes, n) == vectors[n]);
        bytes[n] = (unsigned char)n;
    }
}

/* hash(b"...") of CPython 3.11 under PYTHONHASHSEED=0: a second implementation, another key. */
static void test_hash_matches_python(void **state)
{
    (void)state;
    const struct ct_hash_key zero = {0, 0};
    assert_true(ct_hash(&zero, "abcdefgh", 8) == 4574395652268504554ULL);
    assert_true(ct_hash(&zero, "ctrun rendezvous", 16) == 11424189407313140228ULL);
}

static void test_unaligned_and_empty_input_is_hashed(void **state)
{
    (void)state;
    unsigned char bytes[80];
    for (size_t shift = 0; shift < 8; shift++) {
        for (size_t i = 0; i < 63; i++) {
            bytes[shift + i] = (unsigned char)i;
        }
        assert_true(ct_hash(&counting_key, bytes + shift, 63) == vectors[63]);
    }
    assert_true(ct_hash(&counting_key, NULL, 0) == vectors[0]);
}

static void test_both_halves_of_the_key_change_the_hash(void **state)
{
    (void)state;
    struct ct_hash_key other = counting_key;
    other.k0 ^= 1;
    assert_true(ct_hash(&other, "x", 1) != ct_hash(&counting_key, "x", 1));
    other = counting_key;
    other.k1 ^= 1;
    assert_true(ct_hash(&other, "x", 1) != ct_hash(&counting_key, "x", 1));
}

static void test_random_keys_differ(void **state)
{
    (void)state;
    struct ct_hash_key a = {0, 0}, b = {0, 0};
    ct_hash_key_random(&a);
    ct_hash_key_random(&b);
    assert_true(a.k0 != b.k0 && a.k1 != b.k1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_matches_the_published_vectors),
        cmocka_unit_test(test_hash_matches_python),
        cmocka_unit_test(test_unaligned_and_empty_input_is_hashed),
        cmocka_unit_test(test_both_halves_of_the_key_change_the_hash),
        cmocka_unit_test(test_random_keys_differ),
    };
    return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
