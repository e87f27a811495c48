// What addresses refer to.
#include "show.h"

__device__ int variable[4];

static void show(const char *name, void *address) {
    cudaPointerAttributes found;
    memset(&found, 0xff, sizeof found);
    CHECK(cudaPointerGetAttributes(&found, address));
    printf("%s: type %d, device %d, device address %s, host address %s\n", name, found.type, found.device,
           found.devicePointer == NULL ? "null" : found.devicePointer == address ? "same" : "other",
           found.hostPointer == NULL ? "null" : found.hostPointer == address ? "same" : "other");
}

int main() {
    char *device = NULL, *pinned = NULL, *managed = NULL, *symbol = NULL;
    CHECK(cudaMalloc(&device, 4096));
    CHECK(cudaMallocHost(&pinned, 4096));
    CHECK(cudaMallocManaged(&managed, 4096));
    CHECK(cudaGetSymbolAddress((void **)&symbol, variable));
    char local[64];
    show("device", device);
    show("inside device", device + 100);
    show("pinned", pinned);
    show("inside pinned", pinned + 100);
    show("managed", managed);
    show("inside managed", managed + 100);
    show("variable", symbol);
    show("stack", local);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(managed));
    SHOW(cudaPointerGetAttributes(NULL, local));
    return 0;
}
