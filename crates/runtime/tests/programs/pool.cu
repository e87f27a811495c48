// Stream-ordered allocation, from the default pool and from pools of the program.
#include "show.h"

__global__ void set(int *to, int value) { to[blockIdx.x * blockDim.x + threadIdx.x] = value + blockIdx.x; }

static unsigned long long read(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
    unsigned long long value = 77;
    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static int read_switch(cudaMemPool_t pool, cudaMemPoolAttr attribute) {
    int value = 77;
    CHECK(cudaMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

int main() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaMemPool_t standard, current, own;
    CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    printf("the default pool is current: %d\n", standard == current);
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    CHECK(cudaMemPoolCreate(&own, &props));
    printf("switches %d %d %d, threshold %llu\n", read_switch(own, cudaMemPoolReuseFollowEventDependencies),
           read_switch(own, cudaMemPoolReuseAllowOpportunistic),
           read_switch(own, cudaMemPoolReuseAllowInternalDependencies), read(own, cudaMemPoolAttrReleaseThreshold));

    const int count = 4096;
    static int back[4096];
    int *block = NULL, *other = NULL;
    CHECK(cudaMallocAsync(&block, count * sizeof(int), stream));
    CHECK(cudaMallocFromPoolAsync(&other, count * sizeof(int), own, stream));
    set<<<16, 256, 0, stream>>>(block, 100);
    set<<<16, 256, 0, stream>>>(other, 200);
    CHECK(cudaMemcpyAsync(back, block, sizeof back, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("%d %d\n", back[0], back[count - 1]);
    CHECK(cudaMemcpyAsync(back, other, sizeof back, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("%d %d, used %llu\n", back[0], back[count - 1], read(own, cudaMemPoolAttrUsedMemCurrent));
    printf("reserved at least as much: %d\n", read(own, cudaMemPoolAttrReservedMemCurrent) >= sizeof back);
    CHECK(cudaFreeAsync(block, stream));
    CHECK(cudaFreeAsync(other, stream));
    CHECK(cudaStreamSynchronize(stream));
    printf("used %llu, high %llu\n", read(own, cudaMemPoolAttrUsedMemCurrent), read(own, cudaMemPoolAttrUsedMemHigh));
    unsigned long long keep = 64 << 20, zero = 0;
    CHECK(cudaMemPoolSetAttribute(own, cudaMemPoolAttrReleaseThreshold, &keep));
    CHECK(cudaMemPoolSetAttribute(own, cudaMemPoolAttrUsedMemHigh, &zero));
    printf("threshold %llu, high %llu\n", read(own, cudaMemPoolAttrReleaseThreshold), read(own, cudaMemPoolAttrUsedMemHigh));
    CHECK(cudaMemPoolTrimTo(own, 0));
    printf("reserved %llu\n", read(own, cudaMemPoolAttrReservedMemCurrent));

    CHECK(cudaDeviceSetMemPool(0, own));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    CHECK(cudaMallocAsync(&block, 1000, stream));
    printf("the own pool is current: %d, used %llu\n", current == own, read(own, cudaMemPoolAttrUsedMemCurrent) > 0);
    cudaMemAccessFlags access;
    cudaMemLocation place = {cudaMemLocationTypeDevice, 0};
    CHECK(cudaMemPoolGetAccess(&access, own, &place));
    printf("read and write: %d\n", access == cudaMemAccessFlagsProtReadWrite);
    CHECK(cudaFreeAsync(block, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemPoolDestroy(own));
    CHECK(cudaDeviceGetMemPool(&current, 0));
    printf("the default pool is current: %d\n", standard == current);
    SHOW(cudaMemPoolDestroy(standard));
    SHOW(cudaMallocAsync(&block, (size_t)1 << 50, stream));
    CHECK(cudaFreeAsync(NULL, stream));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
