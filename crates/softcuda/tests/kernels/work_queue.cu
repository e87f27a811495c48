// Threads that take numbered work from a queue until it is empty, and add work to it.
// launch: work_queue grid 2 block 32
// arg: inout u32 2 bits 0,1
// arg: out u32 64

extern "C" __global__ void work_queue(unsigned *queue, unsigned *done) {
    for (;;) {
        unsigned job = atomicAdd(queue, 1);
        if (job >= 64) break;
        atomicAdd(&done[job], job * 7 + 1);
        atomicXor(&done[(job * 5) % 64], 0x10000u << job % 8);
        atomicAdd(queue + 1, job);
    }
}
