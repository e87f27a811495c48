// Allocates up to a limit of 64 MiB with the driver's functions, which it gets in the way that its argument names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef unsigned long long address;
typedef int (*alloc_t)(address *, size_t);
typedef int (*free_t)(address);
typedef int (*info_t)(size_t *, size_t *);

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuDeviceTotalMem_v2(size_t *, int);
int cuMemAlloc_v2(address *, size_t);
int cuMemFree_v2(address);
int cuMemGetInfo_v2(size_t *, size_t *);
int cuGetProcAddress_v2(const char *, void **, int, unsigned long, int *);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long, int *);

#ifndef LINKED
static void *found(const char *how, const char *name, const char *symbol) {
    void *function = 0;
    int status;
#ifdef ADDRESSES
    if (!strcmp(how, "linked")) {
        return !strcmp(name, "cuMemAlloc") ? (void *)cuMemAlloc_v2 : !strcmp(name, "cuMemFree") ? (void *)cuMemFree_v2
                                                                                                 : (void *)cuMemGetInfo_v2;
    }
#endif
    if (!strcmp(how, "dlsym")) {
        return dlsym(dlopen("libcuda.so.1", RTLD_NOW), symbol);
    } else if (!strcmp(how, "default")) {
        return dlsym(RTLD_DEFAULT, symbol);
    } else if (!strcmp(how, "driver")) {
        cuGetProcAddress_v2(name, &function, 12000, 0, &status);
    } else if (!strcmp(how, "runtime")) {
        cudaGetDriverEntryPointByVersion(name, &function, 12000, 0, &status);
    }
    return function;
}
#endif

#ifdef LINKED
// Calls, no addresses: each is bound when it is first made.
#define alloc cuMemAlloc_v2
#define release cuMemFree_v2
#define info cuMemGetInfo_v2
#endif

int main(int count, char **words) {
    const char *how = words[count - 1];
    cuInit(0);
#ifndef LINKED
    alloc_t alloc = (alloc_t)found(how, "cuMemAlloc", "cuMemAlloc_v2");
    free_t release = (free_t)found(how, "cuMemFree", "cuMemFree_v2");
    info_t info = (info_t)found(how, "cuMemGetInfo", "cuMemGetInfo_v2");
#endif
    void *context;
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    size_t size, available, total;
    cuDeviceTotalMem_v2(&size, 0);
    address large = 0, small = 0, more = 0;
    printf("%s: %d", how, alloc(&large, (size_t)63 << 20));
    printf(" %d", alloc(&small, 1 << 20));
    printf(" %d", alloc(&more, 1));
    info(&available, &total);
    printf(", %zu of %zu and %zu,", available, total, size);
    printf(" %d", release(small));
    info(&available, &total);
    printf(" %zu,", available);
    printf(" %d", alloc(&more, (1 << 20) + 1));
    printf(" %d\n", alloc(&more, 1 << 20));
    return 0;
}
