// Copies of bytes between any alignments: heads and tails by bytes, the middle by words.
// launch: byte_copy grid 1 block 32
// arg: inout u8 1024 value 0
// arg: in u8 1024 noise 73

extern "C" __global__ void byte_copy(unsigned char *out, const unsigned char *in) {
    unsigned i = threadIdx.x, length = 1 + i % 19;
    unsigned char *to = out + 32 * i + i % 5;
    const unsigned char *from = in + 32 * i + i % 3;
    while (length && (unsigned long long)to % 4) *to++ = *from++, length--;
    for (; length >= 4; length -= 4, to += 4, from += 4) {
        unsigned word = 0;
        for (unsigned k = 0; k < 4; k++) word |= (unsigned)from[k] << 8 * k;
        *(unsigned *)to = word;
    }
    while (length--) *to++ = *from++;
}
