// Primes below 1000 as bits: every thread strikes out multiples with atomics.
// launch: sieve grid 1 block 32
// arg: out u32 32

extern "C" __global__ void sieve(unsigned *out) {
    __shared__ unsigned bits[32];
    unsigned i = threadIdx.x;
    bits[i] = i == 31 ? 0xff : i == 0 ? ~3u : ~0u;
    __syncthreads();
    for (unsigned n = 2 + i; n < 32; n += 32)
        for (unsigned k = n * n; k < 1000; k += n) atomicAnd(&bits[k / 32], ~(1u << k % 32));
    __syncthreads();
    out[i] = bits[i];
}
