// Numbers to text and back, digit by digit, in local bytes.
// launch: number_text grid 1 block 32
// arg: out u8 768
// arg: out s64 32
// arg: in s64 32 noise 108

extern "C" __global__ void number_text(char *text, long long *back, const long long *in) {
    unsigned i = threadIdx.x;
    long long value = in[i] >> (i & 31);
    char digits[24];
    int length = 0;
    unsigned long long rest = value < 0 ? -(unsigned long long)value : value;
    do digits[length++] = '0' + rest % 10;
    while (rest /= 10);
    if (value < 0) digits[length++] = '-';
    for (int k = 0; k < length; k++) text[24 * i + k] = digits[length - 1 - k];
    long long read = 0;
    bool negative = false;
    for (int k = 0; k < length; k++) {
        char c = text[24 * i + k];
        if (c == '-')
            negative = true;
        else
            read = read * 10 + (c - '0');
    }
    back[i] = negative ? -read : read;
}
