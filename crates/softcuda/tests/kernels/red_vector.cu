// Additions of vectors in one reduction.
// compile: cuda13
// launch: red_vector grid 2 block 32
// arg: inout f32 8 value 0.0
// arg: inout f16x2 8 value 0

extern "C" __global__ void red_vector(float *sums, unsigned *halves) {
    float one = 1.0f, lane = threadIdx.x;
    asm volatile("red.global.v4.f32.add [%0], {%1, %2, %1, %2};" ::"l"(sums), "f"(one), "f"(lane) : "memory");
    asm volatile("red.global.v2.f32.add [%0], {%1, %2};" ::"l"(sums + 4), "f"(lane), "f"(one) : "memory");
    asm volatile("red.global.v4.f16x2.add.noftz [%0], {%1, %1, %2, %2};" ::"l"(halves), "r"(0x3c004000), "r"(0x38000000) : "memory");
    asm volatile("red.global.v2.bf16x2.add.noftz [%0], {%1, %1};" ::"l"(halves + 4), "r"(0x3f804000) : "memory");
}
