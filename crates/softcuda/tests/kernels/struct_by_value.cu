// Structs as arguments of a kernel and of functions, and as results: fields of every width, arrays, padding.
// launch: struct_by_value grid 1 block 16
// arg: out u64 64
// arg: struct u8 200, u16 50000, u32 4000000000, u64 12345678901234567, f32 1.5, f64 2.25, u8 7, u8 8, u8 9, u8 10
// arg: value u8 250
// arg: value s16 -300

struct Mixed {
    unsigned char byte;
    unsigned short half;
    unsigned word;
    unsigned long long wide;
    float single;
    double twice;
    unsigned char tail[4];
};
struct Pair {
    double first;
    unsigned char second[5];
};

__device__ __noinline__ Pair turn(Mixed mixed, unsigned by) {
    Pair pair;
    pair.first = mixed.single + mixed.twice + by;
    for (int k = 0; k < 5; k++) pair.second[k] = (unsigned char)(mixed.tail[(k + by) % 4] + mixed.byte);
    return pair;
}

extern "C" __global__ void struct_by_value(unsigned long long *out, const Mixed mixed, unsigned char byte, short half) {
    unsigned i = threadIdx.x;
    Pair pair = turn(mixed, i);
    out[i] = (unsigned long long)(pair.first * 4) + (pair.second[4] << 16);
    out[16 + i] = mixed.wide * i + mixed.word + mixed.half;
    out[32 + i] = mixed.tail[i % 4] + pair.second[i % 5];
    out[48 + i] = (unsigned long long)(long long)(byte * half);
}
