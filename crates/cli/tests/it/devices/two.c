// Memory of two devices: allocated on one, copied, read and freed with the other current, and reused only when the work of both
// is complete. With deferred frees, no free waits for work that is held.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cudaSetDevice(int);
int cudaGetDeviceCount(int *);
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaMallocHost(void **, size_t);
int cudaMemset(void *, int, size_t);
int cudaMemsetAsync(void *, int, size_t, void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemcpyPeer(void *, int, const void *, int, size_t);
int cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, void *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaStreamCreateWithFlags(void **, unsigned);
int cudaStreamWaitEvent(void *, void *, unsigned);
int cudaEventCreateWithFlags(void **, unsigned);
int cudaEventRecord(void *, void *);
int cudaLaunchHostFunc(void *, void (*)(void *), void *);
int cudaDeviceSynchronize(void);
int cudaDeviceReset(void);
int cudaDeviceEnablePeerAccess(int, unsigned);
int cudaDeviceDisablePeerAccess(int);

enum { TO_DEVICE = 1, TO_HOST = 2, NON_BLOCKING = 1, NO_TIMING = 2, MIB = 1 << 20 };

static void check(int error, int line) {
    if (error != 0) {
        printf("line %d: error %d\n", line, error);
        exit(1);
    }
}
#define CHECK(call) check(call, __LINE__)

static void pass(void *gate) {
    while (__atomic_load_n((int *)gate, __ATOMIC_SEQ_CST) == 0) sched_yield();
}

static void open_gate(int *gate) { __atomic_store_n(gate, 1, __ATOMIC_SEQ_CST); }

static void synchronize(void) {
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaDeviceSynchronize());
    }
}

// Copies, and frees with the other device current.
static void copies(void) {
    unsigned char *blocks[2], back[4096];
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        CHECK(cudaMalloc((void **)&blocks[device], sizeof back));
        CHECK(cudaMemset(blocks[device], 10 + device, sizeof back));
    }
    synchronize();
    CHECK(cudaSetDevice(0));
    CHECK(cudaMemcpyPeer(blocks[0], 0, blocks[1], 1, sizeof back));
    CHECK(cudaMemcpy(back, blocks[0], sizeof back, TO_HOST));
    printf("copied: %d %d\n", back[0], back[4095]);
    CHECK(cudaMemcpy(back, blocks[1], sizeof back, TO_HOST));
    printf("read with the other device current: %d\n", back[0]);
    int first = cudaDeviceEnablePeerAccess(1, 0), second = cudaDeviceEnablePeerAccess(1, 0);
    printf("enabled: %d, again: %d\n", first, second);
    CHECK(cudaMemset(blocks[1], 12, sizeof back));
    CHECK(cudaDeviceSynchronize());
    first = cudaDeviceDisablePeerAccess(1), second = cudaDeviceDisablePeerAccess(1);
    printf("disabled: %d, again: %d\n", first, second);
    CHECK(cudaMemcpy(back, blocks[1], sizeof back, TO_HOST));
    printf("written by the other device: %d\n", back[0]);
    first = cudaFree(blocks[1]), second = cudaFree(blocks[1]);
    printf("freed: %d, twice: %d\n", first, second);
    CHECK(cudaFreeAsync(blocks[0], NULL));
}

// A block of one device is freed while the other's work that uses it is held.
static void held(void) {
    static int gate;
    unsigned char *from, *to, *next, back[16];
    void *stream;
    CHECK(cudaSetDevice(0));
    CHECK(cudaStreamCreateWithFlags(&stream, NON_BLOCKING));
    CHECK(cudaMalloc((void **)&from, 64 * MIB));
    CHECK(cudaMemset(from, 1, 64 * MIB));
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc((void **)&to, 64 * MIB));
    synchronize();
    CHECK(cudaSetDevice(0));
    CHECK(cudaLaunchHostFunc(stream, pass, &gate));
    CHECK(cudaMemcpyPeerAsync(to, 1, from, 0, 64 * MIB, stream));
    CHECK(cudaSetDevice(1));
    CHECK(cudaFree(to));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMalloc((void **)&next, 64 * MIB));
    CHECK(cudaMemset(next, 2, 64 * MIB));
    open_gate(&gate);
    synchronize();
    CHECK(cudaMemcpy(back, next, sizeof back, TO_HOST));
    printf("not overwritten: %d\n", back[0] == 2);
    CHECK(cudaFree(next));
    CHECK(cudaFree(from));
}

