// Numbers of 256 bits: a sum, a difference and a product by chains of carries.
// launch: big_add grid 1 block 16
// arg: out u32 512
// arg: in u32 128 noise 44
// arg: in u32 128 noise 45

extern "C" __global__ void big_add(unsigned *out, const unsigned *a, const unsigned *b) {
    const unsigned *x = a + 8 * threadIdx.x, *y = b + 8 * threadIdx.x;
    unsigned s[8], d[8];
    asm("add.cc.u32 %0, %8, %16;\n\taddc.cc.u32 %1, %9, %17;\n\taddc.cc.u32 %2, %10, %18;\n\t"
        "addc.cc.u32 %3, %11, %19;\n\taddc.cc.u32 %4, %12, %20;\n\taddc.cc.u32 %5, %13, %21;\n\t"
        "addc.cc.u32 %6, %14, %22;\n\taddc.u32 %7, %15, %23;"
        : "=&r"(s[0]), "=&r"(s[1]), "=&r"(s[2]), "=&r"(s[3]), "=&r"(s[4]), "=&r"(s[5]), "=&r"(s[6]), "=&r"(s[7])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]), "r"(y[0]),
          "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]));
    asm("sub.cc.u32 %0, %8, %16;\n\tsubc.cc.u32 %1, %9, %17;\n\tsubc.cc.u32 %2, %10, %18;\n\t"
        "subc.cc.u32 %3, %11, %19;\n\tsubc.cc.u32 %4, %12, %20;\n\tsubc.cc.u32 %5, %13, %21;\n\t"
        "subc.cc.u32 %6, %14, %22;\n\tsubc.u32 %7, %15, %23;"
        : "=&r"(d[0]), "=&r"(d[1]), "=&r"(d[2]), "=&r"(d[3]), "=&r"(d[4]), "=&r"(d[5]), "=&r"(d[6]), "=&r"(d[7])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]), "r"(y[0]),
          "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]));
    unsigned p[16] = {};
    for (int i = 0; i < 8; i++) {
        unsigned long long carry = 0;
        for (int j = 0; j < 8; j++) {
            carry += (unsigned long long)x[i] * y[j] + p[i + j];
            p[i + j] = (unsigned)carry;
            carry >>= 32;
        }
        p[i + 8] = (unsigned)carry;
    }
    for (int k = 0; k < 8; k++) {
        out[32 * threadIdx.x + k] = s[k];
        out[32 * threadIdx.x + 8 + k] = d[k];
    }
    for (int k = 0; k < 16; k++) out[32 * threadIdx.x + 16 + k] = p[k];
}
