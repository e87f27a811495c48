// mma with infinities, NaN, zeros of both signs and sums that overflow, one special element in each row.
// launch: mma_f32_special grid 1 block 32
// arg: out u32 128
// arg: out u32 128


extern "C" __global__ void mma_f32_special(unsigned *f16, unsigned *bf16) {
    // Row r of a has the special element r in column 0, and 1 in column 1; row 0 of b is 1, row 1 is 0.5.
    const unsigned short halves[] = {0, 0x8000, 0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x7c01, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x3c01, 0x8400, 0xbc00};
    const unsigned short brains[] = {0, 0x8000, 0x7f80, 0xff80, 0x7fc0, 0xffc0, 0x7f81, 1, 0x8001, 0x7f, 0x80, 0x7f7f, 0xff7f, 0x3f81, 0x8080, 0xbf80};
    unsigned i = threadIdx.x, group = i / 4, first = i % 4 == 0, d[4];
    for (int kind = 0; kind < 2; kind++) {
        unsigned one = kind ? 0x3f80 : 0x3c00, half = kind ? 0x3f00 : 0x3800;
        const unsigned short *numbers = kind ? brains : halves;
        unsigned a = first ? numbers[group] | one << 16 : 0, b = first ? numbers[group + 8] | one << 16 : 0;
        unsigned c = first ? one | half << 16 : 0, zero = 0, cold = 0x80000000;
        if (kind == 0)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %7, %7}, {%6, %7}, {%7, %8, %7, %8};"
                         : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a), "r"(b), "r"(c), "r"(zero), "r"(cold));
        else
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %7, %7}, {%6, %7}, {%7, %8, %7, %8};"
                         : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a), "r"(b), "r"(c), "r"(zero), "r"(cold));
        for (int j = 0; j < 4; j++) (kind ? bf16 : f16)[j * 32 + i] = d[j];
    }
}
