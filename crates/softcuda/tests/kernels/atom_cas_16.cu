// Compare and swap of 16 bits, and of 64 bits in a loop that adds doubles.
// launch: atom_cas_16 grid 2 block 32
// arg: inout u16 4 value 0
// arg: inout f64 1 value 0.0

extern "C" __global__ void atom_cas_16(unsigned short *halves, double *sum) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned short *at = halves + i % 4, seen = *(volatile unsigned short *)at, old;
    do {
        old = seen;
        asm volatile("atom.global.cas.b16 %0, [%1], %2, %3;"
                     : "=h"(seen)
                     : "l"(at), "h"(old), "h"((unsigned short)(old + i))
                     : "memory");
    } while (seen != old);
    unsigned long long *word = (unsigned long long *)sum, now = *(volatile unsigned long long *)word, before;
    do {
        before = now;
        now = atomicCAS(word, before, __double_as_longlong(__longlong_as_double(before) + i * 0.125));
    } while (now != before);
}
