// Included by each file of Highway kernels after it has defined HWY_TARGET_INCLUDE. Not guarded on purpose: every such
// file is compiled once for each target.
//
// Targets are chosen by NmTarget rather than by Highway's own dispatch, so that tests and benchmarks can force them.
// With g++ 12 Highway has no emulation of 128-bit vectors, so the lowest x86 target is SSE4 (every x86-64 processor
// since 2008); on other processors it is what the compiler is set to.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif

#include "hwy/foreach_target.h"  // IWYU pragma: keep

// GCC loads an operand again for each multiply-add that uses it, and addresses it by two registers, which costs a
// further micro-operation each time. These keep a loaded vector, or an address, in its register.
#ifndef FILIGREE_NM_KEEP_VECTOR
#if HWY_ARCH_X86 && HWY_COMPILER_GCC
#define FILIGREE_NM_KEEP_VECTOR(v) asm("" : "+v"((v).raw))
#define FILIGREE_NM_KEEP_ADDRESS(p) asm("" : "+r"(p))
#else
#define FILIGREE_NM_KEEP_VECTOR(v)
#define FILIGREE_NM_KEEP_ADDRESS(p)
#endif
#endif

#ifndef FILIGREE_NM_SELECT
#if HWY_ARCH_X86_64
#define FILIGREE_NM_SELECT(function, vectors)                    \
  (vectors == ::filigree::NmVectors::avx512 ? N_AVX3::function() \
   : vectors == ::filigree::NmVectors::avx2 ? N_AVX2::function() \
                                            : N_SSE4::function())
#else
#define FILIGREE_NM_SELECT(function, vectors) ((void)vectors, HWY_STATIC_DISPATCH(function)())
#endif
#endif
