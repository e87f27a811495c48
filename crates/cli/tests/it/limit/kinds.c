// Allocates every kind of memory under a limit of 128 MiB. Prints what each takes of the limit, the error of one that is too
// large, and that nothing is in use at the end.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long address;
struct place { int kind, id; };
struct channel { int x, y, z, w, kind; };
struct extent { size_t width, height, depth; };
struct memory { int kind, handles; struct place at; void *win; char rest[8]; };
struct pool_properties { int kind, handles; struct place at; void *security; size_t max; char rest[56]; };
struct node { struct pool_properties pool; const void *access; size_t accesses, bytes; address start; };

int cudaMemGetInfo(size_t *, size_t *);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocArray(void **, const struct channel *, size_t, size_t, unsigned);
int cudaFreeArray(void *);
int cudaMallocMipmappedArray(void **, const struct channel *, struct extent, unsigned, unsigned);
int cudaFreeMipmappedArray(void *);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaStreamSynchronize(void *);
int cudaDeviceReset(void);
int cudaGraphCreate(void **, unsigned);
int cudaGraphDestroy(void *);
int cudaGraphAddMemAllocNode(void **, void *, void *const *, size_t, struct node *);
int cudaGraphAddMemFreeNode(void **, void *, void *const *, size_t, void *);
int cudaGraphInstantiate(void **, void *, unsigned long long);
int cudaGraphLaunch(void *, void *);
int cudaGraphExecDestroy(void *);
int cudaDeviceGraphMemTrim(int);
int cuMemCreate(address *, size_t, const struct memory *, unsigned long long);
int cuMemRelease(address);
int cuMemAddressReserve(address *, size_t, size_t, address, unsigned long long);
int cuMemMap(address, size_t, size_t, address, unsigned long long);
int cuMemUnmap(address, size_t);
int cuMemRetainAllocationHandle(address *, void *);
int cuCtxCreate_v2(void **, unsigned, int);
int cuCtxDestroy_v2(void *);
int cuMemAlloc_v2(address *, size_t);

static const size_t MIB = 1 << 20;

static size_t used(void) {
    size_t available, total;
    cudaMemGetInfo(&available, &total);
    return total - available;
}

#define SHOW(name) printf("%s: %zu bytes", name, used())

int main(void) {
    void *block, *graph, *exec, *nodes[2], *context;
    size_t pitch, total, available;
    address first, second, start;
    struct channel channel = {32, 0, 0, 0, 2};
    cudaMemGetInfo(&available, &total);
    printf("total: %zu\n", total);

    cudaMalloc(&block, 100 * MIB);
    SHOW("linear");
    printf(", %d", cudaMalloc(&block, 28 * MIB + 1));
    printf(", %d\n", cudaFree(block));

    cudaMallocPitch(&block, &pitch, 1000, 1024);
    SHOW("pitched");
    printf(" of %zu, %d", pitch * 1024, cudaFree(block));
    printf(", %d\n", cudaMallocPitch(&block, &pitch, 1000, 200 * 1024));

    cudaMallocManaged(&block, 50 * MIB, 1);
    SHOW("managed");
    printf(", %d", cudaFree(block));
    printf(", %d\n", cudaMallocManaged(&block, 129 * MIB, 1));

    cudaMallocArray(&block, &channel, 1024, 1024, 0);
    SHOW("array");
    printf(", %d", cudaFreeArray(block));
    printf(", %d\n", cudaMallocArray(&block, &channel, 8192, 8192, 0));

    struct extent extent = {1024, 1024, 0}, large = {8192, 8192, 0};
    cudaMallocMipmappedArray(&block, &channel, extent, 2, 0);
    SHOW("mipmapped");
    printf(", %d", cudaFreeMipmappedArray(block));
    printf(", %d\n", cudaMallocMipmappedArray(&block, &channel, large, 2, 0));

    struct memory memory = {1, 0, {1, 0}, 0, ""};
    cuMemCreate(&first, 64 * MIB, &memory, 0);
    SHOW("created");
    printf(", %d", cuMemCreate(&second, 66 * MIB, &memory, 0));
    cuMemAddressReserve(&start, 64 * MIB, 0, 0, 0);
    cuMemMap(start, 64 * MIB, 0, first, 0);
    cuMemRelease(first);
    printf(", mapped %zu", used());
    cuMemRetainAllocationHandle(&second, (void *)start);
    cuMemUnmap(start, 64 * MIB);
    printf(", retained %zu", used());
    cuMemRelease(second);
    printf(", released %zu\n", used());

    cudaMallocAsync(&block, 40 * MIB, 0);
    printf("pool: %d, %d", used() >= 40 * MIB && used() < 96 * MIB, cudaMallocAsync(&nodes[0], 100 * MIB, 0));
    cudaFreeAsync(block, 0);
    cudaStreamSynchronize(0);
    printf(", %zu after", used());
    printf(", %d\n", cudaMallocAsync(&block, 100 * MIB, 0));
    cudaFreeAsync(block, 0);
    cudaStreamSynchronize(0);

    struct node node;
    memset(&node, 0, sizeof node);
    node.pool.kind = 1;
    node.pool.at.kind = 1;
    node.bytes = 129 * MIB;
    cudaGraphCreate(&graph, 0);
    printf("graph: %d", cudaGraphAddMemAllocNode(&nodes[0], graph, 0, 0, &node));
    node.bytes = 32 * MIB;
    printf(" %d", cudaGraphAddMemAllocNode(&nodes[0], graph, 0, 0, &node));
    printf(" %d", cudaGraphAddMemFreeNode(&nodes[1], graph, nodes, 1, (void *)node.start));
    printf(" %d", cudaGraphInstantiate(&exec, graph, 0));
    printf(" %d", cudaGraphLaunch(exec, 0));
    cudaStreamSynchronize(0);
    printf(", %d", used() >= 32 * MIB);
    // Needs what the graph keeps.
    printf(", %d", cudaMalloc(&block, 120 * MIB));
    cudaFree(block);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    printf(", %zu after\n", used());

    cuCtxCreate_v2(&context, 0, 0);
    cuMemAlloc_v2(&first, 100 * MIB);
    printf("context: %zu bytes", used());
    cuCtxDestroy_v2(context);
    printf(", %zu after\n", used());

    cudaMallocManaged(&block, 100 * MIB, 1);
    cudaDeviceReset();
    printf("reset: %zu after\n", used());
    return 0;
}
