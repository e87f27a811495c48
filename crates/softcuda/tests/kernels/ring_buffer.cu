// A ring of eight places between blocks: one block fills it, another one empties it, by two counters.
// launch: ring_buffer grid 2 block 32
// arg: inout u32 10 value 0
// arg: out u32 64

extern "C" __global__ void ring_buffer(unsigned *ring, unsigned *out) {
    if (threadIdx.x) return;
    volatile unsigned *head = ring + 8, *tail = ring + 9, *places = ring;
    if (blockIdx.x == 0) {
        for (unsigned k = 0; k < 64; k++) {
            while (*head - *tail == 8) {}
            places[k % 8] = k * k + 1;
            __threadfence();
            *head = k + 1;
        }
    } else {
        for (unsigned k = 0; k < 64; k++) {
            while (*head == k) {}
            __threadfence();
            out[k] = places[k % 8];
            __threadfence();
            *tail = k + 1;
        }
    }
}
