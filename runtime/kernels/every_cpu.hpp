// One binary for CPUs with and without AVX2 (v3) and AVX512 (v4): functions marked SPP_EVERY_CPU
// are compiled once for each, and the loader picks at program start. (Sanitizers instrument the
// code that picks, which runs before they do: no choice then.)
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(SPP_SANITIZED)
#define SPP_EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SPP_EVERY_CPU
#endif

/// For what is called in such a function: must become part of it to be compiled with it.
#define SPP_INLINE [[gnu::always_inline]] inline
