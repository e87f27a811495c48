// Division of 64 bits as programs use it: digits of numbers, greatest common divisors, powers modulo a prime.
// launch: div_64_loop grid 1 block 32
// arg: out u64 96
// arg: in u64 32 noise 82

extern "C" __global__ void div_64_loop(unsigned long long *out, const unsigned long long *in) {
    unsigned i = threadIdx.x;
    unsigned long long x = in[i], y = in[31 - i] >> i, digits = 0;
    for (unsigned long long rest = x; rest; rest /= 10) digits = digits * 3 + rest % 10;
    out[i] = digits;
    unsigned long long a = x, b = y;
    while (b) {
        unsigned long long t = a % b;
        a = b;
        b = t;
    }
    out[32 + i] = a;
    const unsigned long long prime = 4294967291ull;
    unsigned long long base = x % prime, result = 1;
    for (unsigned long long exponent = y; exponent; exponent >>= 1) {
        if (exponent & 1) result = result * base % prime;
        base = base * base % prime;
    }
    out[64 + i] = result + (unsigned long long)((long long)x / -1000003ll % 97);
}
