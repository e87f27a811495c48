// A lock by tickets, served in order, among lanes, warps and blocks.
// launch: ticket_lock grid 2 block 48
// arg: inout u32 3 value 0

extern "C" __global__ void ticket_lock(volatile unsigned *words) {
    unsigned ticket = atomicAdd((unsigned *)words, 1);
    while (words[1] != ticket) __nanosleep(20);
    __threadfence();
    words[2] = words[2] * 3 + 1;
    __threadfence();
    words[1] = ticket + 1;
}
