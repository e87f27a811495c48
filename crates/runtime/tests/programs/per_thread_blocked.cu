// Synchronous calls in the default stream of a thread do not wait for the default stream of another.
#include "show.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

extern "C" {
cudaError_t cudaMemcpy_ptds(void *, const void *, size_t, cudaMemcpyKind);
cudaError_t cudaMemset_ptds(void *, int, size_t);
cudaError_t cudaMemcpyToSymbol_ptds(const void *, const void *, size_t, size_t, cudaMemcpyKind);
}

__device__ int variable;

// Work that ends when it is released. If that never happens it gives up, and the program says so.
struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool launched = false, open = false, gave_up = false;

    void set(bool Gate::*what) {
        std::lock_guard<std::mutex> lock(mutex);
        this->*what = true;
        changed.notify_all();
    }

    bool wait(bool Gate::*what) {
        std::unique_lock<std::mutex> lock(mutex);
        return changed.wait_for(lock, std::chrono::seconds(20), [this, what] { return this->*what; });
    }
};

static void CUDART_CB wait_for_gate(void *data) {
    Gate *gate = (Gate *)data;
    if (!gate->wait(&Gate::open)) gate->set(&Gate::gave_up);
}

int main() {
    int host[64] = {1, 2, 3}, back[64], *block = NULL;
    CHECK(cudaMalloc(&block, sizeof host));
    // Loading the program's image may wait for all streams.
    CHECK(cudaMemcpyToSymbol(variable, host, 4));
    Gate gate;
    std::thread other([&gate] {
        CHECK(cudaLaunchHostFunc(cudaStreamPerThread, wait_for_gate, &gate));
        gate.set(&Gate::launched);
        gate.wait(&Gate::open);
    });
    gate.wait(&Gate::launched);
    CHECK(cudaMemcpy_ptds(block, host, sizeof host, cudaMemcpyHostToDevice));
    CHECK(cudaMemset_ptds(block + 1, 0, 4));
    CHECK(cudaMemcpy_ptds(back, block, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpyToSymbol_ptds(&variable, host, 4, 0, cudaMemcpyHostToDevice));
    gate.set(&Gate::open);
    CHECK(cudaDeviceSynchronize());
    other.join();
    printf("beside a blocked thread: %d %d %d, gave up: %d\n", back[0], back[1], back[2], gate.gave_up);
    CHECK(cudaFree(block));
    return 0;
}
