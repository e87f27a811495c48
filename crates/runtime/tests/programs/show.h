// What the programs have in common: CHECK ends the program at an error that it does not expect, SHOW prints a call and its
// result, and forgets the error.
#pragma once

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(...)                                                                                   \
    do {                                                                                             \
        cudaError_t error_ = (__VA_ARGS__);                                                          \
        if (error_ != cudaSuccess) {                                                                 \
            printf("line %d: %s: %s\n", __LINE__, #__VA_ARGS__, cudaGetErrorName(error_));           \
            exit(1);                                                                                 \
        }                                                                                            \
    } while (0)

#define SHOW(...)                                                                                    \
    do {                                                                                             \
        printf("%s: %s\n", #__VA_ARGS__, cudaGetErrorName(__VA_ARGS__));                             \
        cudaGetLastError();                                                                          \
    } while (0)

// A sum that depends on the order of the bytes.
static inline unsigned long long checksum(const void *start, size_t bytes) {
    const unsigned char *byte = (const unsigned char *)start;
    unsigned long long sum = 14695981039346656037ull;
    for (size_t i = 0; i < bytes; i++) sum = (sum ^ byte[i]) * 1099511628211ull;
    return sum;
}

// Bytes that follow from a seed.
static inline void fill(void *start, size_t bytes, unsigned seed) {
    unsigned char *byte = (unsigned char *)start;
    for (size_t i = 0; i < bytes; i++) byte[i] = (unsigned char)((i * 31 + seed * 17 + (i >> 8)) & 0xff);
}
