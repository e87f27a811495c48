// The pools of a location, and the access of devices to a pool.
#include "show.h"

int main() {
    cudaMemLocation device = {cudaMemLocationTypeDevice, 0}, missing = {cudaMemLocationTypeDevice, 100};
    cudaMemPool_t standard, of_location, current, own;
    CHECK(cudaDeviceGetDefaultMemPool(&standard, 0));
    CHECK(cudaMemGetDefaultMemPool(&of_location, &device, cudaMemAllocationTypePinned));
    printf("the same default pool: %d\n", standard == of_location);
    SHOW(cudaMemGetDefaultMemPool(&of_location, &missing, cudaMemAllocationTypePinned));
    SHOW(cudaMemGetDefaultMemPool(&of_location, &device, cudaMemAllocationTypeInvalid));
    cudaMemPoolProps props = {};
    props.allocType = cudaMemAllocationTypePinned;
    props.location = device;
    props.maxSize = 64 << 20;
    CHECK(cudaMemPoolCreate(&own, &props));
    CHECK(cudaMemSetMemPool(&device, cudaMemAllocationTypePinned, own));
    CHECK(cudaMemGetMemPool(&current, &device, cudaMemAllocationTypePinned));
    printf("the own pool is current: %d\n", current == own);
    CHECK(cudaDeviceGetMemPool(&current, 0));
    printf("for the device too: %d\n", current == own);
    void *block = NULL;
    SHOW(cudaMallocAsync(&block, 1 << 20, 0));
    SHOW(cudaFreeAsync(block, 0));
    SHOW(cudaMallocAsync(&block, 128 << 20, 0));

    cudaMemAccessDesc access = {device, cudaMemAccessFlagsProtReadWrite};
    SHOW(cudaMemPoolSetAccess(own, &access, 1));
    access.flags = cudaMemAccessFlagsProtRead;
    SHOW(cudaMemPoolSetAccess(own, &access, 1));
    access.flags = cudaMemAccessFlagsProtNone;
    SHOW(cudaMemPoolSetAccess(own, &access, 1));
    access.location = missing;
    access.flags = cudaMemAccessFlagsProtReadWrite;
    SHOW(cudaMemPoolSetAccess(own, &access, 1));
    cudaMemAccessFlags flags = (cudaMemAccessFlags)77;
    SHOW(cudaMemPoolGetAccess(&flags, own, &device));
    printf("access %d\n", flags);
    CHECK(cudaMemSetMemPool(&device, cudaMemAllocationTypePinned, standard));
    CHECK(cudaMemPoolDestroy(own));
    return 0;
}
