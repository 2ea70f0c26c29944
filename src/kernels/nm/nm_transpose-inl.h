// Included by files of AVX-512 intrinsics after they have pushed their attributes. Not guarded for that reason.

namespace filigree {
namespace {

// Rows become columns: 16 x 16 words.
inline void transpose(__m512i (&v)[16]) {
  __m512i a[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  // Block b of v[4 q + j]: word 4 b + j of rows 4 q to 4 q + 3.
#pragma GCC unroll 4
  for (int q = 0; q < 16; q += 4) {
    v[q] = _mm512_unpacklo_epi64(a[q], a[q + 2]);
    v[q + 1] = _mm512_unpackhi_epi64(a[q], a[q + 2]);
    v[q + 2] = _mm512_unpacklo_epi64(a[q + 1], a[q + 3]);
    v[q + 3] = _mm512_unpackhi_epi64(a[q + 1], a[q + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even_low = _mm512_shuffle_i32x4(v[j], v[4 + j], 0x88);        // blocks 0, 2 of rows 0 to 7
    const __m512i odd_low = _mm512_shuffle_i32x4(v[j], v[4 + j], 0xdd);         // blocks 1, 3
    const __m512i even_high = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0x88);  // of rows 8 to 15
    const __m512i odd_high = _mm512_shuffle_i32x4(v[8 + j], v[12 + j], 0xdd);
    a[j] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    a[4 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    a[8 + j] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    a[12 + j] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) v[i] = a[i];
}

}  // namespace
}  // namespace filigree
