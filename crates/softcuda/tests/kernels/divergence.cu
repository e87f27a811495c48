// Loops with break, continue, switch and return, that every lane walks its own way.
// launch: divergence grid 1 block 96
// arg: out u32 96
// arg: in u32 96 random 65

extern "C" __global__ void divergence(unsigned *out, const unsigned *in) {
    unsigned i = threadIdx.x, x = in[i], sum = 0;
    if (i == 50) {
        out[i] = 50;
        return;
    }
    for (unsigned k = 0; k < 100; k++) {
        x = x * 1664525 + 1013904223;
        if (x >> 28 == 3) continue;
        if (x >> 27 == 9) break;
        switch (x >> 29) {
            case 0: sum += 1; break;
            case 1: sum ^= x;
            case 2: sum += k; break;
            case 3: sum = sum << 1 | sum >> 31; break;
            case 4: {
                unsigned inner = x & 7;
                while (inner--) {
                    if (inner == 3) continue;
                    sum += inner * k;
                }
                break;
            }
            case 5: sum -= 17; break;
            case 6: goto out_of_both;
            default: sum *= 3;
        }
    }
out_of_both:
    out[i] = sum;
}