static unsigned long long state = 88172645463325252ull;

static unsigned below(unsigned count) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 32) % count);
}

enum { STREAMS = 4, GATES = 32, USES = 256, PLACE = 512 };

// Random blocks of both devices, each written in one stream, read in another one, and freed while either is held.
static void random_uses(void) {
    static int gates[GATES];
    static unsigned char expected[USES];
    unsigned char *places;
    void *streams[STREAMS], *events[STREAMS];
    int wrong = 0, total = 0;
    CHECK(cudaMallocHost((void **)&places, USES * PLACE));
    for (int i = 0; i < STREAMS; i++) {
        CHECK(cudaSetDevice(i % 2));
        CHECK(cudaStreamCreateWithFlags(&streams[i], NON_BLOCKING));
        CHECK(cudaEventCreateWithFlags(&events[i], NO_TIMING));
    }
    for (int round = 0; round < 20; round++) {
        int closed = 0;
        memset(gates, 0, sizeof gates);
        for (int use = 0; use < USES; use++) {
            int home = below(STREAMS), reader = below(3) == 0 ? (int)below(STREAMS) : home, opened = below(closed + 1);
            size_t bytes = (size_t)PLACE << below(12);
            unsigned char *block;
            expected[use] = (unsigned char)(1 + total++ % 255);
            CHECK(cudaSetDevice(home % 2));
            if (below(3) == 0) {
                CHECK(cudaMalloc((void **)&block, bytes));
            } else {
                // The memory is that of the stream's device.
                CHECK(cudaSetDevice(below(2)));
                CHECK(cudaMallocAsync((void **)&block, bytes, streams[home]));
                CHECK(cudaSetDevice(home % 2));
            }
            CHECK(cudaMemsetAsync(block, expected[use], bytes, streams[home]));
            if (closed < GATES && below(4) == 0) CHECK(cudaLaunchHostFunc(streams[home], pass, &gates[closed++]));
            if (reader != home) {
                CHECK(cudaEventRecord(events[home], streams[home]));
                CHECK(cudaSetDevice(reader % 2));
                CHECK(cudaStreamWaitEvent(streams[reader], events[home], 0));
                if (closed < GATES && below(4) == 0) CHECK(cudaLaunchHostFunc(streams[reader], pass, &gates[closed++]));
            }
            CHECK(cudaMemcpyAsync(places + use * PLACE, block + bytes - PLACE, PLACE, TO_HOST, streams[reader]));
            CHECK(cudaSetDevice(below(2)));
            if (below(3) == 0 && getenv("FREES_WAIT") == NULL) {
                CHECK(cudaFree(block));
            } else {
                CHECK(cudaFreeAsync(block, streams[reader]));
            }
            if (opened < closed && below(3) == 0) open_gate(&gates[opened]);
        }
        for (int i = 0; i < GATES; i++) open_gate(&gates[i]);
        synchronize();
        for (int i = 0; i < USES * PLACE; i++) wrong += places[i] != expected[i / PLACE];
    }
    printf("%d blocks, %d bytes wrong\n", total, wrong);
}

// A reset of one device leaves the other's memory alone.
static void resets(void) {
    unsigned char *blocks[2], back[64];
    size_t available[2], total;
    for (int round = 0; round < 3; round++) {
        for (int device = 0; device < 2; device++) {
            CHECK(cudaSetDevice(device));
            CHECK(cudaMalloc((void **)&blocks[device], 64 * MIB));
            CHECK(cudaMemset(blocks[device], 20 + device, 64 * MIB));
            CHECK(cudaDeviceSynchronize());
        }
        CHECK(cudaSetDevice(1));
        CHECK(cudaMemGetInfo(&available[0], &total));
        CHECK(cudaDeviceReset());
        CHECK(cudaMemGetInfo(&available[1], &total));
        CHECK(cudaSetDevice(0));
        CHECK(cudaMemcpy(back, blocks[0], sizeof back, TO_HOST));
        printf("the other device's: %d, freed: %d %d %d\n", back[0], available[1] >= available[0] + 64 * MIB,
               cudaFree(blocks[0]), cudaFree(blocks[1]));
    }
}

int main(void) {
    int count = 0;
    CHECK(cudaGetDeviceCount(&count));
    printf("%d devices\n", count);
    copies();
    if (getenv("FREES_WAIT") == NULL) held();
    random_uses();
    resets();
    return 0;
}
