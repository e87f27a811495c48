// Attributes of streams: setting one, reading it back, and copying all of them.
#include "show.h"

static int policy(cudaStream_t stream) {
    cudaLaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    CHECK(cudaStreamGetAttribute(stream, cudaLaunchAttributeSynchronizationPolicy, &value));
    return value.syncPolicy;
}

int main() {
    cudaStream_t first, second;
    CHECK(cudaStreamCreate(&first));
    CHECK(cudaStreamCreate(&second));
    printf("by default: %d\n", policy(first) == cudaSyncPolicyAuto);
    cudaLaunchAttributeValue value;
    memset(&value, 0, sizeof value);
    value.syncPolicy = cudaSyncPolicyBlockingSync;
    CHECK(cudaStreamSetAttribute(first, cudaLaunchAttributeSynchronizationPolicy, &value));
    printf("set: %d, the other: %d\n", policy(first) == cudaSyncPolicyBlockingSync, policy(second) == cudaSyncPolicyAuto);
    CHECK(cudaStreamCopyAttributes(second, first));
    printf("copied: %d\n", policy(second) == cudaSyncPolicyBlockingSync);

    memset(&value, 0, sizeof value);
    CHECK(cudaStreamGetAttribute(first, cudaLaunchAttributeAccessPolicyWindow, &value));
    printf("window of %zu bytes\n", value.accessPolicyWindow.num_bytes);
    SHOW(cudaStreamGetAttribute(first, (cudaLaunchAttributeID)99, &value));
    CHECK(cudaStreamSynchronize(first));
    CHECK(cudaStreamDestroy(first));
    CHECK(cudaStreamDestroy(second));
    return 0;
}
